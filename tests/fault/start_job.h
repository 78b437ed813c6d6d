/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the tests of starts that go wrong: a job of actors (forked ranks, some of them with a
 * wrong idea of the job) that the test lets in through gates, one after the other, while it plays
 * the strangers itself. Everything happens on the loopback interface.
 *
 *   slot 0 of the shared ids is the job's own; the test fills the others (another secret, another
 *   address) before it opens the gate of the actor that uses them.
 */
#ifndef WEFT_TESTS_START_JOB_H
#define WEFT_TESTS_START_JOB_H

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "harness/harness.h"
#include "wire/messages.h"
#include "wire/wire.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define IS_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define IS_SANITIZED 1
#endif
#endif
#ifndef IS_SANITIZED
#define IS_SANITIZED 0
#endif

#define ROOT_ADDRESS "127.0.0.1"
#define ACTORS_MAX 16
#define START_MS 20000 /* deadline of starts that must succeed */
#define WAIT_MS 30000  /* after this the test itself has failed */

enum { WORD_ID_READY, WORD_CREATED, WORD_BARRIERS, WORD_GATES = 8 };
enum { SLOT_OWN, SLOT_OTHER, SLOT_THIRD };

struct actor {
    bool is_root; /* makes the id */
    int rank, ranks;
    unsigned gate;   /* waits until it is open; 0: always open */
    unsigned slot;   /* which id it uses */
    unsigned leaves; /* after its barrier it waits for this gate before it closes; 0: at once */
    uint32_t start_timeout_ms;     /* 0: START_MS */
    bool is_direct;                /* joins over TCP */
    const char *setting, *value;   /* one more variable of its environment */
    uint32_t handshake_timeout_ms; /* 0: too long to explain anything */
};

struct job {
    struct harness *harness;
    int count;
    int log_fd; /* what the actors wrote to stderr */
    weft_id_t id;
    struct weft_wire_id facts;
    char local_name[WEFT_WIRE_NAME_LEN];
    uint16_t port;
};

/* ---- the actors' side ---- */

static inline weft_id_t *shared_id(struct harness_shared *shared, unsigned slot)
{
    return (weft_id_t *)(void *)shared->scratch + slot;
}

static inline void prepare_environment(const struct actor *actor)
{
    char timeout[32];
    snprintf(timeout, sizeof(timeout), "%ums",
             actor->handshake_timeout_ms != 0 ? actor->handshake_timeout_ms : 60000);
    setenv("WEFT_HANDSHAKE_TIMEOUT", timeout, 1);
    setenv("WEFT_SOCKET_IFNAME", "=lo", 1);
    setenv("WEFT_SOCKET_FAMILY", "ipv4", 1);
    setenv("WEFT_JOIN", actor->is_direct ? "direct" : "auto", 1);
    if (actor->setting != NULL) {
        setenv(actor->setting, actor->value, 1);
    }
}

static inline bool is_gate_open(struct harness_shared *shared, unsigned gate)
{
    return gate == 0 || harness_wait_reach(&shared->word[WORD_GATES + gate], 1, WAIT_MS);
}

static inline int use_comm(int index, struct harness_shared *shared, const struct actor *actor,
                           weft_comm_t comm)
{
    weft_status_t status = weft_control_barrier(comm);
    if (status == WEFT_OK) {
        atomic_fetch_add(&shared->word[WORD_BARRIERS], 1);
        if (!is_gate_open(shared, actor->leaves)) {
            status = WEFT_ERR_TIMEOUT;
        } else if (actor->leaves != 0) {
            status = weft_control_barrier(comm);
        }
    }
    if (status != WEFT_OK) {
        harness_say(shared, index, (int)status, "after the start: %s", weft_error_text());
    }
    weft_comm_close(comm);
    return (int)status;
}

static inline int act(int index, struct harness_shared *shared, void *arg)
{
    const struct actor *actor = &((const struct actor *)arg)[index];
    weft_config_t config = WEFT_CONFIG_INIT;
    weft_id_t id;
    weft_comm_t comm;
    weft_status_t status;
    prepare_environment(actor);
    config.start_timeout_ms = actor->start_timeout_ms != 0 ? actor->start_timeout_ms : START_MS;
    if (actor->is_root) {
        if (weft_id_create(&config, shared_id(shared, SLOT_OWN)) != WEFT_OK) {
            return harness_say(shared, index, -1, "id: %s", weft_error_text());
        }
        atomic_store(&shared->word[WORD_ID_READY], 1);
    }
    if (!harness_wait_for(&shared->word[WORD_ID_READY], 1, WAIT_MS) ||
        !is_gate_open(shared, actor->gate)) {
        return harness_say(shared, index, -1, "the test did not let it in");
    }
    id = *shared_id(shared, actor->slot);
    status = weft_comm_create(&id, actor->rank, actor->ranks, &config, &comm);
    if (status != WEFT_OK) {
        return harness_say(shared, index, (int)status, "%s", weft_error_text());
    }
    atomic_fetch_add(&shared->word[WORD_CREATED], 1);
    return use_comm(index, shared, actor, comm);
}

/* ---- the test's side ---- */

/* Starts the actors (actors[0] is the root) and waits for the id. The actors' stderr is kept. */
static inline void job_start(struct job *job, const struct actor *actors, int count)
{
    static struct actor cast[ACTORS_MAX]; /* each actor is forked with its own copy */
    int saved = dup(STDERR_FILENO);
    memset(job, 0, sizeof(*job));
    job->count = count;
    job->log_fd = memfd_create("log", MFD_CLOEXEC);
    assert_true(saved >= 0 && job->log_fd >= 0 && count <= ACTORS_MAX);
    memcpy(cast, actors, (size_t)count * sizeof(cast[0]));
    fflush(stderr);
    dup2(job->log_fd, STDERR_FILENO);
    job->harness = harness_start(count, act, cast);
    dup2(saved, STDERR_FILENO);
    close(saved);
    assert_true(harness_wait_for(&harness_shared(job->harness)->word[WORD_ID_READY], 1, WAIT_MS));
    job->id = *shared_id(harness_shared(job->harness), SLOT_OWN);
    assert_int_equal(weft_wire_crypto_open(), WEFT_OK);
    assert_int_equal(weft_wire_id_decode(&job->id, &job->facts), WEFT_OK);
    job->port = job->facts.root.port;
    weft_wire_local_name(job->facts.secret, job->facts.job, job->facts.epoch, "root", 0,
                         job->local_name);
}

static inline void job_close(struct job *job)
{
    harness_close(job->harness);
    close(job->log_fd);
}

static inline void open_gate(struct job *job, unsigned gate)
{
    atomic_store(&harness_shared(job->harness)->word[WORD_GATES + gate], 1);
}

static inline void give_id(struct job *job, unsigned slot, const struct weft_wire_id *facts)
{
    weft_wire_id_encode(facts, shared_id(harness_shared(job->harness), slot));
}

static inline void job_wait_created(struct job *job, uint32_t count)
{
    assert_harness(
        job->harness,
        harness_wait_reach(&harness_shared(job->harness)->word[WORD_CREATED], count, WAIT_MS));
}

static inline void job_end(struct job *job)
{
    assert_harness(job->harness, harness_wait(job->harness, WAIT_MS));
    assert_harness(job->harness, harness_check_clean(job->harness));
}

static inline void check_said(const struct job *job, int index, int status,
                              const char *const *words)
{
    const struct harness_result *result = harness_result(job->harness, index);
    if (!result->is_returned || result->status != status) {
        fail_msg(
            "actor %d: expected %s, got %s: %s", index, weft_status_name((weft_status_t)status),
            !result->is_returned ? "no return" : weft_status_name((weft_status_t)result->status),
            result->text);
    }
    for (; *words != NULL; words++) {
        if (strstr(result->text, *words) == NULL) {
            fail_msg("actor %d does not say \"%s\": %s", index, *words, result->text);
        }
    }
}
/* Has this actor come back with this status, and do its words hold all of these? NULL ends. */
#define assert_said(job, index, status, ...)                                                       \
    check_said((job), (index), (status), (const char *const[]){__VA_ARGS__})

/* All these actors came through start and barrier. */
static inline void assert_fine(const struct job *job, const int *indexes, int count)
{
    for (int i = 0; i < count; i++) {
        assert_said(job, indexes[i], WEFT_OK, NULL);
    }
}
#define assert_actors_fine(job, ...)                                                               \
    assert_fine((job), (const int[]){__VA_ARGS__},                                                 \
                (int)(sizeof((const int[]){__VA_ARGS__}) / sizeof(int)))

/* How often a text is in what the actors logged. */
static inline unsigned count_in_log(const struct job *job, const char *text)
{
    static char log[262144];
    ssize_t len = pread(job->log_fd, log, sizeof(log) - 1, 0);
    unsigned count = 0;
    log[len > 0 ? len : 0] = '\0';
    for (const char *at = strstr(log, text); at != NULL; at = strstr(at + 1, text)) {
        count++;
    }
    return count;
}

/* ---- what the kernel knows of an actor ---- */

static inline unsigned fds_of(pid_t pid)
{
    char path[64];
    unsigned count = 0;
    snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    DIR *dir = opendir(path);
    if (dir == NULL) {
        return 0;
    }
    while (readdir(dir) != NULL) {
        count++;
    }
    closedir(dir);
    return count - 2;
}

/* Anonymous memory in use, KiB: heap and stacks, not the program's files. */
static inline long memory_of(pid_t pid)
{
    char path[64], line[256];
    long kib = -1;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    FILE *status = fopen(path, "re");
    if (status == NULL) {
        return -1;
    }
    while (kib < 0 && fgets(line, sizeof(line), status) != NULL) {
        if (strncmp(line, "RssAnon:", 8) == 0) {
            kib = strtol(line + 8, NULL, 10);
        }
    }
    fclose(status);
    return kib;
}

static inline double ms_since(uint64_t begin_ns)
{
    return (double)(harness_now_ns() - begin_ns) / 1e6;
}

/* ---- somebody who knows the protocol ---- */

/* One end of a handshake, moved by hand. The peer's facts, status and reason are in shake. */
struct speaker {
    int fd;
    struct weft_wire_self self;
    struct weft_wire_handshake shake;
};

/* Connects to the root as `rank`; knows what the facts know. */
static inline void speaker_dial(struct speaker *speaker, const struct job *job,
                                const struct weft_wire_id *facts, uint32_t rank, uint32_t ranks)
{
    memset(speaker, 0, sizeof(*speaker));
    speaker->fd = stranger_connect(ROOT_ADDRESS, job->port, WAIT_MS);
    assert_true(speaker->fd >= 0);
    speaker->self = (struct weft_wire_self){.key = facts->secret,
                                            .is_authenticated = facts->flags != 0,
                                            .epoch = facts->epoch,
                                            .rank = rank,
                                            .ranks = ranks};
    memcpy(speaker->self.job, facts->job, sizeof(facts->job));
}

/* Reads one byte at a time, so that what follows the handshake stays in the socket. */
static inline enum weft_wire_state speaker_listen(struct speaker *speaker)
{
    enum weft_wire_state state = speaker->shake.state;
    uint8_t byte;
    size_t used;
    while (state == WEFT_WIRE_WANT_BYTES && speaker->shake.out_len == 0 &&
           stranger_read(speaker->fd, &byte, 1, WAIT_MS) == 1) {
        state = weft_wire_feed(&speaker->shake, &byte, 1, &used);
    }
    return state;
}

static inline bool speaker_say(struct speaker *speaker)
{
    size_t len = speaker->shake.out_len;
    speaker->shake.out_len = 0;
    return stranger_send(speaker->fd, speaker->shake.out, len, WAIT_MS);
}

/* A member record as an honest rank would send it. */
static inline size_t encode_member(uint8_t payload[WEFT_WIRE_MEMBER_MAX], uint32_t rank,
                                   uint32_t ranks, uint32_t leader)
{
    struct weft_wire_member member = {.rank = rank,
                                      .ranks = ranks,
                                      .leader = leader,
                                      .pid = (uint32_t)getpid(),
                                      .timeout_ms = START_MS,
                                      .host = "elsewhere"};
    return weft_wire_member_encode(&member, payload, WEFT_WIRE_MEMBER_MAX);
}

/* Reads the challenge and answers it with a join; a leader is accepted at once. */
static inline void speaker_join(struct speaker *speaker, uint32_t leader)
{
    static const uint8_t nonce[WEFT_WIRE_NONCE_LEN] = {1, 2, 3};
    uint8_t payload[WEFT_WIRE_MEMBER_MAX];
    size_t len = encode_member(payload, speaker->self.rank, speaker->self.ranks, leader);
    weft_wire_client_open(&speaker->shake, &speaker->self, nonce, WEFT_WIRE_JOIN, 0, payload, len);
    assert_int_equal(speaker_listen(speaker), WEFT_WIRE_WANT_BYTES);
    assert_true(speaker_say(speaker));
}

/* A frame, sealed when the connection is; out has room for 48 + len bytes. */
static inline size_t speaker_frame(const struct speaker *speaker, uint64_t number,
                                   struct weft_wire_frame frame, const void *payload, uint8_t *out)
{
    weft_wire_frame_encode(&frame, out);
    memcpy(out + WEFT_WIRE_FRAME_LEN, payload, frame.len);
    weft_wire_seal(speaker->shake.send_key, number, out, WEFT_WIRE_FRAME_LEN, payload, frame.len,
                   out + WEFT_WIRE_FRAME_LEN + frame.len);
    return WEFT_WIRE_FRAME_LEN + frame.len + WEFT_WIRE_SEAL_LEN;
}

/* ---- somebody who answers in the root's place ---- */

/* A listener on the loopback interface. */
static inline int listen_somewhere(uint16_t *port_p)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(addr);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&addr, len) == 0 && listen(fd, 8) == 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&addr, &len), 0);
    *port_p = ntohs(addr.sin_port);
    return fd;
}

/* fds[0] listens; when somebody has come, fds[1] is the connection. */
static inline bool has_guest(void *arg)
{
    int *fds = arg;
    fds[1] = accept4(fds[0], NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    return fds[1] >= 0;
}

#endif
