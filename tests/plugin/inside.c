/* SPDX-License-Identifier: Apache-2.0 */
#include "inside.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

extern const struct nccl_net_v11 ncclNetPlugin_v11;

static void logger(int level, unsigned long subsystems, const char *file, int line, const char *fmt,
                   ...)
{
    va_list args;
    (void)subsystems;
    (void)file;
    (void)line;
    if (level <= NCCL_LOG_WARN || getenv("PLUGIN_INFO") != NULL) {
        va_start(args, fmt);
        vfprintf(stderr, fmt, args);
        va_end(args);
        fputc('\n', stderr);
    }
}

void inside_open(int helpers, struct inside *inside_p)
{
    *inside_p = (struct inside){.plugin = {.version = 11, .net.v11 = &ncclNetPlugin_v11}};
    assert_int_equal(0, ncclNetPlugin_v11.init(&inside_p->plugin.context, 7, NULL, logger, NULL));
    weft_nccl_core.params.number[WEFT_PARAM_NCCL_HELPERS] = helpers;
    pair_open(&inside_p->plugin, &inside_p->pair);
    inside_p->sender = inside_p->pair.sender;
    inside_p->receiver = inside_p->pair.receiver;
}

void inside_close(struct inside *inside)
{
    pair_close(&inside->plugin, &inside->pair);
}

void inside_await_lanes(struct inside *inside, int count)
{
    double start = now_s();
    while (__builtin_popcount(weft_nccl_comm_up(inside->sender)) < count ||
           __builtin_popcount(weft_nccl_comm_up(inside->receiver)) < count) {
        assert_true(now_s() - start < PLUGIN_DEADLINE_S);
        sched_yield();
    }
}

void inside_await_state(struct weft_nccl_comm *comm, uint32_t index,
                        enum weft_nccl_lane_state state)
{
    double start = now_s();
    bool is_there = false;
    while (!is_there) {
        pthread_mutex_lock(&comm->lock);
        is_there = comm->lanes[index]->state == state;
        pthread_mutex_unlock(&comm->lock);
        assert_true(now_s() - start < PLUGIN_DEADLINE_S);
        sched_yield();
    }
}

struct weft_nccl_lane *inside_lane_of_slot(struct weft_nccl_comm *comm, uint32_t slot)
{
    struct weft_nccl_lane *found = NULL;
    pthread_mutex_lock(&comm->lock);
    for (uint32_t i = 0; i < atomic_load(&comm->lane_count); i++) {
        struct weft_nccl_lane *lane = comm->lanes[i];
        found = lane->state == WEFT_NCCL_LANE_UP && lane->slot == slot ? lane : found;
    }
    pthread_mutex_unlock(&comm->lock);
    return found;
}

/* Whoever owns the lane finds it reset by what the kernel says, an order that the thread sanitizer does not see. */
__attribute__((no_sanitize("thread"))) void inside_reset(const struct weft_nccl_lane *lane)
{
    const struct sockaddr nowhere = {.sa_family = AF_UNSPEC};
    assert_int_equal(0, syscall(SYS_connect, lane->fd, &nowhere, sizeof(nowhere)));
}

void inside_hold(void)
{
    weft_engine_lock(weft_nccl_core.engine);
}

void inside_let_go(void)
{
    weft_engine_unlock(weft_nccl_core.engine);
}
