/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that make different calls: all of them hear ERR_MISMATCH and of both calls, whoever came first, over
 * every path, for short and for long data. A call that needed nobody may end well; the next one says it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fault/collectives.h"

#define RANKS_MAX 5
#define MOST ((size_t)1 << 20) /* bytes */
#define TIMEOUT_MS 8000
#define HEARD_MS 3000 /* a wait of 0.5 s, then a question through the tree */

#define TURN 0
#define CAME 1
#define RETURNED 2
#define READY 3

struct call {
    weft_coll_t coll;
    size_t count;
    weft_dtype_t dtype;
    weft_redop_t op;
    int root;
    size_t pieces[RANKS_MAX]; /* all 0: equal ones, of `count` */
    bool sends_nothing;       /* and expects `pieces` */
};

/* Instead of the odd call: one of the control plane, which has an order with the others. */
enum control { CONTROL_NONE, CONTROL_BARRIER, CONTROL_SPLIT, CONTROL_DUPLICATE };

struct plan {
    const char *path;
    int ranks;
    struct call usual, odd;
    enum control control;
    int odd_rank;
    bool is_odd_first; /* the odd one comes before the others; else after them */
    bool is_fresh;     /* these are the first calls of all */
    bool is_begun;     /* with requests, two in flight: the odd one has them in the other order */
    const char *words[4]; /* what the text must say */
};

/* ---- ranks ---- */

static weft_status_t begin(weft_comm_t comm, const struct call *call, uint8_t *data,
                           weft_request_t *request_p)
{
    static const size_t nothing[RANKS_MAX];
    weft_call_t spelled = WEFT_CALL_INIT;
    spelled.coll = call->coll;
    spelled.count = call->count;
    spelled.dtype = call->dtype;
    spelled.op = call->op;
    spelled.root = call->root;
    spelled.in = data;
    spelled.out = data + MOST;
    if (call->sends_nothing) {
        spelled.in_counts = nothing;
        spelled.out_counts = call->pieces;
    } else if (call->pieces[0] != 0) {
        spelled.in_counts = call->coll == WEFT_ALLGATHER ? NULL : call->pieces;
        spelled.out_counts = call->coll == WEFT_REDUCE_SCATTER ? NULL : call->pieces;
    }
    return weft_collective(comm, &spelled, request_p);
}

/* Both calls in this rank's order. */
static weft_status_t call_both(weft_comm_t comm, const struct plan *plan, bool is_odd,
                               uint8_t *data)
{
    weft_request_t requests[2] = {NULL, NULL};
    weft_status_t status = begin(comm, is_odd ? &plan->odd : &plan->usual, data, &requests[0]);
    status = status == WEFT_OK
                 ? begin(comm, is_odd ? &plan->usual : &plan->odd, data + 2 * MOST, &requests[1])
                 : status;
    weft_status_t end = weft_wait_all(requests, 2, WEFT_NO_LIMIT);
    return status != WEFT_OK ? status : end;
}

static weft_status_t call_control(weft_comm_t comm, enum control control)
{
    weft_comm_t other = NULL;
    switch (control) {
    case CONTROL_SPLIT:
        return weft_comm_split(comm, 0, 0, &other);
    case CONTROL_DUPLICATE:
        return weft_comm_duplicate(comm, &other);
    default:
        return weft_control_barrier(comm);
    }
}

static weft_status_t call_until_it_fails(weft_comm_t comm, const struct plan *plan, int rank,
                                         uint8_t *data)
{
    bool is_odd = rank == plan->odd_rank;
    weft_status_t status;
    if (is_odd && plan->control != CONTROL_NONE) {
        status = call_control(comm, plan->control);
    } else if (plan->is_begun) {
        status = call_both(comm, plan, is_odd, data);
    } else {
        status = begin(comm, is_odd ? &plan->odd : &plan->usual, data, NULL);
    }
    for (int i = 0; status == WEFT_OK && i < 3; i++) {
        status = weft_barrier(comm, NULL); /* its part was done without the others */
    }
    return status;
}

/* Mine is after those of others, or before. */
static uint32_t turn_of(const struct plan *plan, int rank)
{
    bool is_odd = rank == plan->odd_rank;
    return is_odd == plan->is_odd_first ? 1 : 2;
}

static int body(int rank, struct harness_shared *shared, void *arg)
{
    const struct plan *plan = arg;
    uint8_t *data = messages_buffer(4 * MOST);
    weft_comm_t comm;
    weft_status_t status = messages_join(rank, shared, plan->path, TIMEOUT_MS, &comm);
    status = status == WEFT_OK && !plan->is_fresh ? weft_barrier(comm, NULL) : status;
    if (status != WEFT_OK) {
        free(data);
        return harness_say(shared, rank, -1, "could not start: %s", weft_error_text());
    }
    atomic_fetch_add(&shared->word[READY], 1);
    harness_wait_reach(&shared->word[TURN], turn_of(plan, rank), MESSAGES_WAIT_MS);
    job_calls(rank, shared);
    atomic_fetch_add(&shared->word[CAME], 1);
    status = call_until_it_fails(comm, plan, rank, data);
    job_returned(rank, shared, status);
    weft_status_t after = messages_final_status(comm);
    atomic_fetch_add(&shared->word[RETURNED], 1);
    harness_wait_for(&shared->word[RETURNED], (uint32_t)plan->ranks, MESSAGES_WAIT_MS);
    job_close(rank, shared, comm);
    free(data);
    return after == status ? (int)status : -1;
}

/* ---- the test ---- */

static void describe(const struct plan *plan, char *text, size_t room)
{
    snprintf(
        text, room, "%s %s %s of %zu, root %d against %s %s %s of %zu, root %d of rank %d, %s%s",
        weft_coll_name(plan->usual.coll), weft_dtype_name(plan->usual.dtype),
        weft_redop_name(plan->usual.op), plan->usual.count, plan->usual.root,
        weft_coll_name(plan->odd.coll), weft_dtype_name(plan->odd.dtype),
        weft_redop_name(plan->odd.op), plan->odd.count, plan->odd.root, plan->odd_rank,
        plan->is_odd_first ? "which comes first, over " : "which comes last, over ", plan->path);
}

static void judge(struct harness *harness, const struct plan *plan, uint64_t since_ns)
{
    char what[256];
    describe(plan, what, sizeof(what));
    for (int rank = 0; rank < plan->ranks; rank++) {
        const struct job_report *report = job_report(harness, rank);
        const struct harness_result *result = harness_result(harness, rank);
        if (report->status != WEFT_ERR_MISMATCH || result->status != WEFT_ERR_MISMATCH) {
            fail_msg("%s: rank %d got (and the communicator has %d) %s", what, rank, result->status,
                     result->text);
        }
        for (int i = 0; i < 4 && plan->words[i] != NULL; i++) {
            if (strstr(result->text, plan->words[i]) == NULL) {
                fail_msg("%s: rank %d does not hear \"%s\": %s", what, rank, plan->words[i],
                         result->text);
            }
        }
        if (report->returned_ns > since_ns + HEARD_MS * JOB_MS_NS * JOB_SLOWNESS) {
            fail_msg("%s: rank %d heard after %.3f s", what, rank,
                     messages_seconds(since_ns, report->returned_ns));
        }
    }
}

static void check(struct plan plan)
{
    struct harness *harness = harness_start(plan.ranks, body, &plan);
    struct harness_shared *shared = harness_shared(harness);
    uint32_t first = plan.is_odd_first ? 1 : (uint32_t)plan.ranks - 1;
    uint64_t since_ns;
    collectives_await(harness, &shared->word[READY], (uint32_t)plan.ranks, plan.path);
    atomic_store(&shared->word[TURN], 1);
    collectives_await(harness, &shared->word[CAME], first, plan.path);
    messages_let_pass(5); /* so that they stand in their calls, mostly; right either way */
    since_ns = harness_now_ns();
    atomic_store(&shared->word[TURN], 2);
    assert_harness(harness, harness_wait(harness, 2 * MESSAGES_WAIT_MS));
    judge(harness, &plan, since_ns);
    assert_harness(harness, harness_check_clean(harness));
    harness_close(harness);
}

/* Over both paths; the odd one is first over the one and last over the other, which changes each time. */
static void check_both(struct call usual, struct call odd, const char *const words[4])
{
    static unsigned turn;
    struct plan plan = {.ranks = 3, .usual = usual, .odd = odd};
    memcpy(plan.words, words, sizeof(plan.words));
    for (unsigned i = 0; i < 2; i++) {
        plan.is_fresh = (i + turn) % 4 == 3;
        plan.path = messages_paths[i];
        plan.is_odd_first = (i + turn) % 2 == 0;
        plan.odd_rank = (i + turn / 2) % 2 == 0 ? 0 : 2;
        check(plan);
    }
    turn++;
}
#define WORDS(...) ((const char *const[4]){__VA_ARGS__})

static void different_collectives(void **state)
{
    struct call allreduce = {WEFT_ALLREDUCE, 4, WEFT_F32, WEFT_SUM, 0, {0}, false};
    struct call barrier = {WEFT_BARRIER, 0, WEFT_U8, WEFT_SUM, 0, {0}, false};
    struct call allgather = {WEFT_ALLGATHER, 4, WEFT_F32, WEFT_SUM, 0, {0}, false};
    struct call broadcast = {WEFT_BROADCAST, 4, WEFT_F32, WEFT_SUM, 1, {0}, false};
    struct call alltoall = {WEFT_ALLTOALL, 4, WEFT_F32, WEFT_SUM, 0, {0}, false};
    (void)state;
    check_both(allreduce, barrier, WORDS("allreduce", "barrier"));
    check_both(allgather, alltoall, WORDS("allgather", "alltoall"));
    check_both(broadcast, allreduce, WORDS("broadcast", "allreduce"));
    allreduce.count = allgather.count = 60000;
    check_both(allreduce, allgather, WORDS("allreduce", "allgather"));
    check_both(allgather, barrier, WORDS("allgather", "barrier"));
}

/* Also in the very first call, where making ready is a call of the control plane itself. */
static void collectives_against_control_calls(void **state)
{
    static const struct {
        enum control control;
        const char *words;
    } controls[] = {{CONTROL_BARRIER, "control barrier #"},
                    {CONTROL_SPLIT, "weft_comm_split"},
                    {CONTROL_DUPLICATE, "weft_comm_duplicate"}};
    struct call usual = {WEFT_ALLREDUCE, 1000, WEFT_F32, WEFT_SUM, 0, {0}, false};
    (void)state;
    for (unsigned i = 0; i < 12; i++) {
        struct plan plan = {.ranks = 3,
                            .path = messages_paths[i / 3 % 2],
                            .usual = usual,
                            .odd = usual,
                            .control = controls[i % 3].control,
                            .odd_rank = i % 2 == 0 ? 2 : 0,
                            .is_odd_first = i / 2 % 2 == 0,
                            .is_fresh = i >= 6,
                            .words = {"allreduce", controls[i % 3].words}};
        if (!plan.is_fresh) {
            plan.words[2] = "f32 x 1000";
        }
        check(plan);
    }
}

static void different_counts(void **state)
{
    static const size_t counts[][2] = {{1, 2}, {17, 1000}, {12345, 12346}, {200000, 3}};
    (void)state;
    for (weft_coll_t coll = WEFT_ALLREDUCE; coll < WEFT_BARRIER; coll++) {
        size_t i = (size_t)coll % 4, pieces = coll == WEFT_ALLREDUCE ? 1 : 4;
        struct call usual = {coll, counts[i][0] / pieces + 1, WEFT_F32, WEFT_SUM, 1, {0}, false},
                    odd = usual;
        char one[32], other[32];
        odd.count = counts[i][1] / pieces + 3;
        snprintf(one, sizeof(one), "%zu", usual.count);
        snprintf(other, sizeof(other), "%zu", odd.count);
        check_both(usual, odd, WORDS(weft_coll_name(coll), one, other));
    }
}

static void different_dtypes(void **state)
{
    (void)state;
    for (weft_coll_t coll = WEFT_ALLREDUCE; coll < WEFT_BARRIER; coll++) {
        struct call usual = {coll, coll % 2 == 0 ? 10 : 40000, WEFT_F32, WEFT_SUM, 0, {0}, false},
                    odd = usual;
        odd.dtype = WEFT_I32; /* as long: no length gives it away */
        check_both(usual, odd, WORDS(weft_coll_name(coll), "f32", "i32"));
    }
}

static void different_ops(void **state)
{
    static const weft_coll_t colls[] = {WEFT_ALLREDUCE, WEFT_REDUCE_SCATTER, WEFT_REDUCE};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct call usual = {colls[i], i == 1 ? 30000 : 9, WEFT_I64, WEFT_MAX, 1, {0}, false},
                    odd = usual;
        odd.op = WEFT_MIN;
        check_both(usual, odd, WORDS(weft_coll_name(colls[i]), "max", "min"));
    }
}

static void different_roots(void **state)
{
    static const weft_coll_t colls[] = {WEFT_BROADCAST, WEFT_REDUCE, WEFT_GATHER, WEFT_SCATTER};
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        struct call usual = {colls[i], i % 2 == 0 ? 9 : 50000, WEFT_I32, WEFT_SUM, 1, {0}, false},
                    odd = usual;
        odd.root = 2;
        check_both(usual, odd, WORDS(weft_coll_name(colls[i]), "1", "2"));
    }
}

/* Pieces of different sizes, and one rank has other sizes in mind. */
static void different_pieces(void **state)
{
    static const weft_coll_t colls[] = {WEFT_ALLGATHER, WEFT_REDUCE_SCATTER, WEFT_ALLTOALL};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct call usual = {colls[i], 0, WEFT_I32, WEFT_SUM, 0, {40, 40, 40}, false}, odd = usual;
        usual.count = odd.count = 40;
        odd.pieces[1] = 41; /* as many as the others say, but for this one */
        check_both(usual, odd, WORDS(weft_coll_name(colls[i])));
        usual.pieces[1] = 30000;
        odd.pieces[1] = 29999;
        if (colls[i] != WEFT_ALLTOALL) { /* where every row is a column, too */
            check_both(usual, odd, WORDS(weft_coll_name(colls[i])));
        }
    }
}

/* Of a gather and a scatter a rank has nothing where the others have something, or the other way; the odd one
 * is the root, or not. */
static void nothing_against_something(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 16; i++) {
        weft_coll_t coll = i % 2 == 0 ? WEFT_GATHER : WEFT_SCATTER;
        bool is_odd_empty = i / 4 % 2 == 0;
        struct plan plan = {.ranks = 3,
                            .path = messages_paths[i / 2 % 2],
                            .odd_rank = 2,
                            .is_odd_first = i / 8 == 0,
                            .words = {weft_coll_name(coll), "x 0", "x 100"}};
        int root = (i + i / 4) % 4 < 2 ? 2 : 1;
        plan.usual =
            (struct call){coll, is_odd_empty ? 100 : 0, WEFT_F32, WEFT_SUM, root, {0}, false};
        plan.odd =
            (struct call){coll, is_odd_empty ? 0 : 100, WEFT_F32, WEFT_SUM, root, {0}, false};
        check(plan);
    }
}

/* Nobody sends anything, and one rank expects it nevertheless. */
static void empty_pieces_against_others(void **state)
{
    struct call usual = {WEFT_ALLTOALL, 0, WEFT_I32, WEFT_SUM, 0, {0}, true}, odd = usual;
    (void)state;
    odd.pieces[1] = 10;
    check_both(usual, odd, WORDS("alltoall"));
    usual.pieces[1] = 10; /* the others do, of rank 1 that sends nothing */
    odd.pieces[1] = 0;
    check_both(usual, odd, WORDS("alltoall"));
}

/* Two in flight; one rank has begun them in the other order. */
static void different_orders(void **state)
{
    struct plan plan = {.ranks = 3, .is_begun = true, .words = {"allreduce", "allgather"}};
    (void)state;
    for (int i = 0; i < 8; i++) {
        size_t count = i / 4 == 0 ? 5 : 50000;
        plan.path = messages_paths[i % 2];
        plan.is_odd_first = i / 2 % 2 == 0;
        plan.odd_rank = i % 3;
        plan.usual = (struct call){WEFT_ALLREDUCE, count, WEFT_F32, WEFT_SUM, 0, {0}, false};
        plan.odd = (struct call){WEFT_ALLGATHER, count, WEFT_F32, WEFT_SUM, 0, {0}, false};
        check(plan);
    }
}

/* Five ranks, the odd one in the middle of whatever tree there is. */
static void far_away_ranks_hear_it_too(void **state)
{
    struct plan plan = {.ranks = 5, .words = {"allreduce", "f64", "f32"}};
    (void)state;
    for (int i = 0; i < 10; i++) {
        plan.path = messages_paths[i % 2];
        plan.is_odd_first = i % 4 < 2;
        plan.odd_rank = i / 2;
        plan.usual =
            (struct call){WEFT_ALLREDUCE, i < 5 ? 8 : 60000, WEFT_F64, WEFT_SUM, 0, {0}, false};
        plan.odd = plan.usual;
        plan.odd.dtype = WEFT_F32;
        check(plan);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(different_collectives),
        cmocka_unit_test(different_counts),
        cmocka_unit_test(different_dtypes),
        cmocka_unit_test(different_ops),
        cmocka_unit_test(different_roots),
        cmocka_unit_test(different_pieces),
        cmocka_unit_test(different_orders),
        cmocka_unit_test(far_away_ranks_hear_it_too),
        cmocka_unit_test(nothing_against_something),
        cmocka_unit_test(empty_pieces_against_others),
        cmocka_unit_test(collectives_against_control_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
