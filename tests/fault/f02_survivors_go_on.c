/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks die, the survivors shrink and go on: with the same verdict on all of them, whoever died, the root of the
 * control tree too, several at once, one after the other, and while the others shrink.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fault/messages.h"

#include <poll.h>
#include <sys/mman.h>

#define RANKS 8
#define TEXT_LEN 256
#define LIMIT_MS                                                                                   \
    (UINT64_C(1000) * JOB_SLOWNESS) /* from the kill to the first sum without the dead */

#define AT_WORK 0 /* + age: how many ranks have summed with the communicator of that age */
#define SHRINKING 16
#define DONE 17

struct wave {
    int victims[RANKS];
    int count;
};

struct plan {
    const char *path;
    struct wave waves[RANKS]; /* killed together, when all who are left sum without those before */
    int wave_count;
    bool is_during_shrink; /* the second wave dies while the others ask who goes on */
    int stopped; /* stands still while the others get over the first wave; 0: nobody does */
};

struct story {
    uint32_t number[RANKS]; /* of the verdict */
    char verdict[RANKS][TEXT_LEN];
    uint64_t mended_ns[RANKS];
};

static struct story *stories; /* [RANKS], in memory that ranks and test share */

/* ---- ranks ---- */

static int64_t all_but(const struct plan *plan, int waves)
{
    int64_t mask = (1 << RANKS) - 1;
    for (int wave = 0; wave < waves; wave++) {
        for (int i = 0; i < plan->waves[wave].count; i++) {
            mask &= ~(INT64_C(1) << plan->waves[wave].victims[i]);
        }
    }
    return mask;
}

/* Each rank adds its bit: as many as there are ranks, those who live among them. */
static bool is_right(const struct plan *plan, int64_t sum, int ranks)
{
    int64_t living = all_but(plan, plan->wave_count);
    return (sum & living) == living && __builtin_popcountll((uint64_t)sum) == ranks;
}

/* Sums until it fails, or until the test says that it is enough: then all stop at the same sum. false: one was
 * wrong. */
static bool work(const struct plan *plan, int number, weft_comm_t comm,
                 struct harness_shared *shared, weft_status_t *status_p)
{
    int64_t out[64] = {0};
    bool has_said = false;
    int ranks = 0;
    weft_comm_ranks(comm, &ranks);
    do {
        int64_t in[64] = {INT64_C(1) << number};
        in[1] = atomic_load(&shared->word[DONE]);
        in[63] = in[0];
        *status_p = weft_allreduce(comm, in, out, 64, WEFT_I64, WEFT_SUM, NULL);
        if (*status_p == WEFT_OK && (!is_right(plan, out[0], ranks) || out[63] != out[0])) {
            return false;
        }
        if (*status_p == WEFT_OK && !has_said) {
            has_said = true;
            atomic_fetch_add(&shared->word[AT_WORK + RANKS - ranks], 1);
        }
    } while (*status_p == WEFT_OK && out[1] == 0);
    return true;
}

/* Its descriptor can be read, and the details are there; both stay so. */
static bool is_told(weft_comm_t comm, int fd, struct story *story, int dead)
{
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    weft_error_t error;
    if (poll(&ready, 1, 1000) != 1 || weft_comm_get_error(comm, &error) != WEFT_OK ||
        error.status != WEFT_ERR_PEER || error.rank < 0 || error.verdict == 0) {
        return false;
    }
    snprintf(story->verdict[dead], TEXT_LEN, "%s", error.text);
    story->number[dead] = error.verdict;
    return poll(&ready, 1, 0) == 1;
}

static int body(int number, struct harness_shared *shared, void *arg)
{
    const struct plan *plan = arg;
    weft_comm_t comms[RANKS + 1];
    int made = 0, fd = -1;
    weft_status_t status =
        messages_join(number, shared, plan->path, MESSAGES_TIMEOUT_MS, &comms[0]);
    if (status != WEFT_OK) {
        return harness_say(shared, number, -1, "could not start: %s", weft_error_text());
    }
    for (;;) {
        int ranks = 0;
        weft_error_t error;
        if (weft_comm_error_fd(comms[made], &fd) != WEFT_OK ||
            weft_comm_get_error(comms[made], &error) != WEFT_OK) {
            return harness_say(shared, number, -1, "no news: %s", weft_error_text());
        }
        if (!work(plan, number, comms[made], shared, &status)) {
            return harness_say(shared, number, -1, "a wrong sum in communicator %d", made);
        }
        if (status == WEFT_OK) {
            break;
        }
        status = messages_final_status(comms[made]);
        weft_comm_ranks(comms[made], &ranks);
        if (status != WEFT_ERR_PEER) {
            return harness_say(shared, number, -1, "communicator %d: %s: %s", made,
                               weft_status_name(status), weft_error_text());
        }
        if (!is_told(comms[made], fd, &stories[number], RANKS - ranks)) {
            return harness_say(shared, number, -1, "communicator %d does not tell its error", made);
        }
        atomic_fetch_add(&shared->word[SHRINKING], 1);
        if (weft_comm_shrink(comms[made], &comms[made + 1]) != WEFT_OK) {
            return harness_say(shared, number, -1, "shrink: %s", weft_error_text());
        }
        weft_comm_ranks(comms[++made], &ranks);
        stories[number].mended_ns[RANKS - ranks] = harness_now_ns();
    }
    while (made >= 0) {
        if (weft_comm_close(comms[made--]) != WEFT_OK) {
            return harness_say(shared, number, -1, "close: %s", weft_error_text());
        }
    }
    return 0;
}

/* ---- the test ---- */

static bool lives(const struct plan *plan, int rank)
{
    return (all_but(plan, plan->wave_count) >> rank & 1) != 0;
}

static uint32_t left_after(const struct plan *plan, int waves)
{
    return (uint32_t)__builtin_popcountll((uint64_t)all_but(plan, waves));
}

static void kill_wave(struct harness *harness, const struct wave *wave)
{
    for (int i = 0; i < wave->count; i++) {
        assert_harness(harness, harness_kill(harness, wave->victims[i], SIGKILL));
    }
}

/* One text, which names one of the dead; and nobody took long. */
static void check_stories(const struct plan *plan, int wave, uint64_t since_ns)
{
    uint32_t before = RANKS - left_after(plan, wave), after = RANKS - left_after(plan, wave + 1);
    const char *first = NULL;
    uint32_t number = 0;
    for (int rank = 0; rank < RANKS; rank++) {
        const char *text = stories[rank].verdict[before];
        bool is_named = false;
        if (!lives(plan, rank)) {
            continue;
        }
        if (plan->stopped == 0 || rank != plan->stopped) { /* that one may have judged alone */
            number = first == NULL ? stories[rank].number[before] : number;
            first = first == NULL ? text : first;
            assert_string_equal(text, first);
            assert_int_equal(stories[rank].number[before], number);
        }
        for (int i = 0; i < plan->waves[wave].count; i++) {
            is_named |= messages_names(text, plan->waves[wave].victims[i]);
        }
        assert_true(is_named);
        assert_true(stories[rank].mended_ns[after] - since_ns < LIMIT_MS * JOB_MS_NS);
    }
}

/* All others know that somebody died, and have looked elsewhere for who is above them. Returns when it goes on. */
static uint64_t stop_while_others_heal(struct harness *harness, const struct plan *plan)
{
    uint32_t others = left_after(plan, 1) - 1;
    assert_harness(harness, harness_wait_reach(&harness_shared(harness)->word[SHRINKING], others,
                                               MESSAGES_WAIT_MS));
    assert_harness(harness, harness_continue(harness, plan->stopped));
    return harness_now_ns();
}

static void check(struct plan *plan)
{
    struct harness *harness;
    struct harness_shared *shared;
    memset(stories, 0, RANKS * sizeof(*stories));
    harness = harness_start(RANKS, body, plan);
    shared = harness_shared(harness);
    for (int wave = 0; wave < plan->wave_count; wave++) {
        uint32_t left = left_after(plan, wave);
        uint64_t since_ns;
        if (plan->is_during_shrink && wave > 0) {
            assert_harness(harness,
                           harness_wait_reach(&shared->word[SHRINKING], 1, MESSAGES_WAIT_MS));
        } else {
            assert_harness(harness, harness_wait_reach(&shared->word[AT_WORK + RANKS - left], left,
                                                       MESSAGES_WAIT_MS));
        }
        if (plan->stopped != 0 && wave == 0) {
            assert_harness(harness, harness_stop(harness, plan->stopped));
        }
        since_ns = harness_now_ns();
        kill_wave(harness, &plan->waves[wave]);
        if (plan->stopped != 0 && wave == 0) {
            since_ns = stop_while_others_heal(harness, plan);
        }
        if (!plan->is_during_shrink) {
            left = left_after(plan, wave + 1);
            assert_harness(harness, harness_wait_reach(&shared->word[AT_WORK + RANKS - left], left,
                                                       MESSAGES_WAIT_MS));
            check_stories(plan, wave, since_ns);
        }
    }
    assert_harness(harness, harness_wait_reach(
                                &shared->word[AT_WORK + RANKS - left_after(plan, plan->wave_count)],
                                left_after(plan, plan->wave_count), MESSAGES_WAIT_MS));
    atomic_store(&shared->word[DONE], 1);
    messages_wait(harness, MESSAGES_WAIT_MS, "the end");
    for (int rank = 0; rank < RANKS; rank++) {
        const struct harness_result *result = harness_result(harness, rank);
        if (lives(plan, rank) && result->status != 0) {
            fail_msg("rank %d: %s", rank, result->text);
        }
    }
    assert_harness(harness, harness_check_clean(harness));
    harness_close(harness);
}

static void check_paths(struct plan plan)
{
    for (size_t path = 0; path < MESSAGES_PATHS; path++) {
        plan.path = messages_paths[path];
        check(&plan);
    }
}

static void a_leaf_dies(void **state)
{
    (void)state;
    check_paths((struct plan){.waves = {{{5}, 1}}, .wave_count = 1});
}

static void the_root_dies(void **state)
{
    (void)state;
    check_paths((struct plan){.waves = {{{0}, 1}}, .wave_count = 1});
}

static void the_root_and_its_successor_die_at_once(void **state)
{
    (void)state;
    check_paths((struct plan){.waves = {{{0, 1}, 2}}, .wave_count = 1});
}

static void the_root_and_a_leaf_die_at_once(void **state)
{
    (void)state;
    check_paths((struct plan){.waves = {{{6, 0}, 2}}, .wave_count = 1});
}

static void one_after_the_other_until_one_is_left(void **state)
{
    (void)state;
    check_paths((struct plan){
        .waves = {{{0}, 1}, {{4}, 1}, {{1}, 1}, {{2}, 1}, {{7}, 1}, {{3}, 1}, {{5}, 1}},
        .wave_count = 7});
}

static void the_coordinator_dies_while_the_others_ask(void **state)
{
    (void)state;
    check_paths(
        (struct plan){.waves = {{{3}, 1}, {{0}, 1}}, .wave_count = 2, .is_during_shrink = true});
}

/* Those who asked it in vain are not taken for dead when it gets to hear of them. */
static void the_root_dies_while_its_successor_is_stopped(void **state)
{
    (void)state;
    check_paths((struct plan){.waves = {{{0}, 1}, {{5}, 1}}, .wave_count = 2, .stopped = 1});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_leaf_dies),
        cmocka_unit_test(the_root_dies),
        cmocka_unit_test(the_root_and_its_successor_die_at_once),
        cmocka_unit_test(the_root_and_a_leaf_die_at_once),
        cmocka_unit_test(one_after_the_other_until_one_is_left),
        cmocka_unit_test(the_coordinator_dies_while_the_others_ask),
        cmocka_unit_test(the_root_dies_while_its_successor_is_stopped),
    };
    stories = mmap(NULL, RANKS * sizeof(*stories), PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return stories == MAP_FAILED ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
