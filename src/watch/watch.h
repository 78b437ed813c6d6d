/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch: what the library counts and remembers. One block of counters per engine, written by its driver,
 * read by anyone; one flight recorder per rank (recorder.h). (Traces and metrics join this room later.)
 */
#ifndef WEFT_WATCH_H
#define WEFT_WATCH_H

#include "base/base.h"
#include "watch/recorder.h"

/* X(NAME, "name", "sentence") */
#define WEFT_COUNTERS(X)                                                                           \
    X(ROUNDS, "rounds", "poll rounds driven")                                                      \
    X(SLEEPS, "sleeps", "times a driver slept in epoll")                                           \
    X(ACCEPTED, "accepted", "connections accepted")                                                \
    X(STRANGERS, "strangers", "connections refused before they proved membership")                 \
    X(EVICTED, "evicted", "silent connections closed to make room")                                \
    X(FRAMES_IN, "frames_in", "control frames received")                                           \
    X(FRAMES_OUT, "frames_out", "control frames sent")                                             \
    X(BYTES_IN, "bytes_in", "control bytes received")                                              \
    X(BYTES_OUT, "bytes_out", "control bytes sent")                                                \
    X(FORWARDED, "forwarded", "control frames passed on for others")                               \
    X(SUNK, "sunk", "frames dropped because their communicator is closed")                         \
    X(HEARTBEATS, "heartbeats", "heartbeats sent")                                                 \
    X(SILENCES, "silences", "times a rank fell silent")

enum weft_counter {
#define WEFT_COUNTER_ENUM(id, name, sentence) WEFT_COUNTER_##id,
    WEFT_COUNTERS(WEFT_COUNTER_ENUM)
#undef WEFT_COUNTER_ENUM
        WEFT_COUNTER_COUNT
};

struct weft_counters {
    _Atomic uint64_t value[WEFT_COUNTER_COUNT];
};

/* Relaxed: counters order nothing. */
static inline void weft_count(struct weft_counters *counters, enum weft_counter which, uint64_t by)
{
    atomic_fetch_add_explicit(&counters->value[which], by, memory_order_relaxed);
}
static inline uint64_t weft_counter_read(const struct weft_counters *counters,
                                         enum weft_counter which)
{
    return atomic_load_explicit(&counters->value[which], memory_order_relaxed);
}
const char *weft_counter_name(enum weft_counter which);
const char *weft_counter_sentence(enum weft_counter which);

#endif
