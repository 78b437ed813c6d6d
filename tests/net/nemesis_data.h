/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to the nemesis's operations: what they are drawn from, and what ranks give to them, which everybody can
 * compute.
 */
#ifndef WEFT_TESTS_NET_NEMESIS_DATA_H
#define WEFT_TESTS_NET_NEMESIS_DATA_H

#include "nemesis.h"

#include <string.h>

struct dice {
    uint64_t key, count;
};

static inline uint64_t mix(uint64_t z)
{
    z += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static inline uint64_t roll(struct dice *dice, uint64_t sides)
{
    return mix(dice->key + ++dice->count) % sides;
}

/* As many of each order of magnitude, the longest seldom. */
static inline size_t roll_count(struct dice *dice, size_t most)
{
    uint64_t orders = roll(dice, 8) == 0 ? 20 : 15;
    size_t count = (size_t)1 << roll(dice, orders);
    count += (size_t)roll(dice, count);
    return count < most ? count : most;
}

/* Element i of what a rank gives to an operation: small, so that sums of floats are exact too. */
static inline uint32_t element(uint64_t op, int number, size_t i)
{
    uint64_t key = op * 64 + (uint64_t)number + 1;
    return (uint32_t)(((key * UINT64_C(0x9e3779b97f4a7c15)) ^ (i * UINT64_C(0xbf58476d1ce4e5b9))) >>
                      44);
}

static inline bool complain(struct rank *rank, const char *what, size_t at)
{
    rank->is_wrong = true;
    nemesis_tell("wrong", what, "\"op\": %llu, \"at\": %zu", (unsigned long long)rank->next, at);
    return false;
}

static inline uint32_t read_u32(const uint8_t *data, size_t i)
{
    uint32_t word;
    memcpy(&word, data + i * sizeof(word), sizeof(word));
    return word;
}

static inline void write_u32(uint8_t *data, size_t i, uint32_t word)
{
    memcpy(data + i * sizeof(word), &word, sizeof(word));
}

static inline void fill(uint8_t *data, uint64_t op, int number, size_t first, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        write_u32(data, i, element(op, number, first + i));
    }
}

static inline bool is_filled(struct rank *rank, const char *what, const uint8_t *data, int number,
                             size_t first, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (read_u32(data, i) != element(rank->next, number, first + i)) {
            return complain(rank, what, i);
        }
    }
    return true;
}

/* nemesis_collectives.c */
weft_status_t nemesis_collective(struct rank *rank, struct team *team, struct dice *dice);

#endif
