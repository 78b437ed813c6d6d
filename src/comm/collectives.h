/* SPDX-License-Identifier: Apache-2.0 */
/* Private to comm: the collectives of one communicator. */
#ifndef WEFT_COMM_COLLECTIVES_H
#define WEFT_COMM_COLLECTIVES_H

#include "comm/internal.h"
#include "exec/exec.h"
#include "plan/model.h"

#include <string.h>

#define WEFT_COLLECTIVE_PROBE 16
#define WEFT_COLLECTIVE_KEPT 256 /* calls that are remembered, for comparing with others' */
#define WEFT_COLLECTIVE_SHAPES 64
#define WEFT_COLLECTIVE_CHOICES 256

/* A call, as the ranks compare it. */
struct weft_comm_note {
    uint32_t number;
    uint32_t signature;
    uint32_t chain; /* of the signatures of all calls up to this one */
    uint8_t coll, dtype, op;
    uint32_t root;
    uint32_t controls; /* calls of the control plane before it */
    uint64_t count;
};

/* What a rank has told the coordinator last. */
struct weft_comm_report {
    struct weft_comm_note note;
    uint32_t missing; /* whom it waits for; or NO_RANK */
    uint32_t inquiry; /* it came since this one began */
    bool is_there;
};

/* Somebody's time is up: all ranks are asked whether they have come. */
struct weft_comm_inquiry {
    struct weft_engine_timer timer; /* set: it is under way */
    uint32_t number;                /* how many there were */
    struct weft_comm_note note;     /* the call that is late */
    uint32_t missing;               /* whom it waits for, as it says; or NO_RANK */
    uint64_t timeout_ms;
};

/* What a call says of its algorithm, as part of a key. */
struct weft_comm_wish {
    bool is_said; /* else it is left to WEFT_ALGO and the model */
    char text[WEFT_PLAN_NAME_LEN];
};

/* What is longer than any name is in no key: such calls choose anew each time. */
static inline bool weft_comm_wish_fits(const char *algorithm)
{
    return algorithm == NULL || strlen(algorithm) < WEFT_PLAN_NAME_LEN;
}

static inline bool weft_comm_wish_is(const struct weft_comm_wish *wish, const char *algorithm)
{
    return algorithm == NULL ? !wish->is_said : wish->is_said && strcmp(wish->text, algorithm) == 0;
}

static inline uint32_t weft_comm_wish_hash(const char *algorithm)
{
    uint32_t hash = 0;
    for (const char *at = algorithm; at != NULL && *at != '\0'; at++) {
        hash = (hash ^ (uint8_t)*at) * 0x01000193u;
    }
    return hash;
}

/* A call that was made before: its plan, bound to everything but buffers. */
struct weft_comm_shape {
    bool is_used;
    uint8_t coll, dtype, op;
    struct weft_comm_wish wish;
    uint32_t root;
    size_t count;
    double scale;
    struct weft_comm_note note; /* what is the same in those of all its calls */
    const char *algorithm;      /* static */
    struct weft_exec_job job;
    struct weft_exec_quick quick;
};

/* What the model said. */
struct weft_comm_choice {
    bool is_used, is_equal;
    uint32_t bucket;
    struct weft_comm_wish wish;
    struct weft_plan plan;
};

struct weft_collectives {
    struct weft_comm *comm;
    struct weft_list node;          /* of the job */
    struct weft_p2p_comm *messages; /* owned */
    struct weft_exec *exec;         /* owned */
    struct weft_recorder *recorder; /* lent */
    const _Atomic uint32_t *ended;  /* not WEFT_OK: the communicator has ended */

    /* those of this host, and the whole (the same object when all are here) */
    struct weft_exec_group whole, local;
    struct weft_exec_group cross; /* those with my number on their hosts; ranks 0: hosts differ */
    uint32_t *local_members, *cross_members; /* owned */
    struct weft_board board;
    bool has_board, have_all_boards;      /* this host; every host */
    bool can_pull;                        /* everybody of this host everybody's memory, by CMA */
    uint8_t probe[WEFT_COLLECTIVE_PROBE]; /* read by the others for a trial */
    void *board_memory;                   /* ours, of weft_mem_alloc(); NULL: another's */
    struct weft_mem_mapping *mapping;     /* another's; NULL: ours */

    const char *algorithm;        /* of the latest call; static */
    struct weft_plan_facts facts; /* the same on all ranks */
    uint32_t *host_of;            /* owned */
    struct weft_comm_choice choices[WEFT_COLLECTIVE_CHOICES];

    _Atomic uint32_t number; /* of the next call; its notes are there before */
    uint32_t chain; /* what jobs are signed with: one call that differs spoils all after it */
    struct weft_comm_note notes[WEFT_COLLECTIVE_KEPT];
    struct weft_comm_report *reports; /* [ranks], on a coordinator; owned */
    struct weft_comm_inquiry inquiry; /* on a coordinator */
    uint32_t late;                    /* call + 1 whose end was asked for … */
    uint64_t late_ns;                 /* … at first */
    struct weft_comm_shape *latest;   /* of shapes: most calls are like the one before */
    struct weft_comm_shape shapes[WEFT_COLLECTIVE_SHAPES];
};

/* ---- choose.c ---- */
/* The plan of a call, bound. ERR_UNSUPPORTED, ERR_INVALID: the text says why. */
weft_status_t weft_comm_make_job(struct weft_collectives *it, const weft_call_t *call,
                                 struct weft_comm_shape *shape);
/* Buffers of a call whose shape is known. */
void weft_comm_bind_phases(const struct weft_collectives *it, struct weft_exec_job *job,
                           const weft_call_t *call);
static inline void weft_comm_bind_job(const struct weft_collectives *it, struct weft_exec_job *job,
                                      const weft_call_t *call)
{
    if (job->stages == 1) {
        job->stage[0].data.in = call->in;
        job->stage[0].data.out = call->out;
    } else {
        weft_comm_bind_phases(it, job, call);
    }
}

/* ---- reports.c: hooks of exec ---- */
/* "allreduce #12 (f32 x 100, sum)" */
void weft_comm_name_call(const weft_call_t *call, uint32_t number, char *text, size_t room);
void weft_comm_name_job(void *owner, const struct weft_exec_job *job, char *text, size_t room);
void weft_comm_stuck(void *owner, const struct weft_exec_job *job,
                     const struct weft_exec_stuck *stuck);
bool weft_comm_has_gone(void *owner, const struct weft_exec_group *group, uint32_t rank,
                        struct weft_exec_gone *gone_p);
void weft_comm_differs(void *owner, const struct weft_exec_job *job, uint32_t rank);
void weft_comm_differs_in_length(void *owner, const struct weft_exec_job *job, uint32_t rank,
                                 const struct weft_exec_lengths *lengths);
/* A message that nobody receives (of p2p, under the lock). */
void weft_comm_stray(void *owner, uint32_t rank, uint32_t tag);

/* ---- meet.c: before the first one ---- */
weft_status_t weft_comm_find_local(struct weft_collectives *it);
/* One rank of each host, when all hosts have as many. */
weft_status_t weft_comm_find_cross(struct weft_collectives *it);
/* The board, and the facts that choices are made of; all ranks, at the same time, which ends at call_ns. */
weft_status_t weft_comm_meet(struct weft_collectives *it, weft_coll_t coll, uint64_t call_ns);
void weft_comm_drop_board(struct weft_collectives *it);

/* ---- what reports.c and inquiry.c share; under the lock ---- */
void weft_comm_print_call(const struct weft_comm_note *note, char *text, size_t room);
/* The lowest living rank. */
uint32_t weft_comm_coordinator(const struct weft_comm *comm);
/* rank: of the communicator, or NO_RANK. is_final: it ends here at least. */
void weft_comm_report_failure(struct weft_collectives *it, weft_status_t status, uint32_t rank,
                              const char *text, bool is_final);
struct weft_wire_calling weft_comm_calling_of(const struct weft_collectives *it,
                                              const struct weft_comm_note *note,
                                              enum weft_wire_calling_about about);
void weft_comm_say(struct weft_collectives *it, uint32_t to,
                   const struct weft_wire_calling *calling);

/* ---- inquiry.c: whose time is up ---- */
void weft_comm_inquiry_open(struct weft_collectives *it);
void weft_comm_inquiry_close(struct weft_collectives *it); /* not under the lock */
/* The coordinator hears of it, and asks all; its reports are there. */
void weft_comm_inquire(struct weft_collectives *it, const struct weft_comm_note *note,
                       const struct weft_wire_calling *late);
/* At a deadline, not under the lock. False: the coordinator is to be asked first. */
bool weft_comm_give_up(struct weft_collectives *it, const struct weft_comm_note *note,
                       const struct weft_exec_stuck *stuck, bool is_asked);

#endif
