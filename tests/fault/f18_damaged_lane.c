/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A relay between two ranks' data lane cuts it after a byte, or flips a bit. A lane that was cut is
 * dialled again, and nobody hears of it: every operation is exact, and done once. What is damaged, or
 * stays cut, is an error, soon, on both ranks; never wrong data, never a part of a message taken for
 * the whole. Both ranks are threads of one process, the relay (relay_lane.h) is a third.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fault/messages.h"
#include "fault/relay_lane.h"

#define SMALL_LEN 10
#define MIDDLE_LEN 3000 /* eager, and longer than what is waited for in the lane's buffer */
#define LONG_LEN 9000   /* announced */
#define MEM_LEN 3000
#define TAG 1
#define SOON_MS 3000 /* it must be over, with the time a damaged handshake may take */
#define PATH_MS "1s" /* a link that stays cut is lost */

/* ---- what the ranks say to each other ---- */

enum { WRONG = 1000 }; /* as a status: data that nobody sent */

static weft_status_t say(weft_comm_t comm, int to, int tag, size_t len)
{
    uint8_t data[LONG_LEN];
    messages_fill(data, len, len);
    return weft_send(comm, data, len, to, tag, NULL);
}

static int hear(weft_comm_t comm, int from, int tag, size_t len)
{
    uint8_t data[LONG_LEN + 1];
    weft_message_t message;
    weft_status_t status = weft_recv(comm, data, sizeof(data), from, tag, &message, NULL);
    return status == WEFT_OK && (message.len != len || message.tag != tag ||
                                 message.source != from || !messages_are_right(data, len, len))
               ? WRONG
               : (int)status;
}

/* Rank 1 first, then rank 0. */
static int both_ways(weft_comm_t comm, int rank, int tag, size_t len)
{
    int status = rank == 1 ? (int)say(comm, 0, tag, len) : hear(comm, 1, tag, len);
    if (status == WEFT_OK) {
        status = rank == 0 ? (int)say(comm, 1, tag, len) : hear(comm, 0, tag, len);
    }
    return status;
}

struct memory {
    uint64_t signal;
    uint8_t bytes[MEM_LEN];
};

/* Each puts with a signal, hears that the other has done so, and gets back what it put. */
static int one_sided(weft_comm_t comm, int rank, struct memory *memory, const weft_mem_t *other)
{
    uint8_t data[MEM_LEN], back[MEM_LEN];
    weft_status_t status;
    messages_fill(data, sizeof(data), (uint64_t)rank);
    status = weft_put_signal(comm, other, offsetof(struct memory, bytes), data, sizeof(data), other,
                             offsetof(struct memory, signal), 1);
    weft_status_t quiet = weft_quiet(comm);
    status = status == WEFT_OK ? quiet : status;
    int heard = status == WEFT_OK ? both_ways(comm, rank, TAG, 1) : (int)status;
    if (heard != WEFT_OK) {
        return heard;
    }
    status = weft_wait_signal(comm, &memory->signal, 1, 0);
    if (status != WEFT_OK || memory->signal != 1 ||
        !messages_are_right(memory->bytes, MEM_LEN, (uint64_t)(1 - rank))) {
        return status == WEFT_OK || status == WEFT_ERR_TIMEOUT ? WRONG : (int)status;
    }
    status = weft_get(comm, other, offsetof(struct memory, bytes), back, sizeof(back));
    quiet = weft_quiet(comm);
    status = status == WEFT_OK ? quiet : status;
    return status == WEFT_OK && memcmp(back, data, sizeof(back)) != 0 ? WRONG : (int)status;
}

typedef int (*talk_fn)(weft_comm_t comm, int rank, struct memory *memory, const weft_mem_t *mem);

static int talk(weft_comm_t comm, int rank, struct memory *memory, const weft_mem_t *mem)
{
    int status = both_ways(comm, rank, TAG, SMALL_LEN);
    status = status == WEFT_OK ? both_ways(comm, rank, TAG, MIDDLE_LEN) : status;
    status = status == WEFT_OK ? both_ways(comm, rank, TAG, LONG_LEN) : status;
    status = status == WEFT_OK ? one_sided(comm, rank, memory, &mem[1 - rank]) : status;
    status = status == WEFT_OK ? both_ways(comm, rank, TAG, 0) : status;
    return status == WEFT_OK ? both_ways(comm, rank, TAG_LAST, SMALL_LEN) : status;
}

/* Rank 0 waits for a word, not for a rank. */
static int talk_by_signal(weft_comm_t comm, int rank, struct memory *memory, const weft_mem_t *mem)
{
    uint8_t data[MEM_LEN] = {0};
    int status = both_ways(comm, rank, TAG, SMALL_LEN);
    if (status != WEFT_OK || rank == 0) {
        return status != WEFT_OK ? status
                                 : (int)weft_wait_signal(comm, &memory->signal, 1, WEFT_NO_LIMIT);
    }
    status = (int)weft_put_signal(comm, &mem[0], offsetof(struct memory, bytes), data, sizeof(data),
                                  &mem[0], offsetof(struct memory, signal), 1);
    return status == WEFT_OK ? (int)weft_quiet(comm) : status;
}

/* ---- jobs ---- */

#define WORKERS 16

#define STARTED 0
#define JOINED 1
#define TALKED 2
#define CLOSED 3

struct plan {
    const char *checksum;
    enum damage_kind kind;
    size_t first, step, count; /* of .at */
    talk_fn talk;
    uint32_t timeout_ms;
    bool is_prompt;       /* the end comes soon, and not by a deadline */
    const char *security; /* NULL: auth */
    uint32_t worker;
};

static struct damage damage_of(const struct plan *plan, uint32_t number)
{
    struct damage damage = {.kind = plan->kind, .direction = (int)(number % 2)};
    size_t place = number / 2;
    damage.at = plan->first + place * plan->step;
    damage.bit = (unsigned)(messages_mix(number) % 8);
    if (plan->kind == DAMAGE_FLIP_HEADER) {
        damage.at = place % 24;
        damage.bit = (unsigned)(messages_mix(number) % (8UL * WEFT_WIRE_DATA_LEN));
    }
    return damage;
}

/* What such a rank should not have got; NULL: all is as it should be. */
static const char *complaint(int rank, const struct plan *plan, int status, uint64_t ended_ns)
{
    uint64_t damaged_ns = atomic_load(&relay.damaged_ns);
    bool is_cut = relay.damage.kind == DAMAGE_CUT;
    bool is_hit = damaged_ns != 0 && relay.was_in_step && !relay.had_last_passed;
    if (status == WRONG) {
        return "nobody sent that";
    }
    if (status != WEFT_OK && (damaged_ns == 0 || (is_hit && is_cut && plan->is_prompt))) {
        return "nothing was wrong that could not be done again";
    }
    if (status == WEFT_OK && is_hit && !is_cut && (relay.damage.direction == UP || rank == 1)) {
        return "that should be an error";
    }
    if (plan->is_prompt && damaged_ns != 0 &&
        (status == WEFT_ERR_TIMEOUT ||
         ended_ns > damaged_ns + SOON_MS * JOB_MS_NS * JOB_SLOWNESS)) {
        return "too late";
    }
    return NULL;
}

static int judge(int rank, struct harness_shared *shared, const struct plan *plan, int status)
{
    static const char *const kinds[] = {"none", "cut", "end", "flip", "flip of a header"};
    uint64_t ended_ns = harness_now_ns();
    uint64_t damaged_ns = atomic_load(&relay.damaged_ns);
    const struct damage *damage = &relay.damage;
    const char *what = complaint(rank, plan, status, ended_ns);
    if (what == NULL) {
        return 0;
    }
    return harness_say(shared, rank, -1,
                       "%s %s at %zu, bit %u%s: rank %d got %s (%s) %.3f s after it: %s",
                       kinds[damage->kind], damage->direction == UP ? "up" : "down", damage->at,
                       damage->bit, relay.was_in_step ? "" : " (handshake)", rank,
                       status == WRONG ? "WRONG DATA" : weft_status_name((weft_status_t)status),
                       status == WEFT_OK || status == WRONG ? "" : weft_error_text(),
                       damaged_ns != 0 ? messages_seconds(damaged_ns, ended_ns) : 0.0, what);
}

/* A long message passed: could one on the path read it? Only where it is not encrypted. */
static int judge_secrecy(int rank, struct harness_shared *shared, const struct plan *plan)
{
    bool is_encrypted = plan->security != NULL && strcmp(plan->security, "encrypt") == 0;
    uint8_t data[LONG_LEN];
    bool is_read;
    messages_fill(data, LONG_LEN, LONG_LEN);
    is_read = memmem(relay.seen, relay.seen_len, data + LONG_LEN / 2, 24) != NULL;
    return is_read != is_encrypted
               ? 0
               : harness_say(shared, rank, -1, "a message %s be read on its way",
                             is_read ? "could" : "could not");
}

static int run_job(int rank, struct harness_shared *shared, const struct plan *plan,
                   uint32_t number)
{
    struct damage damage = damage_of(plan, number * WORKERS + plan->worker);
    weft_config_t config = job_config(2500, plan->timeout_ms);
    struct memory *memory = (struct memory *)(void *)messages_buffer(sizeof(*memory));
    weft_mem_t mine, mem[2];
    weft_comm_t comm;
    weft_id_t id;
    weft_status_t status = WEFT_OK;
    if (rank == 0) {
        status = relay_open(&damage, plan->security != NULL)
                     ? weft_id_create(&config, &job_board(shared)->id)
                     : WEFT_ERR_SYSTEM;
        atomic_store(&shared->word[STARTED], number + 1);
    } else if (!harness_wait_reach(&shared->word[STARTED], number + 1, MESSAGES_WAIT_MS)) {
        free(memory);
        return -1;
    }
    id = job_board(shared)->id;
    status = status == WEFT_OK ? weft_comm_create(&id, rank, 2, &config, &comm) : status;
    status = status == WEFT_OK ? weft_mem_register(comm, memory, sizeof(*memory), &mine) : status;
    status = status == WEFT_OK ? weft_control_allgather(comm, &mine, sizeof(mine), mem) : status;
    if (status != WEFT_OK) {
        free(memory);
        return harness_say(shared, rank, -1, "job %u: %s", number, weft_error_text());
    }
    atomic_store(&relay.is_on, 1); /* from now on every tcp connection is a lane */
    atomic_fetch_add(&shared->word[JOINED], 1);
    harness_wait_reach(&shared->word[JOINED], 2 * (number + 1), MESSAGES_WAIT_MS);
    int result = judge(rank, shared, plan, plan->talk(comm, rank, memory, mem));
    atomic_fetch_add(&shared->word[TALKED], 1);
    harness_wait_reach(&shared->word[TALKED], 2 * (number + 1), MESSAGES_WAIT_MS);
    weft_comm_close(comm);
    free(memory);
    atomic_fetch_add(&shared->word[CLOSED], 1);
    if (rank == 0) {
        harness_wait_reach(&shared->word[CLOSED], 2 * (number + 1), MESSAGES_WAIT_MS);
        relay_close();
        if (result == 0 && plan->kind == DAMAGE_NONE) {
            result = judge_secrecy(rank, shared, plan);
        }
    }
    return result;
}

static int body(int rank, struct harness_shared *shared, void *arg)
{
    const struct plan *plan = arg;
    int result = 0;
    if (rank == 0) {
        setenv("WEFT_PATH", "tcp", 1);
        setenv("WEFT_EAGER", "4K", 1);
        setenv("WEFT_LOG", "off", 1);
        setenv("WEFT_HANDSHAKE_TIMEOUT", "300ms", 1);
        setenv("WEFT_PATH_TIMEOUT", PATH_MS, 1);
        setenv("WEFT_CHECKSUM", plan->checksum, 1);
        setenv("WEFT_SECURITY", plan->security != NULL ? plan->security : "auth", 1);
        atomic_store(&shared->word[JOB_READY_WORD], 1);
    }
    harness_wait_for(&shared->word[JOB_READY_WORD], 1, MESSAGES_WAIT_MS);
    for (uint32_t job = 0; job * WORKERS + plan->worker < 2 * plan->count && result == 0; job++) {
        result = run_job(rank, shared, plan, job);
        if (result != 0) {
            atomic_store(&shared->word[JOB_ID_WORD], 1); /* the other one stops too */
        }
        if (atomic_load(&shared->word[JOB_ID_WORD]) != 0) {
            break;
        }
    }
    return result;
}

/* A lane that is lost is not judged at once: the jobs wait a while, so several run side by side. */
static void check(struct plan plan)
{
    struct plan plans[WORKERS];
    struct harness *harness[WORKERS];
    plan.count = plan.count > 8 ? plan.count / JOB_SLOWNESS : plan.count;
    for (uint32_t i = 0; i < WORKERS; i++) {
        plans[i] = plan;
        plans[i].worker = i;
        harness[i] = harness_start_threads(2, body, &plans[i]);
    }
    for (uint32_t i = 0; i < WORKERS; i++) {
        messages_wait(harness[i], 100000, "damage");
        messages_check_fine(harness[i], "damage");
        harness_close(harness[i]);
    }
}

#define PROMPT .talk = talk, .timeout_ms = 15000, .is_prompt = true
#define BY_DEADLINE .talk = talk, .timeout_ms = 400, .is_prompt = false

/* Bytes of the handshake: up about 260, down about 190. */
#define FIRST_FRAME 350

static void an_honest_relay_is_not_noticed(void **state)
{
    (void)state;
    check((struct plan){"off", DAMAGE_NONE, 0, 0, 4, PROMPT});
    check((struct plan){"on", DAMAGE_NONE, 0, 0, 4, PROMPT});
}

static void a_lane_that_is_cut_after_any_byte_is_not_noticed(void **state)
{
    (void)state;
    check((struct plan){"off", DAMAGE_CUT, FIRST_FRAME, 7, 40, PROMPT});
    check((struct plan){"off", DAMAGE_CUT, FIRST_FRAME + 300, 283, 60, PROMPT});
    check((struct plan){"on", DAMAGE_CUT, FIRST_FRAME, 811, 16, PROMPT});
}

static void a_lane_that_stays_cut_is_an_error(void **state)
{
    (void)state;
    check((struct plan){"off", DAMAGE_END, FIRST_FRAME, 911, 16, PROMPT});
}

static void a_damaged_header_is_never_accepted(void **state)
{
    (void)state;
    check((struct plan){"off", DAMAGE_FLIP_HEADER, 0, 0, 80, PROMPT});
}

static void with_checksums_no_damaged_byte_is_accepted(void **state)
{
    (void)state;
    check((struct plan){"on", DAMAGE_FLIP, FIRST_FRAME, 271, 64, PROMPT});
}

static void a_damaged_handshake_is_an_error_or_done_again(void **state)
{
    (void)state;
    check((struct plan){"on", DAMAGE_FLIP, 0, 29, 10, BY_DEADLINE});
    check((struct plan){"on", DAMAGE_CUT, 0, 31, 10, BY_DEADLINE});
}

/* The one who waits for the dialler, and the one who waits for nobody in particular. */
static void both_ranks_go_on_or_hear_of_it_soon(void **state)
{
    (void)state;
    check((struct plan){"on", DAMAGE_CUT, 110, 1, 1, .talk = talk, .timeout_ms = 6000,
                        .is_prompt = true});
    check((struct plan){"on", DAMAGE_CUT, 1500, 1, 1, .talk = talk_by_signal, .timeout_ms = 6000,
                        .is_prompt = true});
    check((struct plan){"on", DAMAGE_END, 1500, 1, 1, .talk = talk_by_signal, .timeout_ms = 6000,
                        .is_prompt = true});
}

#define SEALED(level) .talk = talk, .timeout_ms = 15000, .is_prompt = true, .security = (level)
/* Up to here the last message is still to come, in both directions. */
#define LAST_SEALED 12000

static void an_honest_relay_cannot_read_what_is_encrypted(void **state)
{
    (void)state;
    check((struct plan){"off", DAMAGE_NONE, 0, 0, 4, SEALED("integrity")});
    check((struct plan){"off", DAMAGE_NONE, 0, 0, 4, SEALED("encrypt")});
}

/* The lane that takes over has keys of its own, and what goes again is sealed anew. */
static void a_sealed_lane_that_is_cut_is_not_noticed(void **state)
{
    (void)state;
    check((struct plan){"off", DAMAGE_CUT, FIRST_FRAME, 347, 32, SEALED("encrypt")});
    check((struct plan){"off", DAMAGE_CUT, FIRST_FRAME, 7, 8, SEALED("integrity")});
}

static void no_damaged_byte_of_a_sealed_lane_is_accepted(void **state)
{
    (void)state;
    check((struct plan){"off", DAMAGE_FLIP, FIRST_FRAME, LAST_SEALED / 48, 46, SEALED("encrypt")});
    check(
        (struct plan){"off", DAMAGE_FLIP, FIRST_FRAME, LAST_SEALED / 48, 46, SEALED("integrity")});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_honest_relay_is_not_noticed),
        cmocka_unit_test(a_lane_that_is_cut_after_any_byte_is_not_noticed),
        cmocka_unit_test(a_lane_that_stays_cut_is_an_error),
        cmocka_unit_test(a_damaged_header_is_never_accepted),
        cmocka_unit_test(with_checksums_no_damaged_byte_is_accepted),
        cmocka_unit_test(an_honest_relay_cannot_read_what_is_encrypted),
        cmocka_unit_test(a_sealed_lane_that_is_cut_is_not_noticed),
        cmocka_unit_test(no_damaged_byte_of_a_sealed_lane_is_accepted),
        cmocka_unit_test(a_damaged_handshake_is_an_error_or_done_again),
        cmocka_unit_test(both_ranks_go_on_or_hear_of_it_soon),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
