/* SPDX-License-Identifier: Apache-2.0 */
/* Names and sentences of the counters; the counting itself is inline in the header. */
#include "watch/watch.h"

static const struct {
    const char *name, *sentence;
} counters[WEFT_COUNTER_COUNT] = {
#define COUNTER_TEXTS(id, name, sentence) {name, sentence},
    WEFT_COUNTERS(COUNTER_TEXTS)
#undef COUNTER_TEXTS
};

const char *weft_counter_name(enum weft_counter which)
{
    return counters[which].name;
}

const char *weft_counter_sentence(enum weft_counter which)
{
    return counters[which].sentence;
}
