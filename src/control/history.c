/* SPDX-License-Identifier: Apache-2.0 */
/* The verdicts so far: whoever gets a new neighbour tells it all of them, because some may have been on their way over
 * the one that is gone; in the order in which they were given, for the first one that concerns a communicator is its
 * own. Of ranks every one is kept, of communicators the latest. */
#include "control/internal.h"

#include <stdlib.h>

#define COMMS_MAX 32

struct verdict {
    uint64_t place; /* how many came before */
    uint64_t comm;
    struct weft_wire_notice notice;
};

struct weft_control_history {
    struct verdict *ranks; /* owned */
    uint32_t rank_count, rank_room;
    struct verdict comms[COMMS_MAX];
    uint32_t comm_count; /* ever */
    uint64_t count;      /* of both, ever */
};

static struct verdict *next_of_ranks(struct weft_control_history *history)
{
    if (history->rank_count == history->rank_room) {
        uint32_t room = history->rank_room > 0 ? 2 * history->rank_room : 8;
        struct verdict *grown = realloc(history->ranks, room * sizeof(*grown));
        if (grown == NULL) {
            return NULL;
        }
        history->ranks = grown;
        history->rank_room = room;
    }
    return &history->ranks[history->rank_count++];
}

void weft_control_history_add(struct weft_control *control, uint64_t comm,
                              const struct weft_wire_notice *notice)
{
    struct verdict *verdict;
    if (control->history == NULL) {
        control->history = calloc(1, sizeof(*control->history));
    }
    if (control->history == NULL) {
        return; /* who comes later hears less */
    }
    verdict = comm == 0 ? next_of_ranks(control->history)
                        : &control->history->comms[control->history->comm_count++ % COMMS_MAX];
    if (verdict != NULL) {
        *verdict =
            (struct verdict){.place = control->history->count++, .comm = comm, .notice = *notice};
    }
}

static uint32_t comms_kept(const struct weft_control_history *history)
{
    return history->comm_count < COMMS_MAX ? history->comm_count : COMMS_MAX;
}

bool weft_control_history_has(const struct weft_control *control, uint64_t comm)
{
    for (uint32_t i = 0; control->history != NULL && i < comms_kept(control->history); i++) {
        if (control->history->comms[i].comm == comm) {
            return true;
        }
    }
    return false;
}

const struct weft_wire_notice *weft_control_history_find(const struct weft_control *control,
                                                         uint32_t rank)
{
    const struct weft_control_history *history = control->history;
    for (uint32_t i = 0; history != NULL && i < history->rank_count; i++) {
        if (history->ranks[i].notice.rank == rank) {
            return &history->ranks[i].notice;
        }
    }
    return NULL;
}

static void tell(struct weft_control *control, struct weft_net_conn *conn, enum weft_wire_type type,
                 const struct verdict *verdict)
{
    struct weft_wire_frame frame = {.type = (uint8_t)type,
                                    .comm = verdict->comm,
                                    .src = control->self.rank,
                                    .dst = WEFT_WIRE_NO_RANK};
    uint8_t bytes[WEFT_WIRE_NOTICE_MAX];
    weft_control_say(conn, &frame, bytes, weft_wire_notice_encode(&verdict->notice, bytes));
}

uint32_t weft_control_history_tell(struct weft_control *control, struct weft_net_conn *conn,
                                   enum weft_wire_type type)
{
    const struct weft_control_history *history = control->history;
    uint32_t kept = history != NULL ? comms_kept(history) : 0;
    uint32_t count = history != NULL ? history->rank_count + kept : 0;
    for (uint32_t rank = 0, comm = 0; rank + comm < count;) {
        const struct verdict *of_comm =
            comm < kept ? &history->comms[(history->comm_count - kept + comm) % COMMS_MAX] : NULL;
        if (of_comm != NULL &&
            (rank == history->rank_count || of_comm->place < history->ranks[rank].place)) {
            tell(control, conn, type, of_comm);
            comm++;
        } else {
            tell(control, conn, type, &history->ranks[rank++]);
        }
    }
    return count;
}

void weft_control_history_close(struct weft_control *control)
{
    if (control->history != NULL) {
        free(control->history->ranks);
        free(control->history);
        control->history = NULL;
    }
}
