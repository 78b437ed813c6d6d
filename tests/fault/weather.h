/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a bad network does to each packet that passes a relay: a pure function of the seed, the flow and the packet's
 * number in it, so that a run that failed can be had again. A flow is one direction of one connection.
 */
#ifndef WEFT_TESTS_FAULT_WEATHER_H
#define WEFT_TESTS_FAULT_WEATHER_H

#include <stdbool.h>
#include <stdint.h>

/* All zero: nothing happens. Chances are of a thousand. */
struct weather {
    uint64_t seed;
    uint32_t delay_min_us, delay_max_us; /* of every packet, evenly */
    uint32_t loss, duplication, reordering;
    uint32_t reordering_us; /* so much later is one that others overtake */
};

struct weather_fate {
    unsigned copies; /* 0: lost; 2: duplicated */
    uint32_t delay_us[2];
};

static inline uint64_t weather_mix(uint64_t z)
{
    z += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* The question-th number that was drawn for a packet. */
static inline uint64_t weather_draw(const struct weather *weather, uint32_t flow, uint64_t number,
                                    uint32_t question)
{
    uint64_t key = weather_mix(weather->seed) ^ weather_mix(((uint64_t)flow << 32) | question);
    return weather_mix(key + weather_mix(number));
}

static inline bool weather_happens(const struct weather *weather, uint32_t flow, uint64_t number,
                                   uint32_t question, uint32_t chance)
{
    return weather_draw(weather, flow, number, question) % 1000 < chance;
}

static inline uint32_t weather_delay(const struct weather *weather, uint32_t flow, uint64_t number,
                                     uint32_t question)
{
    uint64_t span = (uint64_t)weather->delay_max_us - weather->delay_min_us + 1;
    return weather->delay_min_us + (uint32_t)(weather_draw(weather, flow, number, question) % span);
}

static inline struct weather_fate weather_fate(const struct weather *weather, uint32_t flow,
                                               uint64_t number)
{
    struct weather_fate fate = {.copies = 1};
    if (weather_happens(weather, flow, number, 0, weather->loss)) {
        fate.copies = 0;
        return fate;
    }
    if (weather_happens(weather, flow, number, 1, weather->duplication)) {
        fate.copies = 2;
    }
    fate.delay_us[0] = weather_delay(weather, flow, number, 2);
    fate.delay_us[1] = weather_delay(weather, flow, number, 3);
    if (weather_happens(weather, flow, number, 4, weather->reordering)) {
        fate.delay_us[0] += weather->reordering_us;
    }
    return fate;
}

static inline bool weather_delays(const struct weather *weather)
{
    return weather->delay_max_us > 0 || weather->reordering > 0;
}

#endif
