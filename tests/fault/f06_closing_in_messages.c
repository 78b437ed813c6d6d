/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank leaves, by exit(0) or by closing early: who needs it hears "closed" and its number at
 * once, not at a deadline; what it sent before it closed is received all the same; who does not
 * need it goes on.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "fault/messages.h"

#define TAG 5
#define LEN ((size_t)1 << 20)

#define INSIDE 0
#define GO 1
#define RETURNED 2

enum deed { DEED_RECV, DEED_SEND, DEED_WAIT, DEED_GET, DEED_PUT, DEED_PROBE, DEEDS };
enum end { END_EXIT, END_CLOSE };

static const char *const deed_names[DEEDS] = {"recv", "send", "wait", "get", "put", "probe"};

struct plan {
    const char *path;
    enum deed deed;
    enum end end;
    int ranks, victim;
};

/* ---- who waits for it ---- */

static weft_status_t do_deed(weft_comm_t comm, const struct plan *plan, const weft_mem_t *mem)
{
    static uint8_t data[LEN];
    weft_message_t message;
    weft_request_t request;
    weft_status_t status = WEFT_ERR_INVALID;
    switch (plan->deed) {
    case DEED_RECV:
        return weft_recv(comm, data, LEN, plan->victim, TAG, NULL, NULL);
    case DEED_SEND:
        return weft_send(comm, data, LEN, plan->victim, TAG, NULL);
    case DEED_PROBE:
        return weft_probe(comm, plan->victim, TAG, MESSAGES_TIMEOUT_MS, &message);
    case DEED_WAIT:
        status = weft_recv(comm, data, LEN, plan->victim, TAG, NULL, &request);
        return status == WEFT_OK ? weft_wait(&request, WEFT_NO_LIMIT) : status;
    case DEED_GET: /* over and over: the last one stands when its target leaves */
    case DEED_PUT:
        do {
            status = plan->deed == DEED_GET ? weft_get(comm, mem, 0, data, LEN)
                                            : weft_put(comm, mem, 0, data, LEN);
            status = status == WEFT_OK ? weft_quiet(comm) : status;
        } while (status == WEFT_OK);
        return status;
    case DEEDS:
        break;
    }
    return status;
}

static int leave(struct harness_shared *shared, const struct plan *plan, weft_comm_t comm)
{
    if (!harness_wait_for(&shared->word[GO], 1, MESSAGES_WAIT_MS)) {
        return -1;
    }
    if (plan->end == END_EXIT) {
        exit(0); /* without closing */
    }
    job_close(plan->victim, shared, comm);
    return 0;
}

static int body(int rank, struct harness_shared *shared, void *arg)
{
    static uint8_t memory[LEN];
    const struct plan *plan = arg;
    weft_comm_t comm;
    weft_mem_t mine, mem[8];
    weft_status_t status = messages_join(rank, shared, plan->path, MESSAGES_TIMEOUT_MS, &comm);
    status = status == WEFT_OK ? weft_mem_register(comm, memory, LEN, &mine) : status;
    status = status == WEFT_OK ? weft_control_allgather(comm, &mine, sizeof(mine), mem) : status;
    if (status != WEFT_OK) {
        return harness_say(shared, rank, -1, "could not start: %s", weft_error_text());
    }
    atomic_fetch_add(&shared->word[INSIDE], 1);
    if (rank == plan->victim) {
        return leave(shared, plan, comm);
    }
    job_calls(rank, shared);
    job_returned(rank, shared, do_deed(comm, plan, &mem[plan->victim]));
    atomic_fetch_add(&shared->word[RETURNED], 1);
    harness_wait_reach(&shared->word[RETURNED], (uint32_t)shared->ranks - 1, MESSAGES_WAIT_MS);
    job_close(rank, shared, comm);
    return 0;
}

static void check(struct plan plan)
{
    char what[96];
    snprintf(what, sizeof(what), "%s over %s, rank %d of %d %s", deed_names[plan.deed], plan.path,
             plan.victim, plan.ranks, plan.end == END_EXIT ? "exits" : "closes");
    struct harness *harness = harness_start(plan.ranks, body, &plan);
    struct harness_shared *shared = harness_shared(harness);
    assert_harness(harness,
                   harness_wait_for(&shared->word[INSIDE], (uint32_t)plan.ranks, MESSAGES_WAIT_MS));
    messages_let_pass(5); /* so that calls stand, most of the time; right either way */
    struct messages_verdict verdict = {WEFT_ERR_PEER, plan.victim, "closed", harness_now_ns()};
    atomic_store(&shared->word[GO], 1);
    messages_wait(harness, MESSAGES_WAIT_MS, what);
    for (int rank = 0; rank < plan.ranks; rank++) {
        if (rank != plan.victim) {
            messages_check_verdict(harness, rank, &verdict, what);
        }
    }
    assert_harness(harness, harness_check_clean(harness));
    harness_close(harness);
}

static void check_all(enum end end, int victim)
{
    for (size_t path = 0; path < MESSAGES_PATHS; path++) {
        for (enum deed deed = 0; deed < DEED_PROBE; deed++) {
            check((struct plan){messages_paths[path], deed, end, 3, victim});
        }
    }
}

static void exit_in_the_middle_is_told_as_closed(void **state)
{
    (void)state;
    check_all(END_EXIT, 2);
    check_all(END_EXIT, 0);
}

static void early_close_is_told_as_closed(void **state)
{
    (void)state;
    check_all(END_CLOSE, 1);
    check_all(END_CLOSE, 0);
}

static void a_probe_is_ended_too(void **state)
{
    (void)state;
    for (size_t path = 0; path < MESSAGES_PATHS; path++) {
        check((struct plan){messages_paths[path], DEED_PROBE, END_EXIT, 3, 1});
        check((struct plan){messages_paths[path], DEED_PROBE, END_CLOSE, 3, 1});
    }
}

/* ---- its last words ---- */

struct words {
    const char *path;
    bool knows;     /* they have spoken before */
    bool is_root;   /* the one who leaves */
    unsigned count; /* messages */
    size_t len;     /* of the longest */
    bool is_late;   /* the other receives when the process is gone; else meanwhile */
};

/* Short and long ones in turn, none longer than what is sent without being asked for. */
static size_t word_len(const struct words *words, unsigned i)
{
    return i % 3 == 0 ? words->len : i % 3 == 1 ? words->len / 7 : i % 50;
}

static weft_status_t speak(weft_comm_t comm, int to, const struct words *words)
{
    uint8_t *data = messages_buffer(words->len + 64);
    weft_status_t status = WEFT_OK;
    for (unsigned i = 0; i < words->count && status == WEFT_OK; i++) {
        size_t len = word_len(words, i);
        messages_fill(data, len, i);
        status = weft_send(comm, data, len, to, TAG, NULL);
        memset(data, 0xee, len); /* it is ours again */
    }
    free(data);
    return status;
}

static int listen_to(weft_comm_t comm, int rank, int from, struct harness_shared *shared,
                     const struct words *words)
{
    uint8_t *data = messages_buffer(words->len + 64);
    weft_message_t message = {0};
    weft_status_t status = WEFT_OK;
    unsigned i;
    for (i = 0; status == WEFT_OK; i++) {
        status = weft_recv(comm, data, words->len + 64, from, TAG, &message, NULL);
        if (status == WEFT_OK &&
            (message.len != word_len(words, i) || !messages_are_right(data, message.len, i))) {
            free(data);
            return harness_say(shared, rank, -1, "message %u is wrong, %zu bytes", i, message.len);
        }
    }
    free(data);
    if (i != words->count + 1 || status != WEFT_ERR_PEER) {
        return harness_say(shared, rank, -1, "%u of %u messages came, then %s: %s", i - 1,
                           words->count, weft_status_name(status), weft_error_text());
    }
    return 0;
}

static int words_body(int rank, struct harness_shared *shared, void *arg)
{
    const struct words *words = arg;
    int speaker = words->is_root ? 0 : 1;
    uint8_t byte = 0;
    weft_comm_t comm;
    weft_status_t status = messages_join(rank, shared, words->path, MESSAGES_TIMEOUT_MS, &comm);
    if (status == WEFT_OK && words->knows) {
        status = rank == speaker ? weft_recv(comm, &byte, 1, 1 - rank, 1, NULL, NULL)
                                 : weft_send(comm, &byte, 1, 1 - rank, 1, NULL);
    }
    if (status != WEFT_OK) {
        return harness_say(shared, rank, -1, "could not start: %s", weft_error_text());
    }
    atomic_fetch_add(&shared->word[INSIDE], 1);
    if (rank == speaker) {
        harness_wait_for(&shared->word[INSIDE], 2, MESSAGES_WAIT_MS);
        status = speak(comm, 1 - rank, words);
        harness_say(shared, rank, 0, "%s", weft_error_text());
        job_close(rank, shared, comm);
        return (int)status;
    }
    if (words->is_late) {
        harness_wait_for(&shared->word[GO], 1, MESSAGES_WAIT_MS);
    }
    int result = listen_to(comm, rank, speaker, shared, words);
    job_close(rank, shared, comm);
    return result;
}

static void check_words(struct words words)
{
    char what[96];
    snprintf(what, sizeof(what), "%u messages of up to %zu bytes over %s, %s%s%s", words.count,
             words.len, words.path, words.knows ? "known, " : "strangers, ",
             words.is_late ? "late" : "at once", words.is_root ? ", from the root" : "");
    struct harness *harness = harness_start(2, words_body, &words);
    int speaker = words.is_root ? 0 : 1;
    if (!harness_wait_rank(harness, speaker, MESSAGES_WAIT_MS)) {
        fail_msg("%s: %s", what, harness_error(harness));
    }
    atomic_store(&harness_shared(harness)->word[GO], 1);
    messages_wait(harness, MESSAGES_WAIT_MS, what);
    messages_check_fine(harness, what);
    const struct job_report *report = job_report(harness, speaker);
    if (report->closed_ns - report->closing_ns > JOB_CLOSE_NS * JOB_SLOWNESS) {
        fail_msg("%s: closed in %.3f s", what,
                 messages_seconds(report->closing_ns, report->closed_ns));
    }
    harness_close(harness);
}

static void check_many_words(bool knows, bool is_root, bool is_late)
{
    for (size_t path = 0; path < MESSAGES_PATHS; path++) {
        struct words words = {messages_paths[path], knows, is_root, 1, 8, is_late};
        check_words(words);
        words.count = 30;
        words.len = 4000;
        check_words(words);
        words.count = is_late ? 8 : 600; /* more than is sent unasked, if it is heard */
        words.len = 30000;
        check_words(words);
    }
}

static void what_was_sent_before_the_close_is_received(void **state)
{
    (void)state;
    check_many_words(true, true, false);
    check_many_words(true, false, false);
    check_many_words(true, true, true);
    check_many_words(true, false, true);
    check_many_words(false, false, false);
    check_many_words(false, true, false);
}

static void also_when_the_root_has_not_called_anything_yet(void **state)
{
    (void)state;
    check_many_words(false, false, true);
}

/* A leaf that has not called anything has nobody who serves it: then closing says what is lost. */
static int unheard_body(int rank, struct harness_shared *shared, void *path)
{
    uint8_t byte = 7;
    weft_comm_t comm;
    weft_status_t status = messages_join(rank, shared, path, MESSAGES_TIMEOUT_MS, &comm);
    if (status != WEFT_OK) {
        return harness_say(shared, rank, -1, "could not start: %s", weft_error_text());
    }
    atomic_fetch_add(&shared->word[INSIDE], 1);
    harness_wait_for(&shared->word[INSIDE], 2, MESSAGES_WAIT_MS);
    if (rank == 1) {
        harness_wait_for(&shared->word[GO], 1, MESSAGES_WAIT_MS);
        status = weft_recv(comm, &byte, 1, 0, TAG, NULL, NULL);
        harness_say(shared, rank, 0, "%s", weft_error_text());
        weft_comm_close(comm);
        return status == WEFT_ERR_PEER ? 0 : -1;
    }
    status = weft_send(comm, &byte, 1, 1, TAG, NULL);
    status = status == WEFT_OK ? weft_comm_close(comm) : status;
    harness_say(shared, rank, 0, "%s", weft_error_text());
    return status == WEFT_ERR_TIMEOUT && strstr(weft_error_text(), "rank 1") != NULL ? 0 : -1;
}

static void a_close_whose_messages_were_not_taken_says_so(void **state)
{
    (void)state;
    for (size_t path = 0; path < MESSAGES_PATHS; path++) {
        struct harness *harness = harness_start(2, unheard_body, (void *)messages_paths[path]);
        assert_true(harness_wait_rank(harness, 0, MESSAGES_WAIT_MS));
        atomic_store(&harness_shared(harness)->word[GO], 1);
        messages_wait(harness, MESSAGES_WAIT_MS, messages_paths[path]);
        messages_check_fine(harness, messages_paths[path]);
        harness_close(harness);
    }
}

/* ---- closing towards one that does not listen ---- */

static int deaf_body(int rank, struct harness_shared *shared, void *arg)
{
    uint8_t data[4096] = {0};
    weft_comm_t comm;
    weft_status_t status = messages_join(rank, shared, arg, MESSAGES_TIMEOUT_MS, &comm);
    status = status == WEFT_OK ? weft_send(comm, data, 1, 1 - rank, 1, NULL) : status;
    status = status == WEFT_OK ? weft_recv(comm, data, 1, 1 - rank, 1, NULL, NULL) : status;
    if (status != WEFT_OK) {
        return harness_say(shared, rank, -1, "could not start: %s", weft_error_text());
    }
    atomic_fetch_add(&shared->word[INSIDE], 1);
    harness_wait_for(&shared->word[GO], 1, MESSAGES_WAIT_MS);
    for (int i = 0; i < 8 && status == WEFT_OK; i++) {
        status = weft_send(comm, data, sizeof(data), 1 - rank, 1, NULL);
    }
    job_close(rank, shared, comm);
    return (int)status;
}

static void closing_does_not_wait_for_a_stopped_rank(void **state)
{
    (void)state;
    for (size_t path = 0; path < MESSAGES_PATHS; path++) {
        struct harness *harness = harness_start(2, deaf_body, (void *)messages_paths[path]);
        struct harness_shared *shared = harness_shared(harness);
        assert_harness(harness, harness_wait_for(&shared->word[INSIDE], 2, MESSAGES_WAIT_MS));
        assert_harness(harness, harness_stop(harness, 1));
        atomic_store(&shared->word[GO], 1);
        assert_harness(harness, harness_wait_rank(harness, 0, MESSAGES_WAIT_MS));
        const struct job_report *report = job_report(harness, 0);
        assert_int_equal(harness_result(harness, 0)->status, 0);
        if (report->closed_ns - report->closing_ns > JOB_CLOSE_NS * JOB_SLOWNESS) {
            fail_msg("over %s: closed in %.3f s", messages_paths[path],
                     messages_seconds(report->closing_ns, report->closed_ns));
        }
        harness_close(harness);
    }
}

/* ---- who does not need it ---- */

static weft_status_t play(weft_comm_t comm, int rank)
{
    static uint8_t data[LEN];
    weft_status_t status = WEFT_OK;
    for (uint64_t round = 0; round < 20 && status == WEFT_OK; round++) {
        size_t len = round % 2 == 0 ? LEN : 100;
        if (((uint64_t)rank + round) % 2 == 0) {
            messages_fill(data, len, round);
            status = weft_send(comm, data, len, 1 - rank, TAG, NULL);
        } else {
            status = weft_recv(comm, data, len, 1 - rank, TAG, NULL, NULL);
            status = status == WEFT_OK && !messages_are_right(data, len, round) ? WEFT_ERR_PROTOCOL
                                                                                : status;
        }
    }
    return status;
}

static int others_body(int rank, struct harness_shared *shared, void *arg)
{
    uint8_t byte;
    weft_comm_t comm;
    if (messages_join(rank, shared, arg, MESSAGES_TIMEOUT_MS, &comm) != WEFT_OK) {
        return harness_say(shared, rank, -1, "could not join: %s", weft_error_text());
    }
    weft_status_t status = WEFT_OK;
    if (rank < 2) {
        weft_status_t closed = weft_recv(comm, &byte, 1, 2, TAG, NULL, NULL);
        status = play(comm, rank);
        harness_say(shared, rank, 0, "%d, then %s", (int)closed, weft_error_text());
        status = closed == WEFT_ERR_PEER ? status : WEFT_ERR_INVALID;
        atomic_fetch_add(&shared->word[RETURNED], 1);
        harness_wait_for(&shared->word[RETURNED], 2, MESSAGES_WAIT_MS);
    }
    weft_comm_close(comm);
    return (int)status;
}

static void those_who_do_not_need_it_go_on(void **state)
{
    (void)state;
    for (size_t path = 0; path < MESSAGES_PATHS; path++) {
        struct harness *harness = harness_start(3, others_body, (void *)messages_paths[path]);
        messages_wait(harness, MESSAGES_WAIT_MS, messages_paths[path]);
        messages_check_fine(harness, messages_paths[path]);
        harness_close(harness);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exit_in_the_middle_is_told_as_closed),
        cmocka_unit_test(early_close_is_told_as_closed),
        cmocka_unit_test(a_probe_is_ended_too),
        cmocka_unit_test(what_was_sent_before_the_close_is_received),
        cmocka_unit_test(also_when_the_root_has_not_called_anything_yet),
        cmocka_unit_test(a_close_whose_messages_were_not_taken_says_so),
        cmocka_unit_test(closing_does_not_wait_for_a_stopped_rank),
        cmocka_unit_test(those_who_do_not_need_it_go_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
