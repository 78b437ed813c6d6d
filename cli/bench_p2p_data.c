/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes that travel: each follows from its place and a seed, so that a byte of another place,
 * another batch or another sender is seen as wrong. */
#include "bench_p2p.h"

#include <string.h>

#define ODD UINT64_C(0x9e3779b97f4a7c15) /* spreads neighbours over all 64 bits */

uint64_t weft_bench_p2p_seed(size_t bytes, uint32_t batch, int sender)
{
    uint64_t seed = ((uint64_t)bytes * ODD) ^ ((uint64_t)batch << 20) ^ (uint64_t)sender;
    return seed * ODD + 1;
}

static uint64_t word_at(uint64_t seed, size_t index)
{
    uint64_t word = (seed + index) * ODD;
    return word ^ (word >> 32);
}

void weft_bench_p2p_fill(uint8_t *data, size_t len, uint64_t seed)
{
    size_t words = len / sizeof(uint64_t);
    for (size_t i = 0; i < words; i++) {
        uint64_t word = word_at(seed, i);
        memcpy(data + i * sizeof(word), &word, sizeof(word));
    }
    uint64_t last = word_at(seed, words);
    memcpy(data + words * sizeof(last), &last, len % sizeof(last));
}

/* The bytes of one word that differ; where the first is, if none was seen before. */
static uint64_t differ_in_word(const uint8_t *data, const uint8_t *want, size_t len, size_t base,
                               size_t *at_p, uint64_t before)
{
    uint64_t wrong = 0;
    for (size_t k = 0; k < len; k++) {
        if (data[k] != want[k]) {
            if (before + wrong == 0) {
                *at_p = base + k;
            }
            wrong++;
        }
    }
    return wrong;
}

uint64_t weft_bench_p2p_differ(const uint8_t *data, size_t len, uint64_t seed, size_t *at_p)
{
    uint64_t wrong = 0;
    for (size_t base = 0; base < len; base += sizeof(uint64_t)) {
        uint64_t want = word_at(seed, base / sizeof(want));
        size_t part = len - base < sizeof(want) ? len - base : sizeof(want);
        if (memcmp(data + base, &want, part) != 0) {
            uint8_t bytes[sizeof(want)];
            memcpy(bytes, &want, sizeof(want));
            wrong += differ_in_word(data + base, bytes, part, base, at_p, wrong);
        }
    }
    return wrong;
}
