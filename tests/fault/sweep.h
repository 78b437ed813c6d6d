/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Nth call of a function of the system fails in one of three ranks, for every N of a job's whole life: start,
 * two allreduces, close. Nobody crashes, hangs or leaks; the rank that it happens to gets an error that says so,
 * or does without; the others succeed or name that rank; and the same three processes then run a job without
 * failures. A test is a table of functions; its executable is linked so that the library's calls of them
 * come through here (see sweep_wrap in CMakeLists.txt).
 */
#ifndef WEFT_TESTS_FAULT_SWEEP_H
#define WEFT_TESTS_FAULT_SWEEP_H

#include "fault/messages.h"

#include <errno.h>

#define SWEEP_RANKS 3
#define SWEEP_START_MS 400
#define SWEEP_STRIDE 7 /* of the short form */
#define SWEEP_N_MAX 2000
#define SWEEP_AT_ONCE 3 /* jobs: most of them wait for a deadline most of the time */
#define SWEEP_NOT_ASKED ((weft_status_t)99)    /* rank 0 had no id for the others */
#define SWEEP_WRONG_RESULT ((weft_status_t)98) /* nobody may get this */
#define SWEEP_LARGE ((size_t)100000)

/* What can fail. Not every function is called by the library: a table says which are not, or a sweep that tests
 * nothing would pass. */
struct sweep_call {
    const char *name;
    int error;            /* errno of the failure */
    weft_status_t status; /* what the rank gets that cannot do without */
    const char *
        unused; /* on this path, or on "every" one; swept as soon as somebody calls it. NULL: used */
};

struct sweep_plan {
    const struct sweep_call *call;
    unsigned index; /* of the call in its table */
    const char *path, *join;
    int victim;
    int n;           /* the first that fails, counted from 0 */
    bool is_lasting; /* all after it fail too, until the job is closed */
};

/* ---- the calls ---- */

static _Atomic unsigned sweep_armed; /* index of the call + 1; 0: none */
static _Atomic int sweep_left;       /* this many still go well */
static _Atomic bool sweep_is_lasting;
static _Atomic unsigned sweep_failures;

/* For the wrappers of a test: does this call fail? Sets errno. */
static inline bool sweep_fails(unsigned index, int error)
{
    if (atomic_load(&sweep_armed) != index + 1) {
        return false;
    }
    int left = atomic_fetch_sub(&sweep_left, 1);
    if (left > 0 || (left < 0 && !atomic_load(&sweep_is_lasting))) {
        return false;
    }
    atomic_fetch_add(&sweep_failures, 1);
    errno = error;
    return true;
}

static inline void sweep_arm(const struct sweep_plan *plan)
{
    atomic_store(&sweep_left, plan->n);
    atomic_store(&sweep_is_lasting, plan->is_lasting);
    atomic_store(&sweep_armed, plan->index + 1);
}

static inline void sweep_disarm(void)
{
    atomic_store(&sweep_armed, 0);
}

/* ---- ranks ---- */

#define SWEEP_ID_WORDS 0 /* one per job: 1 the id is there, 2 there will be none */
#define SWEEP_THROUGH 2  /* ranks that are through with the first job */
#define SWEEP_FAILURES 3
#define SWEEP_RETURNED 4 /* one per job: ranks whose calls are over */

static inline weft_status_t sweep_start(int rank, struct harness_shared *shared, unsigned number,
                                        weft_comm_t *comm_p)
{
    /* The root's deadline comes first: it knows who is missing, on a busy machine too. */
    uint32_t start_ms = (rank == 0 ? SWEEP_START_MS : 2 * SWEEP_START_MS) * JOB_SLOWNESS;
    weft_config_t config = job_config(start_ms, 3000 * JOB_SLOWNESS);
    weft_id_t *id = (weft_id_t *)(void *)shared->scratch + number;
    weft_status_t status = WEFT_OK;
    if (rank == 0) {
        status = weft_id_create(&config, id);
        atomic_store(&shared->word[SWEEP_ID_WORDS + number], status == WEFT_OK ? 1 : 2);
    } else if (!harness_wait_reach(&shared->word[SWEEP_ID_WORDS + number], 1, MESSAGES_WAIT_MS) ||
               atomic_load(&shared->word[SWEEP_ID_WORDS + number]) != 1) {
        return SWEEP_NOT_ASKED;
    }
    if (status != WEFT_OK) {
        return status;
    }
    status = weft_comm_create(id, rank, shared->ranks, &config, comm_p);
    if (status != WEFT_OK && rank == 0) {
        weft_id_destroy(id); /* harmless when the start took it */
    }
    return status;
}

/* One small allreduce and one that needs memory between; the sums are looked at. */
static inline weft_status_t sweep_work(weft_comm_t comm, int rank, int32_t *in, int32_t *out)
{
    static const size_t counts[] = {4, SWEEP_LARGE};
    for (size_t k = 0; k < sizeof(counts) / sizeof(counts[0]); k++) {
        for (size_t i = 0; i < counts[k]; i++) {
            in[i] = (int32_t)i * (rank + 1);
        }
        weft_status_t status = weft_allreduce(comm, in, out, counts[k], WEFT_I32, WEFT_SUM, NULL);
        if (status != WEFT_OK) {
            return status;
        }
        for (size_t i = 0; i < counts[k]; i++) {
            if (out[i] != (int32_t)i * (SWEEP_RANKS * (SWEEP_RANKS + 1) / 2)) {
                return SWEEP_WRONG_RESULT;
            }
        }
    }
    return WEFT_OK;
}

/* said: what the first failure had to say. */
static inline weft_status_t sweep_job(int rank, struct harness_shared *shared, unsigned number,
                                      char said[HARNESS_TEXT_LEN])
{
    static int32_t in[SWEEP_LARGE], out[SWEEP_LARGE];
    weft_comm_t comm = NULL;
    weft_status_t status = sweep_start(rank, shared, number, &comm);
    bool is_open = status == WEFT_OK;
    status = is_open ? sweep_work(comm, rank, in, out) : status;
    snprintf(said, HARNESS_TEXT_LEN, "%s", status == WEFT_OK ? "" : weft_error_text());
    atomic_fetch_add(&shared->word[SWEEP_RETURNED + number], 1); /* closing is news too */
    harness_wait_reach(&shared->word[SWEEP_RETURNED + number], SWEEP_RANKS, MESSAGES_WAIT_MS);
    weft_status_t end = is_open ? weft_comm_close(comm) : WEFT_OK;
    if (status == WEFT_OK && end != WEFT_OK) {
        snprintf(said, HARNESS_TEXT_LEN, "closing: %s", weft_error_text());
    }
    return status != WEFT_OK ? status : end;
}

static inline int sweep_body(int rank, struct harness_shared *shared, void *arg)
{
    const struct sweep_plan *plan = arg;
    char said[HARNESS_TEXT_LEN];
    setenv("WEFT_LOG", "off", 0);
    setenv("WEFT_PATH", plan->path, 1);
    setenv("WEFT_JOIN", plan->join, 1);
    if (rank == plan->victim) {
        sweep_arm(plan);
    }
    weft_status_t status = sweep_job(rank, shared, 0, said);
    sweep_disarm();
    harness_say(shared, rank, 0, "%s: %s", weft_status_name(status), said);
    if (rank == plan->victim) {
        atomic_store(&shared->word[SWEEP_FAILURES], atomic_load(&sweep_failures));
    }
    atomic_fetch_add(&shared->word[SWEEP_THROUGH], 1);
    if (!harness_wait_reach(&shared->word[SWEEP_THROUGH], SWEEP_RANKS, MESSAGES_WAIT_MS)) {
        return harness_say(shared, rank, -1, "the others do not come through");
    }
    weft_status_t again = sweep_job(rank, shared, 1, said);
    return again == WEFT_OK ? (int)status
                            : harness_say(shared, rank, -1, "then, without failures: %s: %s",
                                          weft_status_name(again), said);
}

/* ---- the test ---- */
#ifdef CMOCKA_H_

static unsigned sweep_complaints; /* one run shows all of them */

/* "rank 1", or 1 in the list of those who did not come; of a root that is not known yet its address. */
static inline bool sweep_names(const char *text, int rank)
{
    const char *list = strstr(text, "did not join in time: ");
    if (rank == 0 &&
        (strstr(text, "of the root: ") != NULL || strstr(text, "127.0.0.1:") != NULL)) {
        return true;
    }
    if (list == NULL) {
        return messages_names(text, rank);
    }
    for (list = strchr(list, ':'); *list != '\0'; list++) {
        if ((*list == ' ' || *list == ',') && strtol(list + 1, NULL, 10) == rank &&
            list[1] >= '0') {
            return true;
        }
    }
    return false;
}

static inline void sweep_complain(struct harness *harness, const struct sweep_plan *plan,
                                  const char *what)
{
    char said[2048] = "";
    for (int rank = 0; rank < SWEEP_RANKS; rank++) {
        const struct harness_result *result = harness_result(harness, rank);
        size_t used = strlen(said);
        snprintf(said + used, sizeof(said) - used, "\n  rank %d (status %d, signal %d): %s", rank,
                 result->status, result->signal, result->text);
    }
    sweep_complaints++;
    print_error("%s %d%s of rank %d fails (%s, %s): %s%s\n", plan->call->name, plan->n,
                plan->is_lasting ? " and all later" : "", plan->victim, plan->path, plan->join,
                what, said);
}

static inline void sweep_check_victim(struct harness *harness, const struct sweep_plan *plan)
{
    const struct harness_result *result = harness_result(harness, plan->victim);
    if (result->status == WEFT_OK || plan->is_lasting) {
        return; /* who can get nothing at all may have nothing left to find the right words with */
    }
    if (result->status != (int)plan->call->status) {
        sweep_complain(harness, plan, "the rank it happens to does not say what it lacks");
    }
    if (plan->call->error == EMFILE && strstr(result->text, "limit ") == NULL) {
        sweep_complain(harness, plan, "the rank it happens to does not tell the limit");
    }
}

/* Who hears that a rank was lost before it opened its communicator hears that it is gone, and no more. That is true
 * if the rank it names failed too. */
static inline bool sweep_names_a_lost_one(struct harness *harness, int rank)
{
    const struct harness_result *result = harness_result(harness, rank);
    for (int lost = 0; lost < SWEEP_RANKS; lost++) {
        if (lost != rank && result->status == WEFT_ERR_PEER && messages_names(result->text, lost) &&
            harness_result(harness, lost)->status != WEFT_OK) {
            return true;
        }
    }
    return false;
}

/* The rank it happens to may be through with its calls when another still needs it: then only that one fails, and
 * names it. */
static inline void sweep_check_others(struct harness *harness, const struct sweep_plan *plan)
{
    for (int rank = 0; rank < SWEEP_RANKS; rank++) {
        const struct harness_result *result = harness_result(harness, rank);
        if (rank == plan->victim || plan->is_lasting || result->status == WEFT_OK ||
            result->status == (int)SWEEP_NOT_ASKED) {
            continue;
        }
        if (!sweep_names(result->text, plan->victim) && !sweep_names_a_lost_one(harness, rank)) {
            sweep_complain(harness, plan, "another rank does not name it");
        }
    }
}

/* true: the call was made, and failed */
static inline bool sweep_judge(struct harness *harness, const struct sweep_plan *plan)
{
    if (!harness_wait(harness, 20000 * JOB_SLOWNESS)) {
        sweep_complain(harness, plan, harness_error(harness));
    }
    bool has_failed = atomic_load(&harness_shared(harness)->word[SWEEP_FAILURES]) != 0;
    for (int rank = 0; rank < SWEEP_RANKS; rank++) {
        const struct harness_result *result = harness_result(harness, rank);
        if (result->status == (int)SWEEP_WRONG_RESULT) { /* whatever failed, and however often */
            sweep_complain(harness, plan,
                           "a rank got a wrong result and was told that it is right");
        }
        if (!result->is_returned || result->status < 0) {
            sweep_complain(harness, plan, "a rank does not come through");
        }
        if (!has_failed && result->status != WEFT_OK) {
            sweep_complain(harness, plan, "nothing failed, but");
        }
    }
    sweep_check_victim(harness, plan);
    sweep_check_others(harness, plan);
    if (!harness_check_clean(harness)) {
        sweep_complain(harness, plan, harness_error(harness));
    }
    harness_close(harness);
    return has_failed;
}

/* Every stride-th call of one rank until there are no more of them; returns how many failed. */
static inline unsigned sweep_rank(struct sweep_plan plan, int stride)
{
    struct sweep_plan plans[SWEEP_AT_ONCE];
    struct harness *jobs[SWEEP_AT_ONCE];
    unsigned failed = 0;
    bool is_more = true;
    for (int n = plan.n; is_more && n < SWEEP_N_MAX;) {
        for (int i = 0; i < SWEEP_AT_ONCE; i++, n += stride) {
            plans[i] = plan;
            plans[i].n = n;
            jobs[i] = harness_start(SWEEP_RANKS, sweep_body, &plans[i]);
        }
        for (int i = 0; i < SWEEP_AT_ONCE; i++) {
            is_more = sweep_judge(jobs[i], &plans[i]);
            failed += is_more;
        }
    }
    return failed;
}

static const struct sweep_call *sweep_calls; /* the table, and how many there are */
static unsigned sweep_count;
static bool sweep_is_long;

static inline struct sweep_plan sweep_plan(unsigned index, const char *path)
{
    return (struct sweep_plan){.call = &sweep_calls[index],
                               .index = index,
                               .path = path,
                               .join = strcmp(path, "tcp") == 0 ? "direct" : "auto"};
}

static inline void sweep_path(void **state)
{
    sweep_complaints = 0;
    for (unsigned index = 0; index < sweep_count; index++) {
        struct sweep_plan plan = sweep_plan(index, *state);
        unsigned failed = 0;
        for (unsigned way = 0; way < 4; way++) {
            plan.victim = (int)way / 2;
            plan.is_lasting = way % 2 == 1;
            plan.n = sweep_is_long ? 0 : (int)(way + index) % 2; /* not always the same ones */
            failed += sweep_rank(plan, sweep_is_long ? 1 : SWEEP_STRIDE);
        }
        print_message("%s over %s: %u failures\n", plan.call->name, plan.path, failed);
        const char *unused = plan.call->unused;
        bool is_unused =
            unused != NULL && (strcmp(unused, "every") == 0 || strcmp(unused, plan.path) == 0);
        if ((failed == 0) != is_unused) {
            fail_msg("%s: %u calls came through here", plan.call->name, failed);
        }
    }
    assert_int_equal(sweep_complaints, 0);
}

/* NAME N VICTIM lasting|once PATH: one run, as a complaint tells it. */
static inline int sweep_replay(char **argv)
{
    for (unsigned index = 0; index < sweep_count; index++) {
        if (strcmp(sweep_calls[index].name, argv[0]) == 0) {
            struct sweep_plan plan = sweep_plan(index, argv[4]);
            plan.n = (int)strtol(argv[1], NULL, 10);
            plan.victim = (int)strtol(argv[2], NULL, 10);
            plan.is_lasting = strcmp(argv[3], "lasting") == 0;
            struct harness *harness = harness_start(SWEEP_RANKS, sweep_body, &plan);
            print_message("it %s\n", sweep_judge(harness, &plan) ? "failed" : "was not called");
            return sweep_complaints != 0;
        }
    }
    return 2;
}

static inline int sweep_main(int argc, char **argv, const struct sweep_call *calls, unsigned count)
{
    static char shm[] = "shm", tcp[] = "tcp";
    const struct CMUnitTest tests[] = {
        {"nth_call_fails_over_shared_memory", sweep_path, NULL, NULL, shm},
        {"nth_call_fails_over_tcp", sweep_path, NULL, NULL, tcp},
    };
    sweep_calls = calls;
    sweep_count = count;
    sweep_is_long = argc == 2 && strcmp(argv[1], "--long") == 0;
    return argc == 6 ? sweep_replay(argv + 1) : cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
#endif
