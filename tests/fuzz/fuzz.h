/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the fuzz targets. The first byte of an input is a set of mending bits: blind mutation
 * never guesses a CRC or a MAC, so most inputs ask for theirs to be made right, in order to reach
 * what lies behind them.
 */
#ifndef WEFT_TESTS_FUZZ_H
#define WEFT_TESTS_FUZZ_H

#include "wire/messages.h"

#include <stdio.h>
#include <stdlib.h>

/* Not assert(): must hold in every build. */
#define FUZZ_CHECK(claim)                                                                          \
    do {                                                                                           \
        if (!(claim)) {                                                                            \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #claim);                  \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

const char *__asan_default_options(void);

/* What is freed is watched for many inputs, but not so long that it has left the caches: it can be used wrongly within
 * its own only. And a few callers tell where it was made. */
const char *__asan_default_options(void)
{
    return "quarantine_size_mb=4:malloc_context_size=8";
}

/* Both ends of the handshake in the fuzz targets and in the seeds. */
static const uint8_t fuzz_key[WEFT_WIRE_KEY_LEN] = "the key of all fuzzed handshakes";
static const uint8_t fuzz_nonce[2][WEFT_WIRE_NONCE_LEN] = {"the server's, used only once....",
                                                           "the client's, used only once...."};

static inline struct weft_wire_self fuzz_self(uint32_t rank, uint32_t ranks)
{
    return (struct weft_wire_self){.key = fuzz_key,
                                   .is_authenticated = true,
                                   .job = "a fuzzed job",
                                   .epoch = 1,
                                   .rank = rank,
                                   .ranks = ranks};
}

static inline bool fuzz_is_printable(const char *text, size_t room)
{
    size_t len = strnlen(text, room);

    if (len == room) {
        return false;
    }
    for (size_t i = 0; i < len; i++) {
        if ((uint8_t)text[i] < 0x20 || text[i] == 0x7f) {
            return false;
        }
    }
    return true;
}

/* Feeds all bytes in pieces of `step`; returns how many were taken. */
static inline size_t fuzz_feed(struct weft_wire_handshake *shake, const uint8_t *bytes, size_t len,
                               size_t step)
{
    size_t done = 0;

    while (done < len && shake->state == WEFT_WIRE_WANT_BYTES) {
        size_t piece = step < len - done ? step : len - done;
        size_t used;

        weft_wire_feed(shake, bytes + done, piece, &used);
        FUZZ_CHECK(used <= piece);
        FUZZ_CHECK(used == piece || shake->state != WEFT_WIRE_WANT_BYTES);
        done += used;
    }
    return done;
}

/* However the bytes were cut, the outcome is the same. */
static inline void fuzz_check_same(const struct weft_wire_handshake *a,
                                   const struct weft_wire_handshake *b)
{
    FUZZ_CHECK(a->state == b->state && a->status == b->status);
    FUZZ_CHECK(strcmp(a->reason, b->reason) == 0);
    FUZZ_CHECK(fuzz_is_printable(a->reason, sizeof(a->reason)));
    FUZZ_CHECK(a->out_len == b->out_len && a->out_len <= sizeof(a->out));
    FUZZ_CHECK(memcmp(a->out, b->out, a->out_len) == 0);
    FUZZ_CHECK((a->state == WEFT_WIRE_FAILED) == (a->status != WEFT_OK));
}

#endif
