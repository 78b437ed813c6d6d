/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CRC32C (Castagnoli, reflected polynomial 0x82f63b78): finds every error of up to five bits in our
 * headers. The CPU's instruction where there is one, else eight tables that take eight bytes per
 * step.
 */
#include "wire/bytes.h"
#include "wire/wire.h"

#include <pthread.h>

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#endif

#define POLYNOMIAL 0x82f63b78u

/* table[k][b]: the CRC of byte b followed by k zero bytes */
static uint32_t table[8][256];
static pthread_once_t table_once = PTHREAD_ONCE_INIT;

static void table_fill(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;

        for (int bit = 0; bit < 8; bit++) {
            crc = (crc & 1) != 0 ? crc >> 1 ^ POLYNOMIAL : crc >> 1;
        }
        table[0][byte] = crc;
    }
    for (int k = 1; k < 8; k++) {
        for (int byte = 0; byte < 256; byte++) {
            uint32_t before = table[k - 1][byte];

            table[k][byte] = before >> 8 ^ table[0][before & 0xff];
        }
    }
}

static uint32_t crc_portable(uint32_t crc, const uint8_t *at, size_t len)
{
    pthread_once(&table_once, table_fill);
    for (; len >= 8; at += 8, len -= 8) {
        uint32_t low = crc ^ get_u32(at);
        uint32_t high = get_u32(at + 4);

        crc = table[7][low & 0xff] ^ table[6][low >> 8 & 0xff] ^ table[5][low >> 16 & 0xff] ^
              table[4][low >> 24] ^ table[3][high & 0xff] ^ table[2][high >> 8 & 0xff] ^
              table[1][high >> 16 & 0xff] ^ table[0][high >> 24];
    }
    for (; len > 0; at++, len--) {
        crc = crc >> 8 ^ table[0][(crc ^ *at) & 0xff];
    }
    return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t crc_native(uint32_t crc, const uint8_t *at,
                                                             size_t len)
{
    uint64_t wide = crc;

    for (; len >= 8; at += 8, len -= 8) {
        wide = _mm_crc32_u64(wide, get_u64(at));
    }
    crc = (uint32_t)wide;
    for (; len > 0; at++, len--) {
        crc = _mm_crc32_u8(crc, *at);
    }
    return crc;
}

static bool has_native(void)
{
    return __builtin_cpu_supports("sse4.2") != 0;
}
#elif defined(__ARM_FEATURE_CRC32)
static uint32_t crc_native(uint32_t crc, const uint8_t *at, size_t len)
{
    for (; len >= 8; at += 8, len -= 8) {
        crc = __crc32cd(crc, get_u64(at));
    }
    for (; len > 0; at++, len--) {
        crc = __crc32cb(crc, *at);
    }
    return crc;
}

static bool has_native(void)
{
    return true;
}
#else
static uint32_t crc_native(uint32_t crc, const uint8_t *at, size_t len)
{
    return crc_portable(crc, at, len);
}

static bool has_native(void)
{
    return false;
}
#endif

typedef uint32_t (*crc_fn)(uint32_t crc, const uint8_t *at, size_t len);

static uint32_t crc_choose(uint32_t crc, const uint8_t *at, size_t len);

/* Threads may race to choose; all of them choose the same. */
static _Atomic(crc_fn) chosen = crc_choose;

static uint32_t crc_choose(uint32_t crc, const uint8_t *at, size_t len)
{
    crc_fn choice = has_native() ? crc_native : crc_portable;

    atomic_store_explicit(&chosen, choice, memory_order_relaxed);
    return choice(crc, at, len);
}

uint32_t weft_wire_crc32c(uint32_t crc, const void *data, size_t len)
{
    return ~atomic_load_explicit(&chosen, memory_order_relaxed)(~crc, data, len);
}

uint32_t weft_wire_crc32c_portable(uint32_t crc, const void *data, size_t len)
{
    return ~crc_portable(~crc, data, len);
}
