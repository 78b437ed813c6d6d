/* SPDX-License-Identifier: Apache-2.0 */
/* Private to control: what who asks (shrink.c) and who decides (shrink_decide.c) share. */
#ifndef WEFT_CONTROL_SHRINK_H
#define WEFT_CONTROL_SHRINK_H

#include "control/internal.h"

#define PENDING 1   /* of SHRUNK */
#define WITHDRAWN 2 /* the same */
#define WITHDRAW 1  /* of SHRINK: I do not ask any more */
#define DECISIONS 8

/* A decision as it travels; lent. */
struct weft_shrink_word {
    uint64_t comm;
    uint32_t number;
    const uint8_t *bytes;
    size_t len;
};

struct weft_shrink_decision {
    struct weft_shrink_word word;
    uint8_t *bytes; /* owned */
};

struct weft_control_shrinks {
    struct weft_shrink_decision decisions[DECISIONS];
    uint32_t decided; /* ever */
    struct weft_list petitions;
};

/* ---- shrink.c ---- */
/* NULL: no memory. */
struct weft_control_shrinks *weft_shrinks_of(struct weft_control *control);
const struct weft_shrink_decision *weft_shrink_find(const struct weft_control *control,
                                                    uint64_t comm, uint32_t number);
/* Known here from now on, and to all neighbours but the one it came from (NULL: nobody). */
void weft_shrink_take(struct weft_control *control, const struct weft_shrink_word *news,
                      const struct weft_net_conn *from);
/* Answers to who asks here. */
void weft_shrink_told_withdrawn(const struct weft_control *control,
                                const struct weft_wire_frame *frame);
void weft_shrink_told_pending(struct weft_control *control, const struct weft_wire_frame *frame,
                              const uint8_t *payload);

/* ---- shrink_decide.c ---- */
/* Somebody asks, or does not any more; we coordinate. */
void weft_shrink_asked(struct weft_control *control, const struct weft_wire_frame *frame,
                       const uint8_t *payload);
void weft_shrink_petitions_close(struct weft_control_shrinks *shrinks);

#endif
