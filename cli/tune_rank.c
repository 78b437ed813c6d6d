/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two ranks of `weft tune`. They keep one communicator to talk over, and make another for every
 * setting that is measured, because a link takes its settings when it is made. Rank 0 decides: it
 * sends an order (settings, how long), both set the environment and meet again, then batches go one
 * way, some messages at once and an answer, until rank 0 has enough.
 */
#include "tune.h"

#include "topo/topo.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define TIMEOUT_MS 20000 /* of one batch and of one start */
#define TAG_ORDER 1u
#define BODY_LEN 4096
#define BATCHES_LEAST 2
#define NAME_LEN 64

enum tag { TAG_GO = 1, TAG_READY, TAG_DATA, TAG_ANSWER };

struct order {
    bool is_end;
    struct tune_values values;
    weft_id_t id;
    char body[BODY_LEN]; /* at the end */
};

struct tune_pair {
    struct tune_pair_spec spec;
    int rank;
    pid_t child;              /* the other rank; 0: a launcher started it */
    weft_comm_t talk;         /* owned */
    weft_comm_t comm;         /* owned: of the setting that is measured; NULL: none */
    uint8_t *buffer;          /* owned; one message for each in flight */
    weft_request_t *requests; /* owned */
    char hosts[2][NAME_LEN];
    struct order order; /* the latest */
    char why[TUNE_TEXT_LEN];
};

static bool fail(struct tune_pair *pair, const char *what)
{
    snprintf(pair->why, sizeof(pair->why), "%s: %.560s", what, weft_error_text());
    return false;
}

int weft_tune_pair_rank(const struct tune_pair *pair)
{
    return pair->rank;
}

bool weft_tune_pair_is_local(const struct tune_pair *pair)
{
    return strcmp(pair->hosts[0], pair->hosts[1]) == 0;
}

const char *weft_tune_pair_host(const struct tune_pair *pair, int rank)
{
    return pair->hosts[rank];
}

const char *weft_tune_pair_why(const struct tune_pair *pair)
{
    return pair->why;
}

/* ---- one setting ---- */

static void set_env(enum tune_axis axis, const struct tune_values *values)
{
    static const enum weft_param params[TUNE_AXES] = {
        [TUNE_WINDOW] = WEFT_PARAM_WINDOW,
        [TUNE_CHUNK] = WEFT_PARAM_CHUNK,
        [TUNE_LANES] = WEFT_PARAM_LANES,
        [TUNE_STRATEGY] = WEFT_PARAM_STRATEGY,
    };
    const char *name = weft_param_info(params[axis])->env;
    char text[24];
    if (values->is_usual) {
        unsetenv(name);
        return;
    }
    if (axis == TUNE_STRATEGY) {
        snprintf(text, sizeof(text), "%s", weft_tune_strategy_name(values->value[axis]));
    } else {
        snprintf(text, sizeof(text), "%u", values->value[axis]);
    }
    setenv(name, text, 1);
}

static void apply(const struct tune_values *values)
{
    for (unsigned axis = 0; axis < TUNE_AXES; axis++) {
        set_env((enum tune_axis)axis, values);
    }
}

static bool join(struct tune_pair *pair)
{
    weft_config_t config = WEFT_CONFIG_INIT;
    config.start_timeout_ms = TIMEOUT_MS;
    config.timeout_ms = TIMEOUT_MS;
    if (weft_comm_create(&pair->order.id, pair->rank, 2, &config, &pair->comm) != WEFT_OK) {
        pair->comm = NULL;
        return fail(pair, "joining");
    }
    return true;
}

/* Both have what they need before either closes. */
static bool part(struct tune_pair *pair)
{
    bool is_fine = weft_control_barrier(pair->comm) == WEFT_OK || fail(pair, "parting");
    weft_comm_close(pair->comm);
    pair->comm = NULL;
    return is_fine;
}

static bool say(struct tune_pair *pair, uint64_t word, int tag)
{
    return weft_send(pair->comm, &word, sizeof(word), 1 - pair->rank, tag, NULL) == WEFT_OK ||
           fail(pair, "sending");
}

static bool hear(struct tune_pair *pair, uint64_t *word_p, int tag)
{
    weft_message_t message;
    return weft_recv(pair->comm, word_p, sizeof(*word_p), 1 - pair->rank, tag, &message, NULL) ==
               WEFT_OK ||
           fail(pair, "receiving");
}

static bool move_all(struct tune_pair *pair)
{
    for (unsigned i = 0; i < pair->spec.inflight; i++) {
        uint8_t *at = pair->buffer + (size_t)i * pair->spec.bytes;
        weft_status_t status = pair->rank == 0 ? weft_send(pair->comm, at, pair->spec.bytes, 1,
                                                           TAG_DATA, &pair->requests[i])
                                               : weft_recv(pair->comm, at, pair->spec.bytes, 0,
                                                           TAG_DATA, NULL, &pair->requests[i]);
        if (status != WEFT_OK) {
            return fail(pair, "a message");
        }
    }
    return weft_wait_all(pair->requests, (int)pair->spec.inflight, WEFT_NO_LIMIT) == WEFT_OK ||
           fail(pair, "a message");
}

/* Rank 0: one batch, timed from the first send to the answer. */
static bool run_batch(struct tune_pair *pair, double *gbs_p)
{
    uint64_t word = 0;
    if (!say(pair, 1, TAG_GO) || !hear(pair, &word, TAG_READY)) {
        return false;
    }
    uint64_t before_ns = weft_clock_ns();
    if (!move_all(pair) || !hear(pair, &word, TAG_ANSWER)) {
        return false;
    }
    uint64_t took_ns = weft_clock_ns() - before_ns;
    *gbs_p = (double)pair->spec.bytes * pair->spec.inflight / (double)(took_ns > 0 ? took_ns : 1);
    return true;
}

/* The first batch opens windows and learns rates; it counts for nothing but hopelessness. */
static bool run_batches(struct tune_pair *pair, uint64_t ms, double hopeless_gbs,
                        struct tune_point *point)
{
    uint64_t until_ns = weft_clock_after_ms(ms);
    double gbs;
    if (!run_batch(pair, &gbs)) {
        return false;
    }
    for (unsigned i = 0; i < BATCHES_LEAST || weft_clock_ns() < until_ns; i++) {
        if (!run_batch(pair, &gbs)) {
            return false;
        }
        if (point->sample_count < TUNE_SAMPLES_MAX) {
            point->samples[point->sample_count++] = (float)gbs;
        }
        if (gbs < hopeless_gbs) {
            break;
        }
    }
    return say(pair, 0, TAG_GO);
}

static bool serve_batches(struct tune_pair *pair)
{
    for (;;) {
        uint64_t word = 0;
        if (!hear(pair, &word, TAG_GO)) {
            return false;
        }
        if (word == 0) {
            return true;
        }
        if (!say(pair, 0, TAG_READY) || !move_all(pair) || !say(pair, 0, TAG_ANSWER)) {
            return false;
        }
    }
}

static bool send_order(struct tune_pair *pair)
{
    return weft_control_send(pair->talk, 1, TAG_ORDER, &pair->order, sizeof(pair->order)) ==
               WEFT_OK ||
           fail(pair, "telling rank 1");
}

bool weft_tune_pair_measure(struct tune_pair *pair, const struct tune_values *values, uint64_t ms,
                            double hopeless_gbs, struct tune_point *point)
{
    pair->order.is_end = false;
    pair->order.values = *values;
    apply(values);
    if (weft_id_create(NULL, &pair->order.id) != WEFT_OK) {
        return fail(pair, "making an id");
    }
    return send_order(pair) && join(pair) && run_batches(pair, ms, hopeless_gbs, point) &&
           part(pair);
}

bool weft_tune_pair_serve(struct tune_pair *pair, const char **text_p)
{
    for (;;) {
        if (weft_control_recv(pair->talk, 0, TAG_ORDER, &pair->order, sizeof(pair->order), NULL) !=
            WEFT_OK) {
            return fail(pair, "waiting for rank 0");
        }
        if (pair->order.is_end) {
            pair->order.body[BODY_LEN - 1] = '\0';
            *text_p = pair->order.body;
            return weft_control_barrier(pair->talk) == WEFT_OK || fail(pair, "parting");
        }
        apply(&pair->order.values);
        if (!join(pair) || !serve_batches(pair) || !part(pair)) {
            return false;
        }
    }
}

bool weft_tune_pair_finish(struct tune_pair *pair, const char *text)
{
    pair->order.is_end = true;
    snprintf(pair->order.body, sizeof(pair->order.body), "%s", text);
    return send_order(pair) &&
           (weft_control_barrier(pair->talk) == WEFT_OK || fail(pair, "parting"));
}

/* ---- the pair ---- */

static bool take_memory(struct tune_pair *pair)
{
    size_t len = pair->spec.bytes * pair->spec.inflight;
    void *memory;
    if (posix_memalign(&memory, 4096, len) != 0) {
        snprintf(pair->why, sizeof(pair->why), "no memory for %u messages of %zu bytes",
                 pair->spec.inflight, pair->spec.bytes);
        return false;
    }
    memset(memory, 0x5a, len); /* its pages must be there before the clock */
    pair->buffer = memory;
    pair->requests = weft_cli_alloc(pair->spec.inflight, sizeof(weft_request_t));
    return true;
}

static bool learn_hosts(struct tune_pair *pair)
{
    char name[NAME_LEN] = "";
    weft_topo_hostname(name);
    return weft_control_allgather(pair->talk, name, sizeof(name), pair->hosts) == WEFT_OK ||
           fail(pair, "meeting");
}

/* How many ranks a launcher says that there are. */
static bool is_launched(void)
{
    static const char *const names[] = {"WEFT_RANKS", "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE",
                                        "PMI_SIZE", "SLURM_STEP_NUM_TASKS"};
    for (size_t i = 0; i < WEFT_COUNT_OF(names); i++) {
        const char *value = getenv(names[i]);
        if (value != NULL && strtol(value, NULL, 10) > 1) {
            return true;
        }
    }
    return false;
}

static bool meet_launched(struct tune_pair *pair)
{
    int ranks = 0;
    if (weft_init(NULL, &pair->talk) != WEFT_OK) {
        pair->talk = NULL;
        return fail(pair, "joining the launcher's job");
    }
    weft_comm_rank(pair->talk, &pair->rank);
    weft_comm_ranks(pair->talk, &ranks);
    if (ranks != 2) {
        snprintf(pair->why, sizeof(pair->why),
                 "the launcher started %d ranks: tuning takes two, one on each host", ranks);
        return false;
    }
    return true;
}

/* Rank 1 of this host: it serves and ends. */
static _Noreturn void be_child(struct tune_pair *pair, pid_t parent, int id_fd)
{
    const char *text;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent ||
        read(id_fd, &pair->order.id, sizeof(pair->order.id)) != (ssize_t)sizeof(pair->order.id)) {
        _exit(WEFT_CLI_FAILED);
    }
    close(id_fd);
    pair->rank = 1;
    bool is_fine = join(pair);
    pair->talk = pair->comm;
    pair->comm = NULL;
    is_fine = is_fine && take_memory(pair) && learn_hosts(pair) &&
              weft_tune_pair_serve(pair, &text) && weft_comm_close(pair->talk) == WEFT_OK;
    _exit(is_fine ? WEFT_CLI_OK : WEFT_CLI_FAILED);
}

static bool meet_forked(struct tune_pair *pair)
{
    int ends[2];
    pid_t parent = getpid();
    if (pipe(ends) != 0 || (pair->child = fork()) < 0) {
        snprintf(pair->why, sizeof(pair->why), "no second rank: %s", strerror(errno));
        pair->child = 0;
        return false;
    }
    if (pair->child == 0) {
        close(ends[1]);
        be_child(pair, parent, ends[0]);
    }
    close(ends[0]);
    bool is_fine = weft_id_create(NULL, &pair->order.id) == WEFT_OK || fail(pair, "making an id");
    is_fine = is_fine && write(ends[1], &pair->order.id, sizeof(pair->order.id)) ==
                             (ssize_t)sizeof(pair->order.id);
    close(ends[1]);
    is_fine = is_fine && join(pair);
    pair->talk = pair->comm;
    pair->comm = NULL;
    return is_fine;
}

struct tune_pair *weft_tune_pair_open(const struct tune_pair_spec *spec, char why[TUNE_TEXT_LEN])
{
    struct tune_pair *pair = weft_cli_alloc(1, sizeof(*pair));
    pair->spec = *spec;
    setenv("WEFT_PATH", "tcp", 1);
    setenv("WEFT_PROFILE", "off", 1); /* an earlier one must not speak here */
    if (!(is_launched() ? meet_launched(pair) : meet_forked(pair)) || !take_memory(pair) ||
        !learn_hosts(pair)) {
        snprintf(why, TUNE_TEXT_LEN, "%s", pair->why);
        weft_tune_pair_close(pair);
        return NULL;
    }
    return pair;
}

/* A rank that failed may have left the other one waiting: closing tells it. */
void weft_tune_pair_close(struct tune_pair *pair)
{
    if (pair == NULL) {
        return;
    }
    weft_comm_close(pair->comm);
    weft_comm_close(pair->talk);
    if (pair->child > 0) {
        kill(pair->child, SIGKILL); /* it has nothing to finish any more */
        while (waitpid(pair->child, NULL, 0) < 0 && errno == EINTR) {
        }
    }
    free(pair->buffer);
    free(pair->requests);
    free(pair);
}
