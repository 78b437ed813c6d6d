/* SPDX-License-Identifier: Apache-2.0 */
/* A connection whose insides are at hand: the plugin is linked, not loaded. */
#ifndef WEFT_TESTS_PLUGIN_INSIDE_H
#define WEFT_TESTS_PLUGIN_INSIDE_H

#include "nccl.h"
#include "plugin.h"

struct inside {
    struct plugin plugin;
    struct pair pair;
    struct weft_nccl_comm *sender, *receiver; /* the same */
};

/* helpers: how many threads; -1: by the machine. Nothing else may be open. */
void inside_open(int helpers, struct inside *inside_p);
void inside_close(struct inside *inside);
/* Until so many lanes of the sender are up. */
void inside_await_lanes(struct inside *inside, int count);
void inside_await_state(struct weft_nccl_comm *comm, uint32_t index,
                        enum weft_nccl_lane_state state);
struct weft_nccl_lane *inside_lane_of_slot(struct weft_nccl_comm *comm, uint32_t slot);
/* As the network would end it. */
void inside_reset(const struct weft_nccl_lane *lane);

/* While it is held nobody looks after lanes: none is dialled, found to be dead, or read because nobody else does. */
void inside_hold(void);
void inside_let_go(void);

#endif
