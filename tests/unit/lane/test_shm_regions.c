/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of weft_alloc() seen from both sides, and reading a peer's private memory. */
#include "shm_support.h"

#define LEN ((size_t)1 << 20)

static weft_status_t map_on(struct node *node, uint32_t peer, uint64_t id, uint64_t offset,
                            size_t len, void **memory_p)
{
    weft_status_t status;
    weft_engine_lock(node->engine);
    status = OPS->map(node->lane[peer], id, offset, len, memory_p);
    weft_engine_unlock(node->engine);
    return status;
}

static weft_status_t share_on(struct node *node, uint32_t peer, const struct weft_mem_place *place)
{
    weft_status_t status;
    weft_engine_lock(node->engine);
    status = OPS->share(node->lane[peer], place);
    weft_engine_unlock(node->engine);
    return status;
}

static uint8_t *allocate(struct weft_mem_place *place_p)
{
    void *memory = NULL;
    assert_int_equal(weft_mem_alloc(LEN, &memory), WEFT_OK);
    assert_true(weft_mem_find(memory, LEN, place_p));
    return memory;
}

static void test_a_shared_allocation_is_the_same_memory_on_both_sides(void **state)
{
    struct pair pair;
    struct weft_mem_place place;
    uint8_t *memory;
    void *there = NULL;
    (void)state;
    pair_open(&pair);
    memory = allocate(&place);
    assert_int_equal(share_on(&pair.a, 1, &place), WEFT_OK);
    assert_int_equal(share_on(&pair.a, 1, &place), WEFT_OK); /* sent once */
    assert_int_equal(map_on(&pair.b, 0, place.id, 4000, 100, &there),
                     WEFT_OK); /* reads the socket */
    memory[4000] = 42;
    assert_int_equal(*(volatile uint8_t *)there, 42);
    *((volatile uint8_t *)there + 99) = 43;
    assert_int_equal(memory[4099], 43);
    assert_int_equal(map_on(&pair.b, 0, place.id, LEN, 0, &there), WEFT_OK);
    assert_int_equal(map_on(&pair.b, 0, place.id, LEN, 1, &there), WEFT_ERR_INVALID);
    assert_int_equal(map_on(&pair.b, 0, place.id, UINT64_MAX, 2, &there), WEFT_ERR_INVALID);
    assert_int_equal(map_on(&pair.b, 0, place.id, 1, SIZE_MAX, &there), WEFT_ERR_INVALID);
    assert_int_equal(shm_lane(&pair.b, 0)->mapped.count, 1);
    assert_int_equal(weft_mem_free(memory), WEFT_OK);
    pair_close(&pair);
}

static void test_an_allocation_not_shared_yet_is_asked_for(void **state)
{
    struct pair pair;
    struct weft_mem_place place;
    uint8_t *memory;
    void *there = NULL;
    weft_status_t status;
    uint64_t deadline_ns = weft_clock_after_ms(DEADLINE_MS);
    (void)state;
    pair_open(&pair);
    memory = allocate(&place);
    memory[7] = 9;
    status = map_on(&pair.b, 0, place.id, 0, LEN, &there);
    assert_int_equal(status, WEFT_ERR_BUSY);
    while (status == WEFT_ERR_BUSY && weft_clock_ns() < deadline_ns) {
        node_step(&pair.a);
        status = map_on(&pair.b, 0, place.id, 0, LEN, &there);
    }
    assert_int_equal(status, WEFT_OK);
    assert_int_equal(((uint8_t *)there)[7], 9);
    assert_int_equal(weft_mem_free(memory), WEFT_OK);
    pair_close(&pair);
}

static void test_an_allocation_that_is_not_there_is_refused(void **state)
{
    struct pair pair;
    void *there = NULL;
    weft_status_t status = WEFT_ERR_BUSY;
    uint64_t deadline_ns = weft_clock_after_ms(DEADLINE_MS);
    (void)state;
    pair_open(&pair);
    while (status == WEFT_ERR_BUSY && weft_clock_ns() < deadline_ns) {
        status = map_on(&pair.b, 0, 123456789, 0, 1, &there);
        node_step(&pair.a);
    }
    assert_int_equal(status, WEFT_ERR_INVALID);
    assert_int_equal(pair.b.lost, 0);
    pair_close(&pair);
}

static void test_a_freed_allocation_is_unmapped_at_the_peer(void **state)
{
    struct pair pair;
    struct weft_mem_place place, kept;
    uint8_t *memory, *other;
    void *there = NULL;
    uint64_t deadline_ns = weft_clock_after_ms(DEADLINE_MS);
    (void)state;
    pair_open(&pair);
    memory = allocate(&place);
    other = allocate(&kept);
    assert_int_equal(share_on(&pair.a, 1, &place), WEFT_OK);
    assert_int_equal(share_on(&pair.a, 1, &kept), WEFT_OK);
    assert_int_equal(map_on(&pair.b, 0, place.id, 0, LEN, &there), WEFT_OK);
    assert_int_equal(map_on(&pair.b, 0, kept.id, 0, LEN, &there), WEFT_OK);
    assert_int_equal(weft_mem_free(memory), WEFT_OK); /* without the engine's lock, by any thread */
    while (shm_lane(&pair.b, 0)->mapped.count > 1 && weft_clock_ns() < deadline_ns) {
        node_step(&pair.b);
    }
    assert_int_equal(shm_lane(&pair.b, 0)->mapped.count, 1);
    assert_int_equal(shm_lane(&pair.a, 1)->shared.count, 1);
    assert_int_equal(map_on(&pair.b, 0, kept.id, 0, LEN, &there), WEFT_OK);
    assert_int_equal(map_on(&pair.b, 0, place.id, 0, 1, &there), WEFT_ERR_INVALID);
    assert_int_equal(weft_mem_free(other), WEFT_OK);
    pair_close(&pair);
}

static void test_what_is_held_stays_mapped_when_it_is_freed_and_the_lane_goes(void **state)
{
    struct pair pair;
    struct weft_mem_place place;
    struct weft_mem_mapping *held;
    uint8_t *memory;
    void *there = NULL;
    uint64_t deadline_ns = weft_clock_after_ms(DEADLINE_MS);
    (void)state;
    pair_open(&pair);
    memory = allocate(&place);
    memory[LEN - 1] = 42;
    assert_int_equal(share_on(&pair.a, 1, &place), WEFT_OK);
    assert_int_equal(map_on(&pair.b, 0, place.id, 0, LEN, &there), WEFT_OK);
    held = OPS->hold(pair.b.lane[0], there, LEN);
    assert_non_null(held);
    assert_null(OPS->hold(pair.b.lane[0], there, LEN + 4096));
    assert_null(OPS->hold(pair.b.lane[0], memory, LEN)); /* the other one's own */
    assert_int_equal(weft_mem_free(memory), WEFT_OK);
    while (shm_lane(&pair.b, 0)->mapped.count > 0 && weft_clock_ns() < deadline_ns) {
        node_step(&pair.b);
    }
    assert_int_equal(shm_lane(&pair.b, 0)->mapped.count, 0);
    assert_null(OPS->hold(pair.b.lane[0], there, 1)); /* nobody else gets it any more */
    assert_int_equal(*((volatile uint8_t *)there + LEN - 1), 42);
    pair_close(&pair);
    *((volatile uint8_t *)there) = 43;
    weft_mem_mapping_close(held);
}

static void test_a_full_socket_is_busy_and_gone_is_told_later(void **state)
{
    const struct weft_shm_mail ring = {.magic = WEFT_SHM_MAGIC, .kind = WEFT_SHM_RING};
    struct pair pair;
    struct weft_mem_place place, late;
    uint8_t *memory, *other;
    void *there = NULL;
    uint64_t deadline_ns = weft_clock_after_ms(DEADLINE_MS);
    (void)state;
    pair_open(&pair);
    memory = allocate(&place);
    other = allocate(&late);
    assert_int_equal(share_on(&pair.a, 1, &place), WEFT_OK);
    assert_int_equal(map_on(&pair.b, 0, place.id, 0, LEN, &there), WEFT_OK);
    while (weft_shm_mail_send(shm_lane(&pair.a, 1)->fd, &ring, -1)) {
    }
    assert_int_equal(share_on(&pair.a, 1, &late), WEFT_ERR_BUSY);
    assert_int_equal(weft_mem_free(memory), WEFT_OK);
    while (shm_lane(&pair.b, 0)->mapped.count > 0 && weft_clock_ns() < deadline_ns) {
        node_step(&pair.b);
        node_step(&pair.a);
    }
    assert_int_equal(shm_lane(&pair.b, 0)->mapped.count, 0);
    assert_int_equal(share_on(&pair.a, 1, &late), WEFT_OK);
    assert_int_equal(map_on(&pair.b, 0, late.id, 0, LEN, &there), WEFT_OK);
    assert_int_equal(post_eager(&pair.a, 1, 1, 1000), WEFT_POST_SENT);
    assert_true(step_until(&pair.b, NULL, &pair.b.arrived, 1));
    assert_int_equal(weft_mem_free(other), WEFT_OK);
    pair_close(&pair);
}

/* ---- CMA ---- */

static void test_the_parameter_refuses_cma(void **state)
{
    struct pair pair = {.fds_before = weft_fd_count()};
    (void)state;
    node_prepare(&pair.a, 0, 2);
    assert_int_equal(weft_params_load(&pair.a.params), WEFT_OK);
    assert_int_equal(weft_params_set(&pair.a.params, WEFT_PARAM_CMA, "off"), WEFT_OK);
    assert_int_equal(node_try_open(&pair.a, 2), WEFT_OK);
    node_open(&pair.b, 1, 2);
    connect_nodes(&pair.a, &pair.b);
    assert_int_equal(shm_lane(&pair.a, 1)->base.caps & WEFT_LANE_PULLS, 0);
    assert_int_equal(shm_lane(&pair.b, 0)->base.caps & WEFT_LANE_PULLS, WEFT_LANE_PULLS);
    pair_close(&pair);
}

static void test_private_memory_is_pulled(void **state)
{
    static uint8_t from[100000], to[100000];
    struct pair pair;
    struct weft_slice slice = {.data = to, .len = sizeof(to)};
    struct weft_slice little = {.data = to, .len = 8};
    (void)state;
    pair_open(&pair);
    fill_pattern(from, sizeof(from), 5);
    assert_int_equal(OPS->pull(pair.b.lane[0], (uint64_t)(uintptr_t)from, &slice), WEFT_OK);
    assert_memory_equal(to, from, sizeof(to));
    /* the way through the kernel, which ranks of one process do not need */
    shm_lane(&pair.b, 0)->is_same_process = false;
    memset(to, 0, sizeof(to));
    assert_int_equal(OPS->pull(pair.b.lane[0], (uint64_t)(uintptr_t)from, &slice), WEFT_OK);
    assert_memory_equal(to, from, sizeof(to));
    assert_int_equal(OPS->pull(pair.b.lane[0], 16, &little), WEFT_ERR_SYSTEM);
    shm_lane(&pair.b, 0)->is_same_process = true;
    pair_close(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_shared_allocation_is_the_same_memory_on_both_sides),
        cmocka_unit_test(test_an_allocation_not_shared_yet_is_asked_for),
        cmocka_unit_test(test_an_allocation_that_is_not_there_is_refused),
        cmocka_unit_test(test_a_freed_allocation_is_unmapped_at_the_peer),
        cmocka_unit_test(test_what_is_held_stays_mapped_when_it_is_freed_and_the_lane_goes),
        cmocka_unit_test(test_a_full_socket_is_busy_and_gone_is_told_later),
        cmocka_unit_test(test_the_parameter_refuses_cma),
        cmocka_unit_test(test_private_memory_is_pulled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
