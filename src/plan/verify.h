/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of the verifier: verify.c (ranks and their turns), verify_memory.c (where references lie, what may
 * be touched), verify_values.c (what elements hold), verify_message.c (SEND and RECV), verify_shared.c
 * (SHOW, AWAIT, ANY), verify_order.c (what has happened before what).
 */
#ifndef WEFT_PLAN_VERIFY_H
#define WEFT_PLAN_VERIFY_H

#include "plan/plan.h"

#define NOBODY UINT32_MAX
#define NOWHERE UINT32_MAX

/* What one element holds. A contribution is the element of one rank's input; its key is drawn at random, so
 * that two different sets of contributions hardly ever have the same sum of keys. */
struct value {
    uint64_t keys;      /* the sum over all contributions */
    uint64_t tree;      /* in which order they were added: equal trees give equal bits */
    uint32_t block;     /* of the data, */
    uint32_t element;   /* and which of its elements */
    uint32_t ranks;     /* contributions */
    uint32_t rank : 30; /* of the only one */
    uint32_t is_there : 1;
    uint32_t is_final : 1;
    bool is_in_order; /* all were added in rank order, in one pass */
};

/* Cells are elements of all memory of all ranks, numbered. */
struct extent {
    uint32_t cell, len;
};

/* Who touched a cell of shared memory last. Times are those of the rank's own clock. */
struct touch {
    uint32_t writer, written_at; /* NOBODY */
    uint32_t reader, read_at;    /* the only reader since, or NOBODY */
    uint32_t *readers;           /* several: time + 1 for each rank; owned */
    uint32_t any_op, any_writer,
        any_reader; /* number + 1 of the ANY step that did in that operation */
};

enum turn { TURN_ON, TURN_WAIT, TURN_FAILED };

enum waiting {
    WAIT_NOT,
    WAIT_RECVS,  /* of the round */
    WAIT_SENDS,  /* before the end of the operation */
    WAIT_SENT,   /* for memory that is still being sent, or for fewer sends under way */
    WAIT_SHARED, /* for another rank's count or end */
};

struct queue { /* of messages; NOWHERE: empty */
    uint32_t first, last;
};

struct actor {
    uint32_t rank;
    uint32_t op, round, rounds, index;
    bool is_begun, is_entered; /* the operation, */
    bool is_round_begun;
    bool is_waited_for; /* all steps of the round are begun */
    bool is_ready, is_in_place;
    uint8_t waiting;
    uint32_t waits_for; /* a rank, when known */
    uint32_t mark;      /* of the present round */
    uint32_t sends, sends_most;
    uint32_t recvs;
    struct queue reduces; /* RECV_REDUCEs of the round that are not done, in their order */
    uint32_t shown;
    uint32_t anys, any_now; /* ANY steps passed; number + 1 of the one that it does, or 0 */
    /* buffers: block b lies at base + offset of b; NOWHERE in `from`: there is none */
    uint32_t in_from, in_to, out_from, out_to; /* blocks */
    uint32_t in_base, out_base, tmp_base, slot_base;
    const uint32_t *in_offset, *out_offset; /* [blocks + 1], in elements */
};

/* What is sent, or what is expected, before it has met the other. */
struct message {
    uint32_t next; /* between the same two ranks */
    uint32_t from, to;
    uint32_t op, round, index;
    struct extent extent;
    uint8_t kind, flags;  /* of the step */
    struct extent own;    /* RECV_REDUCE: what it is added to */
    uint32_t next_reduce; /* of the same round */
    uint32_t *clock;      /* of the sender, when clocks are kept; owned */
};

struct any_step {
    bool is_claimed;
    struct weft_plan_step step;
};

struct shared_op {
    uint32_t **shown;   /* [ranks][shows + 1]: the clock of the SHOW that reached this; not owned */
    uint32_t *shown_by; /* [shows + 1]: how many ranks */
    uint32_t **all;     /* [shows + 1]: all of their clocks together; NULL until needed */
    uint32_t *began_at; /* [ranks] */
    uint32_t *begin;    /* [ranks]: clocks of those who began, together */
    uint32_t begun;
    uint32_t *end; /* [ranks]: clocks of those who ended, together */
    uint32_t ended;
    struct any_step *any;
    uint32_t anys; /* of whoever ended first */
    uint32_t any_room, any_done;
    uint32_t *any_clock; /* [ranks] */
};

struct run {
    const struct weft_plan *plan;
    struct weft_plan_verdict *verdict;
    uint32_t operations, ranks;
    uint64_t random;
    bool is_vector, is_reduced;
    uint32_t size_least, size_most; /* of blocks, in elements */
    uint32_t in_place;              /* percent of the ranks where it is possible */
    bool has_clocks, is_shared, is_mapped;

    uint32_t blocks, longest;
    uint32_t areas;   /* slots of so many operations lie beside each other */
    uint32_t *offset; /* [blocks + 1]; alltoall: [ranks][2][blocks + 1] */
    struct actor *actors;
    uint32_t *ready, ready_count, over;
    uint64_t *key;      /* [operations][ranks] */
    uint64_t *all_keys; /* [operations] */
    uint64_t *tree;     /* allreduce: [operations][elements], of whoever ended first */
    uint32_t marks;
    struct extent *sources; /* [ranks], of the REDUCE at hand */

    uint32_t cells;
    struct value *value;
    uint32_t *mark;      /* which round receives here, and how */
    uint16_t *sending;   /* messages that are not over */
    struct touch *touch; /* NULL: no memory is shared */

    struct message *messages;
    uint32_t message_room, message_count, message_free;
    struct queue *sent, *posted; /* [to][from] */

    uint32_t
        *clock; /* [rank][ranks]: how much of each rank's past has happened before its present */
    uint32_t *incoming; /* [rank][ranks]: what the messages of this round know */
    struct shared_op *shared;
    void **owned; /* clocks that are kept to the end */
    size_t owned_count, owned_room;
};

/* ---- verify.c ---- */
/* Keeps the first thing that is wrong. A macro, so that whoever reads it knows that it is false. */
#define weft_verify_fail(run, actor, ...) (weft_verify_say(run, actor, __VA_ARGS__), false)
#define weft_verify_no_memory(run) weft_verify_fail(run, NULL, "not enough memory to verify it")
void weft_verify_say(struct run *run, const struct actor *actor, const char *fmt, ...)
    WEFT_PRINTF(3, 4);
void weft_verify_wake(struct run *run, uint32_t rank);
uint64_t weft_verify_random(struct run *run);
uint64_t weft_verify_mix(uint64_t number);

/* ---- verify_memory.c ---- */
bool weft_verify_memory_open(struct run *run);
void weft_verify_memory_close(struct run *run);
/* Where `ref` of rank `owner` lies, seen by the actor. false: nowhere. */
bool weft_verify_find(struct run *run, const struct actor *actor, const struct weft_plan_ref *ref,
                      uint32_t owner, struct extent *extent_p);
/* Is there such a ref for this kind of step? */
bool weft_verify_is_one_piece(const struct run *run, const struct weft_plan_ref *ref);
/* Is none of it being sent by this rank? */
bool weft_verify_is_sent(const struct run *run, const struct extent *extent);
/* Marks what the round receives; conflicts between its steps. */
bool weft_verify_mark_recv(struct run *run, const struct actor *actor,
                           const struct weft_plan_step *step);
bool weft_verify_may_read(struct run *run, const struct actor *actor, const struct extent *extent);
bool weft_verify_may_write(struct run *run, const struct actor *actor, const struct extent *extent);

/* ---- verify_values.c ---- */
void weft_verify_fill(struct run *run,
                      struct actor *actor); /* the user's memory, at the beginning */
bool weft_verify_read(struct run *run, const struct actor *actor, uint32_t cell,
                      struct value *value_p);
bool weft_verify_add(struct run *run, const struct actor *actor, const struct value *other,
                     struct value *sum);
/* Sets what a reduction is in the end. */
bool weft_verify_finish(struct run *run, const struct actor *actor, uint8_t flags,
                        struct value *sum);
bool weft_verify_result(struct run *run, const struct actor *actor);
enum turn weft_verify_copy(struct run *run, struct actor *actor, const struct weft_plan_step *step);
enum turn weft_verify_reduce(struct run *run, struct actor *actor,
                             const struct weft_plan_step *step);

/* ---- verify_message.c ---- */
bool weft_verify_message_open(struct run *run);
void weft_verify_message_close(struct run *run);
enum turn weft_verify_send(struct run *run, struct actor *actor, const struct weft_plan_step *step);
enum turn weft_verify_recv(struct run *run, struct actor *actor, const struct weft_plan_step *step);

/* ---- verify_shared.c ---- */
bool weft_verify_shared_open(struct run *run);
void weft_verify_shared_close(struct run *run);
bool weft_verify_shared_begin(struct run *run, struct actor *actor); /* an operation */
enum turn weft_verify_shared_enter(struct run *run,
                                   struct actor *actor); /* MAPPED: have all begun? */
bool weft_verify_shared_end(struct run *run, struct actor *actor);
enum turn weft_verify_show(struct run *run, struct actor *actor, const struct weft_plan_step *step);
enum turn weft_verify_await(struct run *run, struct actor *actor,
                            const struct weft_plan_step *step);
/* A step that anybody may do: is it this rank's? */
enum turn weft_verify_claim(struct run *run, struct actor *actor, const struct weft_plan_step *step,
                            bool *is_mine_p);
void weft_verify_any_done(struct run *run, struct actor *actor);
bool weft_verify_has_met_all(struct run *run, const struct actor *actor);

/* ---- verify_order.c ---- */
/* How much of each rank's past has happened before this rank's present: [ranks]. */
uint32_t *weft_verify_clock(const struct run *run, uint32_t rank);
uint32_t *weft_verify_clock_copy(struct run *run,
                                 const uint32_t *clock); /* NULL: no memory, said */
void weft_verify_join(const struct run *run, uint32_t *clock, const uint32_t *other);
/* Everything so far is visible to whoever joins the rank's clock from now on. */
const uint32_t *weft_verify_publish(struct run *run, const struct actor *actor);
bool weft_verify_has_seen(const struct run *run, const struct actor *actor, uint32_t rank,
                          uint32_t time);
/* Messages carry what their sender knows; it is known when the round is over. */
uint32_t *weft_verify_clock_send(struct run *run, struct actor *actor);
void weft_verify_clock_recv(struct run *run, struct actor *actor, const uint32_t *clock);
void weft_verify_clock_join(struct run *run, struct actor *actor);
/* What a rank does to memory that others see: is it ordered after what they did to it? */
bool weft_verify_touch_read(struct run *run, const struct actor *actor,
                            const struct extent *extent);
bool weft_verify_touch_write(struct run *run, const struct actor *actor,
                             const struct extent *extent);

#endif
