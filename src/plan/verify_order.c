/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Happened before. Every rank counts what it made visible: SHOWs, SENDs, ends of operations, ANY steps. Its
 * clock says for every rank how much of that it has seen, itself or by way of others. What a rank does at its
 * own time t has happened before a rank whose clock has more than t of it; two accesses to the same element
 * that are not so ordered, one of them a write, are a mistake, whatever order this run had them in.
 */
#include "plan/verify.h"

#include <stdlib.h>
#include <string.h>

/* ---- clocks ---- */

uint32_t *weft_verify_clock(const struct run *run, uint32_t rank)
{
    return &run->clock[(size_t)rank * run->ranks];
}

void weft_verify_join(const struct run *run, uint32_t *clock, const uint32_t *other)
{
    for (uint32_t i = 0; i < run->ranks; i++) {
        clock[i] = other[i] > clock[i] ? other[i] : clock[i];
    }
}

/* Everything so far is visible to whoever joins the rank's clock from now on. */
const uint32_t *weft_verify_publish(struct run *run, const struct actor *actor)
{
    uint32_t *clock = weft_verify_clock(run, actor->rank);
    clock[actor->rank]++;
    return clock;
}

uint32_t *weft_verify_clock_copy(struct run *run, const uint32_t *clock)
{
    uint32_t *copy = malloc(run->ranks * sizeof(*copy));
    if (copy == NULL) {
        (void)weft_verify_no_memory(run);
        return NULL;
    }
    memcpy(copy, clock, run->ranks * sizeof(*copy));
    return copy;
}

bool weft_verify_has_seen(const struct run *run, const struct actor *actor, uint32_t rank,
                          uint32_t time)
{
    return rank == actor->rank || weft_verify_clock(run, actor->rank)[rank] > time;
}

uint32_t *weft_verify_clock_send(struct run *run, struct actor *actor)
{
    return weft_verify_clock_copy(run, weft_verify_publish(run, actor));
}

void weft_verify_clock_recv(struct run *run, struct actor *actor, const uint32_t *clock)
{
    if (clock != NULL) {
        weft_verify_join(run, &run->incoming[(size_t)actor->rank * run->ranks], clock);
    }
}

void weft_verify_clock_join(struct run *run, struct actor *actor)
{
    weft_verify_join(run, weft_verify_clock(run, actor->rank),
                     &run->incoming[(size_t)actor->rank * run->ranks]);
}

/* ---- memory ---- */

static bool say_race(struct run *run, const struct actor *actor, bool is_write, uint32_t rank,
                     bool was_write)
{
    return weft_verify_fail(run, actor, "%s what rank %u %s, and nothing says that it was before",
                            is_write ? "writes to" : "reads", rank, was_write ? "writes" : "reads");
}

/* ANY steps of one operation are in no order, even if one rank does two of them. */
static bool touch_any(struct run *run, const struct actor *actor, struct touch *touch,
                      bool is_write)
{
    uint32_t other;
    if (actor->any_now == 0) {
        return true;
    }
    if (touch->any_op != actor->op + 1) {
        touch->any_op = actor->op + 1;
        touch->any_writer = touch->any_reader = 0;
    }
    other = touch->any_writer == 0 && is_write ? touch->any_reader : touch->any_writer;
    if (other != 0 && other != actor->any_now) {
        return weft_verify_fail(run, actor, "ANY steps %u and %u touch the same memory", other - 1,
                                actor->any_now - 1);
    }
    if (is_write) {
        touch->any_writer = actor->any_now;
    } else if (touch->any_reader == 0) {
        touch->any_reader = actor->any_now;
    }
    return true;
}

static bool add_reader(struct run *run, const struct actor *actor, struct touch *touch)
{
    uint32_t now = weft_verify_clock(run, actor->rank)[actor->rank];
    if (touch->readers == NULL && (touch->reader == NOBODY || touch->reader == actor->rank)) {
        touch->reader = actor->rank;
        touch->read_at = now;
        return true;
    }
    if (touch->readers == NULL) {
        touch->readers = calloc(run->ranks, sizeof(*touch->readers));
        if (touch->readers == NULL) {
            return weft_verify_no_memory(run);
        }
        touch->readers[touch->reader] = touch->read_at + 1;
    }
    touch->readers[actor->rank] = now + 1;
    return true;
}

static bool has_seen_writer(struct run *run, const struct actor *actor, const struct touch *touch,
                            bool is_write)
{
    return touch->writer == NOBODY ||
           weft_verify_has_seen(run, actor, touch->writer, touch->written_at) ||
           say_race(run, actor, is_write, touch->writer, true);
}

static bool has_seen_readers(struct run *run, const struct actor *actor, const struct touch *touch)
{
    if (touch->readers == NULL) {
        return touch->reader == NOBODY ||
               weft_verify_has_seen(run, actor, touch->reader, touch->read_at) ||
               say_race(run, actor, true, touch->reader, false);
    }
    for (uint32_t rank = 0; rank < run->ranks; rank++) {
        if (touch->readers[rank] != 0 &&
            !weft_verify_has_seen(run, actor, rank, touch->readers[rank] - 1)) {
            return say_race(run, actor, true, rank, false);
        }
    }
    return true;
}

static bool read_cell(struct run *run, const struct actor *actor, struct touch *touch)
{
    return has_seen_writer(run, actor, touch, false) && touch_any(run, actor, touch, false) &&
           add_reader(run, actor, touch);
}

static bool write_cell(struct run *run, const struct actor *actor, struct touch *touch)
{
    if (!has_seen_writer(run, actor, touch, true) || !has_seen_readers(run, actor, touch) ||
        !touch_any(run, actor, touch, true)) {
        return false;
    }
    touch->writer = actor->rank;
    touch->written_at = weft_verify_clock(run, actor->rank)[actor->rank];
    touch->reader = NOBODY;
    free(touch->readers);
    touch->readers = NULL;
    return true;
}

bool weft_verify_touch_read(struct run *run, const struct actor *actor, const struct extent *extent)
{
    for (uint32_t i = 0; i < extent->len; i++) {
        if (!read_cell(run, actor, &run->touch[extent->cell + i])) {
            return false;
        }
    }
    return true;
}

bool weft_verify_touch_write(struct run *run, const struct actor *actor,
                             const struct extent *extent)
{
    for (uint32_t i = 0; i < extent->len; i++) {
        if (!write_cell(run, actor, &run->touch[extent->cell + i])) {
            return false;
        }
    }
    return true;
}
