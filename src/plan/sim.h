/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of the model run: sim.c (ranks and their clocks), sim_message.c, sim_flags.c (shared memory),
 * sim_classes.c (which ranks need not be run), sim_costs.c (how long a step keeps a core busy).
 */
#ifndef WEFT_PLAN_SIM_H
#define WEFT_PLAN_SIM_H

#include "plan/model.h"

#define WEFT_SIM_NONE UINT32_MAX

enum sim_state { SIM_READY, SIM_BLOCKED, SIM_DONE };

/* A rank that is run: every one, or one for all of its class. */
struct sim_actor {
    double clock;
    struct weft_plan_parts parts; /* of the clock */
    uint32_t rank, host;
    uint32_t round, rounds, index;
    uint8_t state;
    bool is_posted;    /* the receives of the round are */
    bool is_waiting;   /* the steps of the round are begun; its receives are waited for */
    bool has_received; /* in this round */
    bool has_waited;   /* it slept for the message or flag that it looks at now */
    uint32_t first_note, last_note; /* receives of this round, in their order */
    uint32_t shown;                 /* flags: the latest value */
    uint32_t awaited;               /* AWAIT of all: how many are seen */
    uint32_t first_waiter, next_waiter;
    uint32_t hop; /* the latest of its critical path */
    double sent_inside, sent_between;
};

/* A message: sent, expected, or both. */
struct sim_note {
    double bytes;
    double sent_at, posted_at; /* < 0: not yet */
    double first, last;        /* when its first and last byte are there */
    struct weft_plan_parts parts;
    uint32_t sender, receiver; /* actors; the receiver once it is posted */
    uint32_t offset;           /* from the sender's rank to the receiver's */
    uint32_t next; /* in the channel, then in the receiver's round, then in the free list */
    uint32_t next_pending;
    uint32_t hop;
    bool is_between, is_moved, is_reduced;
    bool is_exchanged; /* the receiver sends to the sender in the same round */
};

struct sim_channel {
    uint64_t key; /* sender and offset */
    uint32_t first, last;
    uint32_t run;    /* belongs to this run; an older one is empty */
    uint32_t posted; /* round of the receiver in which it posted the latest, + 1 */
};

struct sim_host {
    double out_free, in_free; /* NICs */
    double out_bytes, in_bytes;
};

struct sim_event {
    double time;
    uint64_t tie;
    uint32_t actor;
};

struct sim_hop {
    uint32_t parent, offset, round;
    double time_s;
};

struct weft_plan_sim {
    const struct weft_plan_facts *facts;
    const struct weft_plan *plan;
    const struct weft_plan_run *run;
    uint32_t symmetry, actors;
    uint32_t number; /* of this run: what older runs left is not there */
    double block_bytes;
    double share;   /* a core's work takes so many times as long */
    bool is_queued; /* ranks queue for the cores of their host */
    bool is_past_cache;
    bool has_no_memory;
    double memory_rate; /* for one core, the others being busy */
    double written;     /* bytes by cores */
    uint64_t steps, messages;

    struct sim_actor *actor;
    struct sim_host *host;
    double *core_free; /* [hosts][cores], when they are queued for */
    double *shown_at;  /* [actors][shows + 1] */
    struct sim_event *event;
    uint32_t event_count;
    struct sim_note *note;
    uint32_t note_count, free_note;
    struct sim_channel *channel;
    uint32_t channel_room, channel_count; /* room: a power of two */
    struct sim_hop *hop;
    uint32_t hop_count;
    struct weft_plan_hop *path;
    uint32_t path_count;
    size_t room[8]; /* of the arrays, in elements */
};

/* At least count elements of size; the memory of array number `which`. NULL: no memory. */
void *weft_sim_grow(struct weft_plan_sim *sim, unsigned which, void *memory, size_t count,
                    size_t size);
enum sim_array {
    SIM_ACTORS,
    SIM_HOSTS,
    SIM_CORES,
    SIM_SHOWN,
    SIM_EVENTS,
    SIM_NOTES,
    SIM_HOPS,
    SIM_PATH,
};

/* ---- sim.c ---- */
/* Keeps the actor's core busy from its clock on; part is a member of its parts. */
void weft_sim_work(struct weft_plan_sim *sim, struct sim_actor *actor, double seconds,
                   double *part);
/* Getting a core again, if the actor has waited and there are too few. */
void weft_sim_waited(struct weft_plan_sim *sim, struct sim_actor *actor, double wait_s);
void weft_sim_wake(struct weft_plan_sim *sim, uint32_t actor, double time);
/* The actor's past is now that of another: it could not go on before. */
uint32_t weft_sim_hop(struct weft_plan_sim *sim, uint32_t parent, uint32_t offset, uint32_t round,
                      double time_s);

/* ---- sim_flags.c ---- */
void weft_sim_show(struct weft_plan_sim *sim, uint32_t number, uint32_t value);
/* false: blocked, or to be tried again at the actor's clock. */
bool weft_sim_await(struct weft_plan_sim *sim, uint32_t number, const struct weft_plan_step *step);

/* ---- sim_message.c ---- */
void weft_sim_send(struct weft_plan_sim *sim, uint32_t actor, uint32_t peer, double bytes);
void weft_sim_post(struct weft_plan_sim *sim, uint32_t actor, uint32_t peer, bool is_reduced);
/* Takes the next message of the round. false: blocked, or to be tried again at the actor's clock. */
bool weft_sim_receive(struct weft_plan_sim *sim, struct sim_actor *actor);

/* ---- sim_classes.c ---- */
uint32_t weft_sim_symmetry(const struct weft_plan *plan);
/* How many ranks are to be run: all, or as many as a host has, or one. */
uint32_t weft_sim_classes(const struct weft_plan_facts *facts, uint32_t symmetry);
/* The step at *index, which is moved behind it; copies that follow each other are one. false: none. */
bool weft_sim_read(const struct weft_plan *plan, uint32_t rank, uint32_t round, uint32_t *index,
                   struct weft_plan_step *step_p);
uint32_t weft_sim_offset(const struct weft_plan_sim *sim, uint32_t from, uint32_t to);
uint32_t weft_sim_back(const struct weft_plan_sim *sim, uint32_t to, uint32_t offset); /* from */

/* ---- sim_costs.c ---- */
double weft_sim_copy_s(struct weft_plan_sim *sim, const struct weft_plan_step *step);
double weft_sim_reduce_s(struct weft_plan_sim *sim, double bytes, uint32_t sources);
const struct weft_plan_path *weft_sim_path_of(const struct weft_plan_sim *sim, bool is_between);
double weft_sim_flag_s(const struct weft_plan_sim *sim);

#endif
