/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank, or the root, that goes away or falls silent at each step of the handshake: all others
 * return by the start-up deadline and say who is missing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fault/job.h"
#include "wire/wire.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#define RANKS 5
#define ABSENT 2 /* the test takes its place */
#define NEVER 4  /* does not come, or a hello of the fake rank would complete the start */
#define START_MS 500
#define LATE_MS 250 /* a deadline is kept within this */
#define STEP_MS 3000

/* What the fake rank has done when it stops. */
enum step { BEFORE_CONNECT, CONNECTED, CHALLENGED, HALF_HELLO, HELLO, STEPS };

static const char *const step_names[] = {"before connecting", "after connecting",
                                         "after the challenge", "within its hello",
                                         "after its hello"};

static bool is_real(int rank)
{
    return rank != ABSENT && rank != NEVER;
}

static int body(int rank, struct harness_shared *shared, void *arg)
{
    weft_config_t config = job_config(START_MS, 5000);
    weft_comm_t comm;
    (void)arg;
    if (!is_real(rank)) {
        return WEFT_OK;
    }
    job_calls(rank, shared);
    weft_status_t status = job_join(rank, 0, shared, &config, &comm);
    job_returned(rank, shared, status);
    if (status == WEFT_OK) {
        job_close(rank, shared, comm);
    }
    return (int)status;
}

/* ---- a rank that stops half-way ---- */

static int connect_root(const struct weft_wire_id *id, bool is_local)
{
    char name[WEFT_WIRE_NAME_LEN];
    if (!is_local) {
        return stranger_connect("127.0.0.1", id->root.port, STEP_MS);
    }
    weft_wire_local_name(id->secret, id->job, id->epoch, "root", 0, name);
    return stranger_connect_unix(name, STEP_MS);
}

/* challenge NULL: a local socket, where the client speaks first */
static size_t say_hello(const struct weft_wire_id *id, const uint8_t *challenge, uint8_t *hello)
{
    struct weft_wire_self self = {.key = id->secret,
                                  .is_authenticated = true,
                                  .epoch = id->epoch,
                                  .rank = ABSENT,
                                  .ranks = RANKS};
    struct weft_wire_member me = {.rank = ABSENT,
                                  .ranks = RANKS,
                                  .leader = WEFT_WIRE_NO_RANK,
                                  .pid = (uint32_t)getpid(),
                                  .timeout_ms = START_MS,
                                  .host = "fake"};
    const uint8_t nonce[WEFT_WIRE_NONCE_LEN] = {1};
    uint8_t payload[WEFT_WIRE_MEMBER_MAX];
    size_t used, len = weft_wire_member_encode(&me, payload, sizeof(payload));
    struct weft_wire_handshake *shake = malloc(sizeof(*shake));
    assert_non_null(shake);
    memcpy(self.job, id->job, sizeof(self.job));
    weft_wire_client_open(shake, &self, nonce, WEFT_WIRE_JOIN, 0, payload, len);
    if (challenge != NULL) {
        weft_wire_feed(shake, challenge, WEFT_WIRE_CHALLENGE_LEN, &used);
    } else {
        weft_wire_client_speak(shake);
    }
    assert_int_equal(shake->state, WEFT_WIRE_WANT_BYTES);
    len = shake->out_len;
    memcpy(hello, shake->out, len);
    weft_wire_handshake_close(shake);
    free(shake);
    return len;
}

/* Goes as far as told; the fd stays open. -1: it never connected. */
static int go_until(enum step step, const struct weft_wire_id *id, bool is_local)
{
    uint8_t challenge[WEFT_WIRE_CHALLENGE_LEN], hello[256 + WEFT_WIRE_PAYLOAD_MAX];
    int fd;
    if (step == BEFORE_CONNECT) {
        return -1;
    }
    fd = connect_root(id, is_local);
    assert_true(fd >= 0);
    if (step >= CHALLENGED && !is_local) {
        assert_int_equal(stranger_read(fd, challenge, sizeof(challenge), STEP_MS),
                         sizeof(challenge));
    }
    if (step >= HALF_HELLO) {
        size_t len = say_hello(id, is_local ? NULL : challenge, hello);
        assert_true(stranger_send(fd, hello, step == HELLO ? len : len / 2, STEP_MS));
    }
    return fd;
}

/* Who was proved to be in the job and went away is a dead rank, told at once; who was not proved is
 * missing at the deadline. */
static void check_rank(struct harness *harness, int rank, enum step step, bool is_closed)
{
    const struct job_report *report = job_report(harness, rank);
    const char *text = harness_result(harness, rank)->text;
    bool is_known = step == HELLO && is_closed;
    uint64_t took_ns = report->returned_ns - report->called_ns;
    const char *name = is_known ? "rank 2 (" : "2 of 5 ranks did not join in time: 2, 4";
    if (report->status != (is_known ? WEFT_ERR_PEER : WEFT_ERR_TIMEOUT) ||
        strstr(text, name) == NULL) {
        fail_msg("fake rank gone %s: rank %d returned %s", step_names[step], rank, text);
    }
    if (is_known && strstr(text, "closed") == NULL) {
        fail_msg("rank %d does not hear that the fake rank closed: %s", rank, text);
    }
    if (took_ns > (START_MS + LATE_MS * JOB_SLOWNESS) * JOB_MS_NS) {
        fail_msg("rank %d returned after %.3f s", rank, (double)took_ns / 1e9);
    }
}

/* The real ranks have said their hello: nobody has anything to do any more. */
struct quiet {
    const struct harness *harness;
    unsigned looks;
};

static bool is_quiet(void *arg)
{
    struct quiet *quiet = arg;
    quiet->looks++;
    for (int rank = 0; rank < RANKS; rank++) {
        pid_t pid = harness_pid(quiet->harness, rank);
        if (is_real(rank) && !job_is_asleep(&pid)) {
            quiet->looks = 0;
        }
    }
    return quiet->looks >= 50;
}

static void wait_joined(struct harness *harness)
{
    struct quiet quiet = {harness, 0};
    assert_harness(harness, harness_wait_until(is_quiet, &quiet, 3000));
}

static void check_step(enum step step, bool is_closed, bool is_local)
{
    struct harness *harness = harness_start(RANKS, body, NULL);
    struct harness_shared *shared = harness_shared(harness);
    struct weft_wire_id id;
    assert_harness(harness, harness_wait_for(&shared->word[JOB_ID_WORD], 1, 5000));
    assert_int_equal(weft_wire_id_decode(&job_board(shared)->id, &id), WEFT_OK);
    int fd = go_until(step, &id, is_local);
    if (step == HELLO) {
        wait_joined(harness);
    }
    if (is_closed && fd >= 0) {
        close(fd);
        fd = -1;
    }
    assert_harness(harness, harness_wait(harness, 5000));
    for (int rank = 0; rank < RANKS; rank++) {
        if (is_real(rank)) {
            check_rank(harness, rank, step, is_closed);
        }
    }
    assert_harness(harness, harness_check_clean(harness));
    harness_close(harness);
    if (fd >= 0) {
        close(fd);
    }
}

static void a_rank_that_goes_at_any_step_is_named_by_all(void **state)
{
    (void)state;
    for (enum step step = BEFORE_CONNECT; step < STEPS; step++) {
        check_step(step, true, true);
    }
}

static void a_rank_that_goes_at_any_step_is_named_over_tcp(void **state)
{
    (void)state;
    for (enum step step = CONNECTED; step < STEPS; step++) {
        check_step(step, true, false);
    }
}

static void a_rank_that_falls_silent_at_any_step_is_named_by_all(void **state)
{
    (void)state;
    for (enum step step = CONNECTED; step < HELLO; step++) {
        check_step(step, false, true);
    }
}

/* ---- a real rank that ends during the start ---- */

static int leaver_body(int rank, struct harness_shared *shared, void *arg)
{
    weft_config_t config = job_config(5000, 5000);
    weft_comm_t comm;
    (void)arg;
    if (!is_real(rank)) {
        return WEFT_OK;
    }
    atomic_fetch_add(&shared->word[0], 1);
    job_calls(rank, shared);
    weft_status_t status = job_join(rank, 0, shared, &config, &comm);
    return job_returned(rank, shared, status);
}

static void kill_during_start(int leaver)
{
    struct harness *harness = harness_start(RANKS, leaver_body, NULL);
    struct harness_shared *shared = harness_shared(harness);
    assert_harness(harness, harness_wait_for(&shared->word[0], RANKS - 2, 5000));
    assert_harness(harness, harness_wait_for(&shared->word[JOB_ID_WORD], 1, 5000));
    wait_joined(harness);
    uint64_t end_ns = harness_now_ns();
    assert_harness(harness, harness_kill(harness, leaver, SIGKILL));
    assert_harness(harness, harness_wait(harness, 8000));
    for (int rank = 0; rank < RANKS; rank++) {
        const struct job_report *report = job_report(harness, rank);
        const char *text = harness_result(harness, rank)->text;
        if (!is_real(rank) || rank == leaver) {
            continue;
        }
        if (leaver != 0 && (report->status != WEFT_ERR_PEER || strstr(text, "rank 1 (") == NULL ||
                            strstr(text, "closed") == NULL)) {
            fail_msg("rank %d returned %s", rank, text);
        }
        /* of the root the others know only where it was */
        if (leaver == 0 && report->status != WEFT_ERR_PEER && report->status != WEFT_ERR_NETWORK) {
            fail_msg("rank %d returned %s", rank, text);
        }
        if (report->returned_ns - end_ns > JOB_CLOSE_NS * JOB_SLOWNESS) {
            fail_msg("rank %d returned after %.3f s: %s", rank,
                     (double)(report->returned_ns - end_ns) / 1e9, text);
        }
    }
    assert_harness(harness, harness_check_clean(harness));
    harness_close(harness);
}

static void a_rank_killed_after_it_joined_is_named_at_once(void **state)
{
    (void)state;
    kill_during_start(1);
}

static void the_root_killed_during_the_start_is_noticed_at_once(void **state)
{
    (void)state;
    kill_during_start(0);
}

/* ---- a root that goes half-way ---- */

static int client_body(int rank, struct harness_shared *shared, void *arg)
{
    weft_config_t config = job_config(START_MS, 5000);
    weft_comm_t comm;
    const weft_id_t *id = arg;
    setenv("WEFT_JOIN", "direct", 1);
    job_calls(rank, shared);
    weft_status_t status = weft_comm_create(id, rank + 1, shared->ranks + 1, &config, &comm);
    return job_returned(rank, shared, status);
}

enum root_step { ROOT_SILENT, ROOT_CHALLENGED, ROOT_HEARD_HELLO, ROOT_STEPS };

struct fake_root {
    int listener, conn[2];
    struct weft_wire_id id;
};

static void fake_root_open(struct fake_root *root)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(addr);
    memset(root, 0, sizeof(*root));
    root->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(root->listener >= 0);
    assert_int_equal(bind(root->listener, (struct sockaddr *)&addr, len), 0);
    assert_int_equal(listen(root->listener, 16), 0);
    assert_int_equal(getsockname(root->listener, (struct sockaddr *)&addr, &len), 0);
    root->id.flags = WEFT_WIRE_ID_AUTHENTICATED;
    root->id.root.family = 4;
    root->id.root.port = ntohs(addr.sin_port);
    memcpy(root->id.root.bytes, &addr.sin_addr, 4);
    assert_int_equal(weft_random(root->id.job, sizeof(root->id.job)), WEFT_OK);
    assert_int_equal(weft_random(root->id.secret, sizeof(root->id.secret)), WEFT_OK);
}

static int fake_root_accept(struct fake_root *root)
{
    struct pollfd coming = {.fd = root->listener, .events = POLLIN};
    assert_int_equal(poll(&coming, 1, STEP_MS), 1);
    int fd = accept4(root->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    assert_true(fd >= 0);
    return fd;
}

static void fake_root_challenge(const struct fake_root *root, int fd, bool awaits_hello)
{
    struct weft_wire_self self = {
        .key = root->id.secret, .is_authenticated = true, .rank = 0, .ranks = 3};
    const uint8_t nonce[WEFT_WIRE_NONCE_LEN] = {2};
    uint8_t hello[72];
    struct weft_wire_handshake *shake = malloc(sizeof(*shake));
    assert_non_null(shake);
    memcpy(self.job, root->id.job, sizeof(self.job));
    weft_wire_server_open(shake, &self, nonce);
    assert_true(stranger_send(fd, shake->out, shake->out_len, STEP_MS));
    free(shake);
    if (awaits_hello) {
        assert_int_equal(stranger_read(fd, hello, sizeof(hello), STEP_MS), sizeof(hello));
    }
}

/* The clients know the root's address, not its rank. */
static void check_client(struct harness *harness, const struct fake_root *root, int rank)
{
    const struct job_report *report = job_report(harness, rank);
    const char *text = harness_result(harness, rank)->text;
    uint64_t took_ns = report->returned_ns - report->called_ns;
    char name[32];
    snprintf(name, sizeof(name), "127.0.0.1:%u", root->id.root.port);
    bool is_named = strstr(text, name) != NULL || strstr(text, "the root") != NULL;
    if (report->status == WEFT_OK || !is_named) {
        fail_msg("client %d returned %s", rank, text);
    }
    if (took_ns > (START_MS + LATE_MS * JOB_SLOWNESS) * JOB_MS_NS) {
        fail_msg("client %d returned after %.3f s: %s", rank, (double)took_ns / 1e9, text);
    }
}

static void check_root_step(enum root_step step, bool is_closed)
{
    struct fake_root root;
    weft_id_t id;
    fake_root_open(&root);
    weft_wire_id_encode(&root.id, &id);
    struct harness *harness = harness_start(2, client_body, &id);
    for (int i = 0; i < 2; i++) {
        root.conn[i] = fake_root_accept(&root);
        if (step >= ROOT_CHALLENGED) {
            fake_root_challenge(&root, root.conn[i], step >= ROOT_HEARD_HELLO);
        }
    }
    if (is_closed) {
        close(root.listener);
        close(root.conn[0]);
        close(root.conn[1]);
    }
    assert_harness(harness, harness_wait(harness, 5000));
    for (int rank = 0; rank < 2; rank++) {
        check_client(harness, &root, rank);
    }
    assert_harness(harness, harness_check_clean(harness));
    harness_close(harness);
    if (!is_closed) {
        close(root.listener);
        close(root.conn[0]);
        close(root.conn[1]);
    }
}

static void a_root_that_goes_at_any_step_ends_the_start(void **state)
{
    (void)state;
    for (enum root_step step = ROOT_SILENT; step < ROOT_STEPS; step++) {
        check_root_step(step, true);
    }
}

static void a_root_that_falls_silent_at_any_step_ends_the_start_at_the_deadline(void **state)
{
    (void)state;
    for (enum root_step step = ROOT_SILENT; step < ROOT_STEPS; step++) {
        check_root_step(step, false);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_goes_at_any_step_is_named_by_all),
        cmocka_unit_test(a_rank_that_goes_at_any_step_is_named_over_tcp),
        cmocka_unit_test(a_rank_that_falls_silent_at_any_step_is_named_by_all),
        cmocka_unit_test(a_rank_killed_after_it_joined_is_named_at_once),
        cmocka_unit_test(the_root_killed_during_the_start_is_noticed_at_once),
        cmocka_unit_test(a_root_that_goes_at_any_step_ends_the_start),
        cmocka_unit_test(a_root_that_falls_silent_at_any_step_ends_the_start_at_the_deadline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
