/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random programs against the rule they must obey. A program has phases. In each, every rank
 * sends a list of messages that all ranks can compute, and receives as many as are sent to it, by
 * receives that are exact or wild, in one of several styles. Which receive gets which message
 * depends on time, so no result is predicted. It is checked afterwards that
 *
 *   - every message was received once, with its bytes, source, tag and length,
 *   - no message overtook: if receive a was posted before b, both got messages of one rank, and a
 *     could have taken b's, then a's was sent before b's.
 *
 * Receives are chosen so that every order of arrival can finish: all of a rank's receives in a
 * phase are of one kind, or exact ones are posted before the wild ones that take the rest, or
 * everything comes from one rank with one tag, so that any receive takes any message.
 *
 * MODEL_SEED=n runs one program; MODEL_SEEDS=n runs that many.
 */
#include "unit/api/messages.h"

#define RANKS_MAX 3
#define SENDS_FEW 24
#define SENDS_MAX 200 /* more than any credit or queue holds */
#define RECVS_MAX (RANKS_MAX * SENDS_MAX)
#define PHASES 6
#define TAGS 4
#define TAG_NOBODY_SENDS 99

struct sending {
    int to, tag;
    size_t len;
    uint64_t seed;   /* of its bytes */
    bool is_matched; /* by the check, at its receiver */
};

struct receiving {
    int from, tag;
    size_t room_len;
    uint8_t *room;
    weft_message_t message;
    int order; /* of the message among its sender's, found by the check */
};

enum style { BEGIN_ALL, IN_A_GROUP, BLOCKING, PROBING, STYLES };
enum kind { EXACT, ANY_RANK, ANY_OF_RANK, ANYTHING, EXACT_THEN_ANYTHING, EVERY_KIND };

/* One rank's view of one phase. */
struct phase {
    weft_comm_t comm;
    int rank, ranks;
    uint64_t random;
    int send_counts[RANKS_MAX];
    struct sending sends[RANKS_MAX][SENDS_MAX];
    int recv_count;
    struct receiving recvs[RECVS_MAX];
    uint8_t *bytes[SENDS_MAX];
    weft_request_t requests[SENDS_MAX + RECVS_MAX]; /* sends first */
};

static uint64_t program_seed; /* set before the ranks are forked */

static int pick(uint64_t *random, int count)
{
    *random = mix(*random);
    return (int)(*random % (uint64_t)count);
}

static size_t pick_len(uint64_t *random)
{
    int kind = pick(random, 100);
    int below = kind < 55 ? 64 : kind < 80 ? 9000 : kind < 97 ? 150000 : 1 << 20;
    return (size_t)pick(random, below);
}

/* ---- the program ---- */

/* is_lone: whatever comes to a rank comes from one rank with one tag. */
static void make_sends(struct phase *phase, uint64_t seed, bool is_lone)
{
    for (int source = 0; source < phase->ranks; source++) {
        uint64_t random = mix(seed + (uint64_t)source);
        phase->send_counts[source] = pick(&random, pick(&random, 8) == 0 ? SENDS_MAX : SENDS_FEW);
        for (int i = 0; i < phase->send_counts[source]; i++) {
            struct sending *sending = &phase->sends[source][i];
            sending->to = is_lone ? (source + 1) % phase->ranks : pick(&random, phase->ranks);
            sending->tag = is_lone ? 0 : pick(&random, TAGS);
            sending->len = pick_len(&random);
            sending->seed = mix(random);
        }
    }
}

static void shuffle(struct receiving *recvs, int count, uint64_t *random)
{
    for (int i = count - 1; i > 0; i--) {
        int k = pick(random, i + 1);
        struct receiving moved = recvs[i];
        recvs[i] = recvs[k];
        recvs[k] = moved;
    }
}

/* The receive for this message, or another: of the kind that this phase has here. */
static void make_recv(struct phase *phase, enum kind kind, int source, int tag)
{
    struct receiving *recv = &phase->recvs[phase->recv_count++];
    bool is_any_rank = kind == ANY_RANK || kind == ANYTHING;
    bool is_any_tag = kind == ANY_OF_RANK || kind == ANYTHING;
    if (kind == EVERY_KIND) {
        is_any_rank = pick(&phase->random, 2) == 0;
        is_any_tag = pick(&phase->random, 2) == 0;
    }
    recv->from = is_any_rank ? WEFT_ANY_SOURCE : source;
    recv->tag = is_any_tag ? WEFT_ANY_TAG : tag;
}

/* One for each message that will come. */
static void make_recvs(struct phase *phase, enum kind kind)
{
    bool is_both = kind == EXACT_THEN_ANYTHING;
    int wilds = 0;
    for (int source = 0; source < phase->ranks; source++) {
        for (int i = 0; i < phase->send_counts[source]; i++) {
            const struct sending *sending = &phase->sends[source][i];
            if (sending->to != phase->rank) {
                continue;
            }
            if (is_both && pick(&phase->random, 2) == 0) {
                wilds++;
            } else {
                make_recv(phase, is_both ? EXACT : kind, source, sending->tag);
            }
        }
    }
    shuffle(phase->recvs, phase->recv_count, &phase->random);
    for (int i = 0; i < wilds; i++) {
        make_recv(phase, ANYTHING, WEFT_ANY_SOURCE, WEFT_ANY_TAG);
    }
}

static bool could_take(const struct receiving *recv, int source, int tag)
{
    return (recv->from == WEFT_ANY_SOURCE || recv->from == source) &&
           (recv->tag == WEFT_ANY_TAG || recv->tag == tag);
}

/* For whatever may come. */
static void make_rooms(struct phase *phase)
{
    for (int r = 0; r < phase->recv_count; r++) {
        struct receiving *recv = &phase->recvs[r];
        for (int source = 0; source < phase->ranks; source++) {
            for (int i = 0; i < phase->send_counts[source]; i++) {
                const struct sending *sending = &phase->sends[source][i];
                if (sending->to == phase->rank && could_take(recv, source, sending->tag) &&
                    sending->len > recv->room_len) {
                    recv->room_len = sending->len;
                }
            }
        }
        recv->room = make_room(recv->room_len);
    }
    for (int i = 0; i < phase->send_counts[phase->rank]; i++) {
        const struct sending *sending = &phase->sends[phase->rank][i];
        phase->bytes[i] = make_bytes(sending->seed, sending->len);
    }
}

/* ---- running it ---- */

static weft_status_t begin_send(struct phase *phase, int i, bool is_grouped)
{
    const struct sending *sending = &phase->sends[phase->rank][i];
    return weft_send(phase->comm, phase->bytes[i], sending->len, sending->to, sending->tag,
                     is_grouped ? NULL : &phase->requests[i]);
}

static weft_status_t begin_recv(struct phase *phase, int r, weft_request_t *request_p)
{
    struct receiving *recv = &phase->recvs[r];
    return weft_recv(phase->comm, recv->room, recv->room_len, recv->from, recv->tag, &recv->message,
                     request_p);
}

/* Begins a receive and thinks better of it: undone, it leaves no trace; else it is the receive. */
static int hesitate(struct phase *phase, int r, int rank, struct harness_shared *shared)
{
    weft_request_t *request = &phase->requests[SENDS_MAX + r], decoy = NULL;
    uint8_t byte = GUARD_BYTE;
    weft_status_t status;
    int is_done = 0;
    EXPECT_OK(weft_recv(phase->comm, &byte, 1, WEFT_ANY_SOURCE, TAG_NOBODY_SENDS, NULL, &decoy));
    EXPECT_OK(begin_recv(phase, r, request));
    for (int i = pick(&phase->random, 20); i > 0 && is_done == 0; i--) {
        EXPECT_OK(weft_test(request, &is_done));
    }
    if (is_done == 0) {
        status = weft_cancel(request);
        EXPECT(status == WEFT_OK || (status == WEFT_ERR_BUSY && *request != NULL));
        if (status == WEFT_OK) {
            EXPECT(is_untouched(phase->recvs[r].room, phase->recvs[r].room_len));
            EXPECT_OK(begin_recv(phase, r, request));
        }
    }
    EXPECT_OK(weft_cancel(&decoy));
    EXPECT(decoy == NULL && byte == GUARD_BYTE);
    return 0;
}

/* Sends and receives in random turns, each in its order. */
static int begin_everything(struct phase *phase, bool is_grouped, int rank,
                            struct harness_shared *shared)
{
    int sends = phase->send_counts[phase->rank], sent = 0, posted = 0;
    weft_message_t message;
    while (sent < sends || posted < phase->recv_count) {
        int turn = pick(&phase->random, 16);
        if (turn == 0 && !is_grouped && posted < phase->recv_count) {
            EXPECT_PASS(hesitate(phase, posted++, rank, shared));
        } else if (turn == 1) {
            weft_status_t status =
                weft_probe(phase->comm, WEFT_ANY_SOURCE, WEFT_ANY_TAG, 0, &message);
            EXPECT(status == WEFT_OK || status == WEFT_ERR_TIMEOUT);
        } else if (turn % 2 == 0 && sent < sends) {
            EXPECT_OK(begin_send(phase, sent++, is_grouped));
        } else if (turn % 2 == 1 && posted < phase->recv_count) {
            weft_request_t *request_p = &phase->requests[SENDS_MAX + posted];
            EXPECT_OK(begin_recv(phase, posted++, is_grouped ? NULL : request_p));
        }
    }
    return 0;
}

static int receive_blocking(struct phase *phase, bool is_probing, int rank,
                            struct harness_shared *shared)
{
    weft_message_t seen;
    for (int i = 0; i < phase->send_counts[phase->rank]; i++) {
        EXPECT_OK(begin_send(phase, i, false));
    }
    for (int r = 0; r < phase->recv_count; r++) {
        struct receiving *recv = &phase->recvs[r];
        if (!is_probing) {
            EXPECT_OK(begin_recv(phase, r, NULL));
            continue;
        }
        EXPECT_OK(weft_probe(phase->comm, recv->from, recv->tag, WAIT_MS, &seen));
        EXPECT(seen.len <= recv->room_len && could_take(recv, seen.source, seen.tag));
        EXPECT_OK(weft_recv(phase->comm, recv->room, seen.len, seen.source, seen.tag,
                            &recv->message, NULL));
        EXPECT(memcmp(&seen, &recv->message, sizeof(seen)) == 0);
    }
    return 0;
}

/* Whatever is left, in one of the ways to wait. */
static int end_everything(struct phase *phase, int rank, struct harness_shared *shared)
{
    const int count = SENDS_MAX + RECVS_MAX;
    uint64_t deadline_ns = harness_now_ns() + WAIT_MS * UINT64_C(1000000);
    int way = pick(&phase->random, 3), index = 0, is_done;
    while (way == 0 && index >= 0) {
        EXPECT_OK(weft_wait_any(phase->requests, count, WAIT_MS, &index));
    }
    for (int left = 1; way == 1 && left > 0 && harness_now_ns() < deadline_ns;) {
        left = 0;
        for (int i = 0; i < count; i++) {
            EXPECT_OK(weft_test(&phase->requests[i], &is_done));
            left += is_done == 0;
        }
    }
    EXPECT_OK(weft_wait_all(phase->requests, count, WAIT_MS));
    for (int i = 0; i < count; i++) {
        EXPECT(phase->requests[i] == NULL);
    }
    return 0;
}

static int run_phase(struct phase *phase, enum style style, int rank, struct harness_shared *shared)
{
    if (style == BEGIN_ALL) {
        EXPECT_PASS(begin_everything(phase, false, rank, shared));
    } else if (style == IN_A_GROUP) {
        EXPECT_OK(weft_group_begin(phase->comm));
        EXPECT_PASS(begin_everything(phase, true, rank, shared));
        EXPECT_OK(weft_group_end(phase->comm));
    } else {
        EXPECT_PASS(receive_blocking(phase, style == PROBING, rank, shared));
    }
    return end_everything(phase, rank, shared);
}

/* ---- the check ---- */

/* The first message of its sender that this can be; equal ones are in order, or the rule breaks. */
static int find_message(struct phase *phase, const struct receiving *recv)
{
    const weft_message_t *message = &recv->message;
    if (message->source < 0 || message->source >= phase->ranks) {
        return -1;
    }
    for (int i = 0; i < phase->send_counts[message->source]; i++) {
        struct sending *sending = &phase->sends[message->source][i];
        if (!sending->is_matched && sending->to == phase->rank && sending->tag == message->tag &&
            sending->len == message->len && are_bytes(sending->seed, recv->room, sending->len)) {
            sending->is_matched = true;
            return i;
        }
    }
    return -1;
}

static int check_phase(struct phase *phase, int rank, struct harness_shared *shared)
{
    weft_message_t message;
    for (int b = 0; b < phase->recv_count; b++) {
        struct receiving *recv = &phase->recvs[b];
        recv->order = find_message(phase, recv);
        EXPECT(recv->order >= 0); /* nobody sent this, or it came twice */
        EXPECT(could_take(recv, recv->message.source, recv->message.tag));
        EXPECT(are_guards_whole(recv->room, recv->room_len));
        EXPECT(is_untouched(recv->room + recv->message.len, recv->room_len - recv->message.len));
        for (int a = 0; a < b; a++) {
            const struct receiving *before = &phase->recvs[a];
            EXPECT(before->message.source != recv->message.source ||
                   !could_take(before, recv->message.source, recv->message.tag) ||
                   before->order < recv->order); /* no overtaking */
        }
    }
    EXPECT(weft_probe(phase->comm, WEFT_ANY_SOURCE, WEFT_ANY_TAG, 0, &message) == WEFT_ERR_TIMEOUT);
    return 0;
}

static void free_phase(struct phase *phase)
{
    for (int r = 0; r < phase->recv_count; r++) {
        free_room(phase->recvs[r].room);
    }
    for (int i = 0; i < phase->send_counts[phase->rank]; i++) {
        free(phase->bytes[i]);
    }
    free(phase);
}

/* ---- programs ---- */

static int run_program(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    for (int number = 0; number < PHASES; number++) {
        uint64_t seed = mix(program_seed * 1000 + (uint64_t)number);
        struct phase *phase = allocate(sizeof(*phase));
        bool is_lone = seed % 4 == 0;
        enum style style;
        int result;
        phase->comm = comm;
        phase->rank = rank;
        phase->ranks = shared->ranks;
        phase->random = mix(seed ^ (uint64_t)(rank + 1) << 56);
        make_sends(phase, seed, is_lone);
        make_recvs(phase, is_lone ? EVERY_KIND : (enum kind)pick(&phase->random, EVERY_KIND));
        make_rooms(phase);
        style = (enum style)pick(&phase->random, STYLES);
        result = run_phase(phase, style, rank, shared);
        result = result == 0 ? check_phase(phase, rank, shared) : result;
        EXPECT_PASS(result);
        EXPECT_OK(weft_control_barrier(comm)); /* or wild receives would take the next one's */
        free_phase(phase);
    }
    return 0;
}

static void random_programs_lose_and_reorder_nothing(void **state)
{
    const char *one = getenv("MODEL_SEED"), *many = getenv("MODEL_SEEDS");
    uint64_t first = one != NULL ? strtoull(one, NULL, 10) : 1;
    uint64_t count = one != NULL ? 1 : many != NULL ? strtoull(many, NULL, 10) : 20;
    (void)state;
    for (program_seed = first; program_seed < first + count; program_seed++) {
        snprintf(run_note, sizeof(run_note), ", MODEL_SEED=%llu", (unsigned long long)program_seed);
        run_ways(1 << program_seed % 4, 2 + (int)(program_seed / 4 % 2), run_program);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_programs_lose_and_reorder_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
