/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A memory handle comes from the user, who got it from a peer: whatever its bytes say, and whatever
 * offset and length come with it, nothing outside the registered memory is touched, the answer is
 * ERR_INVALID, and the communicator goes on.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fault/messages.h"
#include "p2p/handle.h"

#define LEN ((size_t)4096)
#define MARGIN ((size_t)8192) /* around what is registered, and watched */
#define GUARD 0x5a

struct plan {
    const char *path;
    bool is_shared; /* the memory comes from weft_alloc() */
};

struct rank {
    struct harness_shared *shared;
    weft_comm_t comm;
    int number;
    const struct plan *plan;
    uint8_t *memory; /* margin, registered, margin */
    weft_mem_t mem[2];
};

/* ---- memory that is watched ---- */

static bool open_memory(struct rank *rank)
{
    size_t len = LEN + 2 * MARGIN;
    void *memory = rank->plan->is_shared ? NULL : messages_buffer(len);
    weft_mem_t mine;
    if (rank->plan->is_shared && weft_alloc(len, &memory) != WEFT_OK) {
        return false;
    }
    rank->memory = memory;
    memset(rank->memory, GUARD, len);
    return weft_mem_register(rank->comm, rank->memory + MARGIN, LEN, &mine) == WEFT_OK &&
           weft_control_allgather(rank->comm, &mine, sizeof(mine), rank->mem) == WEFT_OK;
}

static void close_memory(struct rank *rank)
{
    if (rank->plan->is_shared) {
        weft_free(rank->memory);
    } else {
        free(rank->memory);
    }
}

static bool is_untouched(const uint8_t *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (bytes[i] != GUARD) {
            return false;
        }
    }
    return true;
}

/* ---- attempts ---- */

struct attempt {
    const char *name;
    weft_mem_t mem, signal_mem;
    size_t offset, len, signal_offset;
    bool has_signal;
};

/* What the call says, or quiet after it. */
static weft_status_t put(weft_comm_t comm, const struct attempt *attempt)
{
    static uint8_t bytes[2 * LEN];
    size_t len = attempt->len <= sizeof(bytes) ? attempt->len : sizeof(bytes);
    weft_status_t status, quiet;
    memset(bytes, 0xff, sizeof(bytes));
    status = attempt->has_signal
                 ? weft_put_signal(comm, &attempt->mem, attempt->offset, bytes, len,
                                   &attempt->signal_mem, attempt->signal_offset, 1)
                 : weft_put(comm, &attempt->mem, attempt->offset, bytes, attempt->len);
    quiet = weft_quiet(comm);
    return status != WEFT_OK ? status : quiet;
}

static weft_status_t get(weft_comm_t comm, const struct attempt *attempt)
{
    static uint8_t bytes[2 * LEN];
    weft_status_t status, quiet;
    memset(bytes, GUARD, sizeof(bytes));
    status = weft_get(comm, &attempt->mem, attempt->offset, bytes, attempt->len);
    quiet = weft_quiet(comm);
    return status != WEFT_OK ? status : quiet;
}

/* Both must be refused; 0: they were. */
static int try_one(struct rank *rank, const struct attempt *attempt)
{
    weft_status_t status = put(rank->comm, attempt);
    if (status != WEFT_ERR_INVALID) {
        return harness_say(rank->shared, rank->number, -1, "%s: a put gives %s (%s)", attempt->name,
                           weft_status_name(status), status != WEFT_OK ? weft_error_text() : "");
    }
    status = attempt->has_signal ? WEFT_ERR_INVALID : get(rank->comm, attempt);
    if (status != WEFT_ERR_INVALID) {
        return harness_say(rank->shared, rank->number, -1, "%s: a get gives %s (%s)", attempt->name,
                           weft_status_name(status), status != WEFT_OK ? weft_error_text() : "");
    }
    return 0;
}

/* A handle that was altered by somebody who knows how they are made. */
static weft_mem_t forge(const weft_mem_t *mem, void (*change)(struct weft_p2p_handle *handle))
{
    struct weft_p2p_handle handle;
    weft_mem_t forged = *mem;
    memcpy(&handle, mem, sizeof(handle));
    change(&handle);
    handle.check = weft_wire_crc32c(0, &handle, offsetof(struct weft_p2p_handle, check));
    memcpy(&forged, &handle, sizeof(handle));
    return forged;
}

static void longest(struct weft_p2p_handle *handle)
{
    handle->len = UINT64_MAX;
}

static void no_such_rank(struct weft_p2p_handle *handle)
{
    handle->owner = 2;
}

static void owned_by_rank_1(struct weft_p2p_handle *handle)
{
    handle->owner = 1;
}

static void wildest_rank(struct weft_p2p_handle *handle)
{
    handle->owner = UINT32_MAX;
}

static void other_comm(struct weft_p2p_handle *handle)
{
    handle->comm ^= 1;
}

static void other_registration(struct weft_p2p_handle *handle)
{
    handle->region = 0;
    handle->registration += (uint64_t)1 << 32;
}

static void wildest_registration(struct weft_p2p_handle *handle)
{
    handle->region = 0;
    handle->registration = UINT64_MAX;
}

/* ---- offsets and lengths ---- */

typedef int (*attack_fn)(struct rank *rank);

static int wrap_offsets(struct rank *rank)
{
    static const struct {
        size_t offset, len;
    } wild[] = {
        {LEN, 1},          {LEN - 1, 2},       {0, LEN + 1},          {SIZE_MAX, 1},
        {SIZE_MAX, 2},     {SIZE_MAX - 7, 16}, {SIZE_MAX - LEN, LEN}, {SIZE_MAX - LEN + 1, LEN},
        {SIZE_MAX / 2, 1}, {1, SIZE_MAX},      {LEN, SIZE_MAX},       {8, SIZE_MAX - 7},
    };
    for (size_t i = 0; i < sizeof(wild) / sizeof(wild[0]); i++) {
        char name[64];
        struct attempt attempt = {
            .name = name, .mem = rank->mem[1], .offset = wild[i].offset, .len = wild[i].len};
        snprintf(name, sizeof(name), "%zx bytes at %zx", wild[i].len, wild[i].offset);
        if (try_one(rank, &attempt) != 0) {
            return -1;
        }
    }
    return 0;
}

static int wrap_signals(struct rank *rank)
{
    static const size_t wild[] = {LEN, LEN - 7, LEN - 4, 1, 4, SIZE_MAX, SIZE_MAX - 7};
    char name[64];
    struct attempt attempt = {.name = name,
                              .mem = rank->mem[1],
                              .signal_mem = rank->mem[1],
                              .len = 0,
                              .has_signal = true};
    for (size_t i = 0; i < sizeof(wild) / sizeof(wild[0]); i++) {
        attempt.signal_offset = wild[i];
        snprintf(name, sizeof(name), "a signal at %zx", wild[i]);
        if (try_one(rank, &attempt) != 0) {
            return -1;
        }
    }
    attempt.signal_offset = 0;
    attempt.signal_mem = rank->mem[0]; /* of another rank than the data */
    snprintf(name, sizeof(name), "a signal elsewhere");
    return try_one(rank, &attempt);
}

/* ---- handles ---- */

static int flip_bits(struct rank *rank)
{
    for (unsigned bit = 0; bit < 8 * sizeof(struct weft_p2p_handle); bit++) {
        char name[64];
        struct attempt attempt = {.name = name, .mem = rank->mem[1], .len = 16};
        attempt.mem.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        snprintf(name, sizeof(name), "bit %u is flipped", bit);
        if (try_one(rank, &attempt) != 0) {
            return -1;
        }
    }
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct attempt attempt = {.name = "random bytes", .len = 16};
        messages_fill(attempt.mem.bytes, sizeof(attempt.mem.bytes), seed);
        if (try_one(rank, &attempt) != 0) {
            return -1;
        }
    }
    return 0;
}

/* Only where it cannot be mapped does the owner see every access. */
static int forge_lengths(struct rank *rank)
{
    static const struct {
        size_t offset, len;
    } wild[] = {{LEN, 1}, {LEN - 1, 2}, {0, LEN + 1}, {LEN + 100, 100}, {SIZE_MAX - 15, 8}};
    for (int owner = 0; owner < 2; owner++) {
        for (size_t i = 0; i < sizeof(wild) / sizeof(wild[0]); i++) {
            char name[64];
            struct attempt attempt = {.name = name,
                                      .mem = forge(&rank->mem[owner], longest),
                                      .offset = wild[i].offset,
                                      .len = wild[i].len};
            snprintf(name, sizeof(name), "rank %d's handle says ever so long, %zx bytes at %zx",
                     owner, wild[i].len, wild[i].offset);
            if (try_one(rank, &attempt) != 0) {
                return -1;
            }
        }
    }
    return 0;
}

static int forge_names(struct rank *rank)
{
    static const struct {
        const char *name;
        void (*change)(struct weft_p2p_handle *handle);
    } forgeries[] = {{"a rank that is not there", no_such_rank},
                     {"the wildest rank", wildest_rank},
                     {"another communicator", other_comm},
                     {"another registration", other_registration},
                     {"the wildest registration", wildest_registration}};
    for (size_t i = 0; i < sizeof(forgeries) / sizeof(forgeries[0]); i++) {
        struct attempt attempt = {
            .name = forgeries[i].name, .mem = forge(&rank->mem[1], forgeries[i].change), .len = 16};
        if (try_one(rank, &attempt) != 0) {
            return -1;
        }
    }
    return 0;
}

/* Regions are mapped: what lies outside of them would be somebody else's memory, or nobody's. */
static int forge_regions(struct rank *rank)
{
    static const struct {
        uint64_t region, offset;
    } wild[] = {{0, UINT64_MAX - 7},
                {0, UINT64_MAX - LEN + 1},
                {0, LEN + 2 * MARGIN},
                {0, (uint64_t)1 << 40},
                {77, 0},
                {UINT64_MAX, UINT64_MAX}};
    for (size_t i = 0; i < sizeof(wild) / sizeof(wild[0]); i++) {
        struct attempt attempt = {.mem = rank->mem[1], .len = LEN};
        struct weft_p2p_handle handle;
        memcpy(&handle, &attempt.mem, sizeof(handle));
        handle.region = wild[i].region != 0 ? wild[i].region : handle.region;
        handle.region_offset = wild[i].offset;
        handle.check = weft_wire_crc32c(0, &handle, offsetof(struct weft_p2p_handle, check));
        memcpy(&attempt.mem, &handle, sizeof(handle));
        put(rank->comm, &attempt); /* refused, or done by the owner, who knows better */
    }
    return 0;
}

/* ---- ranks ---- */

struct attack {
    struct plan plan;
    attack_fn attack;
    bool may_write; /* inside of what is registered */
};

static weft_status_t exchange(weft_comm_t comm, int rank)
{
    uint8_t bytes[100], got[100];
    weft_status_t status;
    messages_fill(bytes, sizeof(bytes), (uint64_t)rank);
    status = weft_group_begin(comm);
    status = status == WEFT_OK ? weft_send(comm, bytes, sizeof(bytes), 1 - rank, 1, NULL) : status;
    status =
        status == WEFT_OK ? weft_recv(comm, got, sizeof(got), 1 - rank, 1, NULL, NULL) : status;
    weft_status_t end = weft_group_end(comm);
    status = status != WEFT_OK ? status : end;
    return status == WEFT_OK && !messages_are_right(got, sizeof(got), (uint64_t)(1 - rank))
               ? WEFT_ERR_PROTOCOL
               : status;
}

static int body(int number, struct harness_shared *shared, void *arg)
{
    const struct attack *attack = arg;
    struct rank rank = {.shared = shared, .number = number, .plan = &attack->plan};
    int result = 0;
    setenv("WEFT_LOG", "off", 1);
    if (messages_join(number, shared, attack->plan.path, 10000, &rank.comm) != WEFT_OK ||
        !open_memory(&rank) || exchange(rank.comm, number) != WEFT_OK) {
        return harness_say(shared, number, -1, "could not start: %s", weft_error_text());
    }
    if (number == 0) {
        result = attack->attack(&rank);
    }
    weft_status_t status = exchange(rank.comm, number);
    if (status != WEFT_OK) {
        result = harness_say(shared, number, -1, "the communicator is hurt: %s", weft_error_text());
    } else if (!is_untouched(rank.memory, MARGIN) ||
               !is_untouched(rank.memory + MARGIN + LEN, MARGIN)) {
        result = harness_say(shared, number, -1, "memory outside was touched");
    } else if (!attack->may_write && !is_untouched(rank.memory + MARGIN, LEN)) {
        result = harness_say(shared, number, -1, "registered memory was touched");
    }
    weft_mem_deregister(rank.comm, &rank.mem[number]);
    weft_comm_close(rank.comm);
    close_memory(&rank);
    return result;
}

static void check(attack_fn fn, bool only_private, bool may_write)
{
    for (size_t path = 0; path < MESSAGES_PATHS; path++) {
        for (int is_shared = 0; is_shared < (only_private ? 1 : 2); is_shared++) {
            char what[64];
            struct attack attack = {{messages_paths[path], is_shared}, fn, may_write};
            struct harness *harness = harness_start(2, body, &attack);
            snprintf(what, sizeof(what), "%s memory over %s", is_shared ? "shared" : "private",
                     messages_paths[path]);
            messages_wait(harness, MESSAGES_WAIT_MS, what);
            messages_check_fine(harness, what);
            harness_close(harness);
        }
    }
}

static void offsets_and_lengths_that_wrap_are_refused(void **state)
{
    (void)state;
    check(wrap_offsets, false, false);
}

static void signals_outside_or_unaligned_are_refused(void **state)
{
    (void)state;
    check(wrap_signals, false, false);
}

static void every_flipped_bit_of_a_handle_is_noticed(void **state)
{
    (void)state;
    check(flip_bits, false, false);
}

static void a_forged_length_is_refused_by_the_owner(void **state)
{
    (void)state;
    check(forge_lengths, true, false);
}

static void forged_ranks_and_registrations_are_refused(void **state)
{
    (void)state;
    check(forge_names, false, false);
}

static void forged_regions_touch_nothing_outside(void **state)
{
    (void)state;
    check(forge_regions, false, true);
}

/* ---- handles that were good once, or elsewhere ---- */

static int use_deregistered(struct rank *rank, weft_comm_t part, const weft_mem_t *of_part)
{
    struct attempt attempt = {.name = "deregistered memory", .mem = rank->mem[1], .len = 64};
    (void)part;
    (void)of_part;
    return try_one(rank, &attempt);
}

static int use_elsewhere(struct rank *rank, weft_comm_t part, const weft_mem_t *of_part)
{
    struct attempt attempt = {.name = "of another communicator", .mem = rank->mem[1], .len = 64};
    struct rank in_part = *rank;
    (void)of_part;
    in_part.comm = part;
    return try_one(&in_part, &attempt);
}

static int name_an_outsider(struct rank *rank, weft_comm_t part, const weft_mem_t *of_part)
{
    struct attempt attempt = {.name = "a rank that is not of the part", .len = 64};
    struct rank in_part = *rank;
    in_part.comm = part;
    attempt.mem = forge(of_part, owned_by_rank_1);
    return try_one(&in_part, &attempt);
}

struct later {
    struct plan plan;
    int (*attack)(struct rank *rank, weft_comm_t part, const weft_mem_t *of_part);
};

/* Each rank is a part of its own; what rank 1 has registered is deregistered before the attack. */
static int later_body(int number, struct harness_shared *shared, void *arg)
{
    const struct later *later = arg;
    struct rank rank = {.shared = shared, .number = number, .plan = &later->plan};
    weft_comm_t part;
    weft_mem_t mem;
    int result = 0;
    setenv("WEFT_LOG", "off", 1);
    if (messages_join(number, shared, rank.plan->path, 10000, &rank.comm) != WEFT_OK ||
        !open_memory(&rank) || weft_comm_split(rank.comm, number, 0, &part) != WEFT_OK ||
        weft_mem_register(part, rank.memory, 64, &mem) != WEFT_OK) {
        return harness_say(shared, number, -1, "could not start: %s", weft_error_text());
    }
    if (number == 1) {
        weft_mem_deregister(rank.comm, &rank.mem[1]);
    }
    exchange(rank.comm, number);
    if (number == 0) {
        result = later->attack(&rank, part, &mem);
    }
    if (exchange(rank.comm, number) != WEFT_OK) {
        result = harness_say(shared, number, -1, "the communicator is hurt: %s", weft_error_text());
    }
    if (!is_untouched(rank.memory, LEN + 2 * MARGIN)) {
        result = harness_say(shared, number, -1, "memory was touched");
    }
    weft_mem_deregister(part, &mem);
    weft_comm_close(part);
    weft_comm_close(rank.comm);
    close_memory(&rank);
    return result;
}

static void check_later(struct later later)
{
    for (size_t path = 0; path < MESSAGES_PATHS; path++) {
        later.plan.path = messages_paths[path];
        struct harness *harness = harness_start(2, later_body, &later);
        messages_wait(harness, MESSAGES_WAIT_MS, messages_paths[path]);
        messages_check_fine(harness, messages_paths[path]);
        harness_close(harness);
    }
}

static void a_handle_of_another_communicator_is_refused(void **state)
{
    (void)state;
    check_later((struct later){{"", false}, use_elsewhere});
    check_later((struct later){{"", true}, use_elsewhere});
}

static void a_rank_that_is_not_of_the_part_is_refused(void **state)
{
    (void)state;
    check_later((struct later){{"", false}, name_an_outsider});
}

static void deregistered_memory_is_refused(void **state)
{
    (void)state;
    check_later((struct later){{"", false}, use_deregistered});
}

static void also_when_it_could_be_mapped(void **state)
{
    (void)state;
    check_later((struct later){{"", true}, use_deregistered});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(offsets_and_lengths_that_wrap_are_refused),
        cmocka_unit_test(signals_outside_or_unaligned_are_refused),
        cmocka_unit_test(every_flipped_bit_of_a_handle_is_noticed),
        cmocka_unit_test(a_forged_length_is_refused_by_the_owner),
        cmocka_unit_test(forged_ranks_and_registrations_are_refused),
        cmocka_unit_test(forged_regions_touch_nothing_outside),
        cmocka_unit_test(a_handle_of_another_communicator_is_refused),
        cmocka_unit_test(a_rank_that_is_not_of_the_part_is_refused),
        cmocka_unit_test(deregistered_memory_is_refused),
        cmocka_unit_test(also_when_it_could_be_mapped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
