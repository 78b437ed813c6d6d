/* SPDX-License-Identifier: Apache-2.0 */
#include "p2p/match.h"

#include "../base/capture.h"

#define ANY WEFT_MATCH_ANY

static struct weft_match match; /* of one test at a time */

static int open_match(void **state)
{
    (void)state;
    weft_match_open(&match);
    return 0;
}

static struct weft_match_receive *post(struct weft_match_receive *receive, uint32_t source,
                                       uint32_t tag)
{
    receive->source = source;
    receive->tag = tag;
    weft_match_post(&match, receive);
    return receive;
}

static struct weft_match_arrival *keep(struct weft_match_arrival *arrival, uint32_t source,
                                       uint32_t tag)
{
    arrival->source = source;
    arrival->tag = tag;
    weft_match_keep(&match, arrival);
    return arrival;
}

static void an_empty_match_gives_nothing(void **state)
{
    (void)state;
    assert_null(weft_match_take_receive(&match, 1, 2));
    assert_null(weft_match_take_arrival(&match, 1, 2));
    assert_null(weft_match_take_arrival(&match, ANY, ANY));
    assert_null(weft_match_peek(&match, ANY, 2));
    assert_null(weft_match_any_receive(&match, ANY));
    assert_null(weft_match_any_arrival(&match, ANY));
}

static void a_message_goes_to_the_receive_posted_first_among_those_that_fit(void **state)
{
    struct weft_match_receive other_tag, other_source, wild_tag, exact, wild_source, late;

    (void)state;
    post(&other_tag, 1, 8);
    post(&other_source, 2, 7);
    post(&wild_tag, 1, ANY);
    post(&exact, 1, 7);
    post(&wild_source, ANY, 7);
    post(&late, 1, 7);
    assert_ptr_equal(weft_match_take_receive(&match, 1, 7), &wild_tag);
    assert_ptr_equal(weft_match_take_receive(&match, 1, 7), &exact);
    assert_ptr_equal(weft_match_take_receive(&match, 1, 7), &wild_source);
    assert_ptr_equal(weft_match_take_receive(&match, 1, 7), &late);
    assert_null(weft_match_take_receive(&match, 1, 7));
    assert_int_equal(match.receive_count, 2);
}

static void a_receive_gets_the_message_that_arrived_first_among_those_that_fit(void **state)
{
    struct weft_match_arrival arrivals[4];

    (void)state;
    keep(&arrivals[0], 3, 1);
    keep(&arrivals[1], 2, 5);
    keep(&arrivals[2], 3, 5);
    keep(&arrivals[3], 3, 5);
    assert_ptr_equal(weft_match_peek(&match, ANY, 5), &arrivals[1]);
    assert_ptr_equal(weft_match_peek(&match, ANY, 5), &arrivals[1]); /* left in */
    assert_ptr_equal(weft_match_take_arrival(&match, 3, 5), &arrivals[2]);
    assert_ptr_equal(weft_match_take_arrival(&match, 3, ANY), &arrivals[0]);
    assert_ptr_equal(weft_match_take_arrival(&match, ANY, ANY), &arrivals[1]);
    assert_ptr_equal(weft_match_take_arrival(&match, ANY, 5), &arrivals[3]);
    assert_int_equal(match.arrival_count, 0);
}

/* A peer may send any tag. */
static void a_message_tagged_like_the_wildcard_fits_no_exact_receive(void **state)
{
    struct weft_match_receive exact, wild;
    struct weft_match_arrival arrival;

    (void)state;
    post(&exact, 1, 7);
    assert_null(weft_match_take_receive(&match, 1, ANY));
    keep(&arrival, 1, ANY);
    assert_null(weft_match_take_arrival(&match, 1, 7));
    assert_ptr_equal(weft_match_take_arrival(&match, 1, ANY), &arrival);
    post(&wild, 1, ANY);
    assert_ptr_equal(weft_match_take_receive(&match, 1, ANY), &wild);
}

static void those_of_a_lost_source_are_found_and_no_others(void **state)
{
    struct weft_match_receive of_any, of_2, of_3, of_3_any_tag;
    struct weft_match_arrival from_2, from_3;

    (void)state;
    post(&of_any, ANY, 5);
    post(&of_2, 2, 5);
    post(&of_3, 3, 5);
    post(&of_3_any_tag, 3, ANY);
    keep(&from_2, 2, 9);
    keep(&from_3, 3, 9);
    for (int i = 0; i < 2; i++) {
        struct weft_match_receive *receive = weft_match_any_receive(&match, 3);

        assert_true(receive == &of_3 || receive == &of_3_any_tag);
        weft_match_withdraw(&match, receive);
    }
    assert_null(weft_match_any_receive(&match, 3));
    assert_ptr_equal(weft_match_any_arrival(&match, 3), &from_3);
    weft_match_drop(&match, &from_3);
    assert_null(weft_match_any_arrival(&match, 3));
    assert_ptr_equal(weft_match_any_arrival(&match, ANY), &from_2);
    for (int i = 0; i < 2; i++) {
        struct weft_match_receive *receive = weft_match_any_receive(&match, ANY);

        assert_non_null(receive);
        weft_match_withdraw(&match, receive);
    }
    assert_null(weft_match_any_receive(&match, ANY));
}

/* Else a rank that receives from many, or with many tags, walks lists. */
static void neighbouring_sources_and_tags_spread_over_the_buckets(void **state)
{
    static struct weft_match_receive receives[2 * WEFT_MATCH_BUCKETS];
    unsigned used = 0;

    (void)state;
    for (uint32_t i = 0; i < WEFT_MATCH_BUCKETS; i++) {
        post(&receives[i], i, 0);
        post(&receives[WEFT_MATCH_BUCKETS + i], 1000, i);
    }
    for (unsigned i = 0; i < WEFT_MATCH_BUCKETS; i++) {
        unsigned len = 0;

        for (struct weft_list *node = match.receives[i].next; node != &match.receives[i];
             node = node->next) {
            len++;
        }
        assert_true(len <= 6);
        used += len > 0;
    }
    assert_true(used >= WEFT_MATCH_BUCKETS * 3 / 4);
}

/* ---- against a model: two arrays in the order of posting and of arrival, searched from the start */

#define MODEL_MAX 96
#define STEPS 60000

struct model {
    struct weft_match_receive *receives[MODEL_MAX];
    struct weft_match_arrival *arrivals[MODEL_MAX];
    unsigned receive_count, arrival_count;
};

static struct weft_match_receive receive_pool[MODEL_MAX];
static struct weft_match_arrival arrival_pool[MODEL_MAX];
static bool receive_used[MODEL_MAX], arrival_used[MODEL_MAX];
static uint64_t seed;

static uint32_t random_below(uint32_t limit)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((seed >> 33) % limit);
}

static bool model_fits(uint32_t wanted_source, uint32_t wanted_tag, uint32_t source, uint32_t tag)
{
    return (wanted_source == ANY || wanted_source == source) &&
           (wanted_tag == ANY || wanted_tag == tag);
}

static struct weft_match_receive *model_remove_receive(struct model *model, unsigned at)
{
    struct weft_match_receive *receive = model->receives[at];

    model->receive_count--;
    for (; at < model->receive_count; at++) {
        model->receives[at] = model->receives[at + 1];
    }
    receive_used[receive - receive_pool] = false;
    return receive;
}

static struct weft_match_arrival *model_remove_arrival(struct model *model, unsigned at)
{
    struct weft_match_arrival *arrival = model->arrivals[at];

    model->arrival_count--;
    for (; at < model->arrival_count; at++) {
        model->arrivals[at] = model->arrivals[at + 1];
    }
    arrival_used[arrival - arrival_pool] = false;
    return arrival;
}

static int free_slot(const bool *used)
{
    for (int i = 0; i < MODEL_MAX; i++) {
        if (!used[i]) {
            return i;
        }
    }
    return -1;
}

static void message_arrives(struct model *model, uint32_t source, uint32_t tag)
{
    struct weft_match_receive *expected = NULL;
    int slot;

    for (unsigned i = 0; i < model->receive_count && !expected; i++) {
        struct weft_match_receive *receive = model->receives[i];

        if (model_fits(receive->source, receive->tag, source, tag)) {
            expected = model_remove_receive(model, i);
        }
    }
    assert_ptr_equal(weft_match_take_receive(&match, source, tag), expected);
    slot = free_slot(arrival_used);
    if (!expected && slot >= 0) {
        arrival_used[slot] = true;
        model->arrivals[model->arrival_count++] = keep(&arrival_pool[slot], source, tag);
    }
}

static void receive_is_posted(struct model *model, uint32_t source, uint32_t tag)
{
    struct weft_match_arrival *expected = NULL;
    unsigned at = 0;
    int slot;

    for (; at < model->arrival_count && !expected; at++) {
        if (model_fits(source, tag, model->arrivals[at]->source, model->arrivals[at]->tag)) {
            expected = model->arrivals[at];
        }
    }
    assert_ptr_equal(weft_match_peek(&match, source, tag), expected);
    assert_ptr_equal(weft_match_take_arrival(&match, source, tag), expected);
    slot = free_slot(receive_used);
    if (expected) {
        model_remove_arrival(model, at - 1);
    } else if (slot >= 0) {
        receive_used[slot] = true;
        model->receives[model->receive_count++] = post(&receive_pool[slot], source, tag);
    }
}

static void something_is_withdrawn(struct model *model)
{
    if (model->receive_count > 0 && random_below(2)) {
        weft_match_withdraw(&match,
                            model_remove_receive(model, random_below(model->receive_count)));
    } else if (model->arrival_count > 0) {
        weft_match_drop(&match, model_remove_arrival(model, random_below(model->arrival_count)));
    }
}

/* wild_percent: of receives that take any source, and any tag. */
static void run_against_model(uint64_t first_seed, uint32_t sources, uint32_t tags,
                              uint32_t wild_percent)
{
    struct model model = {.receive_count = 0};

    weft_match_open(&match);
    memset(receive_used, 0, sizeof(receive_used));
    memset(arrival_used, 0, sizeof(arrival_used));
    seed = first_seed;
    for (int step = 0; step < STEPS; step++) {
        uint32_t source = random_below(sources), tag = random_below(tags), what = random_below(100);
        /* in turns more receives and more messages, so that both queues grow long */
        uint32_t arriving = step / 500 % 2 ? 60 : 30;

        if (what < arriving) {
            message_arrives(&model, source, tag);
        } else if (what < 90) {
            source = random_below(100) < wild_percent ? ANY : source;
            tag = random_below(100) < wild_percent ? ANY : tag;
            receive_is_posted(&model, source, tag);
        } else {
            something_is_withdrawn(&model);
        }
        assert_int_equal(match.receive_count, model.receive_count);
        assert_int_equal(match.arrival_count, model.arrival_count);
    }
}

static void random_traffic_matches_as_the_rules_say(void **state)
{
    (void)state;
    run_against_model(1, 3, 3, 15);
    run_against_model(2, 40, 1, 10);
    run_against_model(3, 200, 50, 2);
    run_against_model(4, 8, 8, 0);
    run_against_model(5, 2, 1000, 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(an_empty_match_gives_nothing, open_match),
        cmocka_unit_test_setup(a_message_goes_to_the_receive_posted_first_among_those_that_fit,
                               open_match),
        cmocka_unit_test_setup(a_receive_gets_the_message_that_arrived_first_among_those_that_fit,
                               open_match),
        cmocka_unit_test_setup(a_message_tagged_like_the_wildcard_fits_no_exact_receive,
                               open_match),
        cmocka_unit_test_setup(those_of_a_lost_source_are_found_and_no_others, open_match),
        cmocka_unit_test_setup(neighbouring_sources_and_tags_spread_over_the_buckets, open_match),
        cmocka_unit_test(random_traffic_matches_as_the_rules_say),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
