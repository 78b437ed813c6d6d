/* SPDX-License-Identifier: Apache-2.0 */
/* Private to exec: one run, and what all runs of a communicator share. */
#ifndef WEFT_EXEC_INTERNAL_H
#define WEFT_EXEC_INTERNAL_H

#include "engine/engine.h"
#include "exec/bind.h"
#include "exec/cpu.h"
#include "exec/exec.h"

/* A message of the present job. */
struct weft_exec_item {
    weft_request_t request; /* NULL: over */
    struct weft_slice slice;
    bool is_send, is_reduced;
    uint32_t peer;              /* of the group */
    struct weft_plan_step step; /* RECV_REDUCE: where it goes */
};

/* Buffers of a rank of the group that everybody can touch. */
struct weft_exec_view {
    uint8_t *in, *out;
    pid_t pid;                        /* not 0: `in` is private, an address there */
    struct weft_mem_mapping *held[2]; /* NULL: not needed */
};

enum weft_exec_state {
    WEFT_RUN_GOES,   /* advance() has something to do */
    WEFT_RUN_WAITS,  /* for await, or for the bell */
    WEFT_RUN_DRAINS, /* failed; waits until its memory is its own */
    WEFT_RUN_OVER,
};

/* The head of a line, or another word of the board, that must be past a value; word NULL: the bell. */
struct weft_exec_await {
    const _Atomic uint32_t *word;
    uint32_t value;
    uint32_t rank; /* of the group, who is waited for; NO_RANK: nobody in particular */
};

struct weft_exec_run {
    struct weft_exec *exec;
    const struct weft_exec_job *job;
    enum weft_exec_state state;
    weft_status_t status; /* of a failure; its text is in the exec */
    uint32_t stage, round, rounds, index;
    bool is_begun; /* the stage */

    /* the present stage */
    const struct weft_plan *plan;
    struct weft_exec_group *group;
    struct weft_board *board;   /* NULL: its plan needs none */
    struct weft_exec_data data; /* of the stage, or of its prelude's copies */
    struct weft_binding binding;
    size_t slot_offset;    /* in every ring */
    uint32_t slots_free;   /* the clock at which everybody has ended who used the slots */
    bool is_short;         /* the slots lie in the lines */
    bool is_mapped;        /* views are there */
    uint64_t withdrawn_ns; /* since when we wait for those who still use our memory; 0: not yet */
    bool is_out_streamed;  /* more than the cache holds: outputs and slots go around it */
    uint32_t entry;        /* how far the beginning of a shared stage is; 0: not begun */
    uint32_t anys;         /* steps that anyone may do, in all */
    uint64_t entered_ns;   /* the way of this stage is timed since then; 0: it is not */
    bool is_pulled;        /* … by CMA */
    struct weft_exec_await await;
    uint32_t sends, recvs; /* items in use */
    uint32_t next_recv;    /* to be finished */
    size_t staged_len;     /* staging in use in this round */
    size_t worked;         /* bytes since the last look at the clock */
    bool is_overdue;       /* its time was up while it worked: nothing goes on, the verdict comes */
    uint64_t judge_ns;     /* it has failed here: so long the verdict is waited for; 0: it is not */
    uint32_t blamed;       /* then: whom we named, or NO_RANK */
    size_t why;            /* … and where in the exec's text our reason is */
};

/* How slots are written. Plain stores are best where cores share a cache; where they do not, stores into
 * lines that another core has read take ten times as long as those around the cache: seen by the time of a
 * copy. Each rank for itself: it is nobody else's business. */
struct weft_exec_pace {
    bool is_streamed;
    uint32_t slow;   /* plain copies in a row that were */
    uint32_t copies; /* since the state changed */
};

/* How long operations took by either way, for each collective and length: known by rank 0 of the board,
 * whose word the others take. */
#define WEFT_EXEC_WAY_LENS 48
struct weft_exec_way {
    uint32_t count;  /* of operations */
    uint32_t next;   /* when the other way is tried again */
    uint32_t chosen; /* the latest one's way: through slots, by CMA */
    uint32_t trial;  /* operations in a row by it */
    double ns[2];    /* what one takes by either way; 0: not known */
};

struct weft_exec {
    struct weft_exec_spec spec;
    struct weft_engine *engine;
    const _Atomic uint32_t *ended; /* the communicator's end */
    size_t cache_len;
    _Atomic uint32_t bell;
    char text[WEFT_ERROR_TEXT_LEN]; /* of the failure of the present run */

    struct weft_exec_item *sends, *recvs; /* [item_room] each, owned */
    uint32_t item_room;
    uint8_t *scratch; /* TMP, then staging; owned */
    size_t scratch_room, tmp_len;
    uint8_t *copies; /* of a prelude: input, then output; owned */
    size_t copies_room;
    struct weft_exec_view *views; /* [ranks], owned; NULL until needed */
    uint64_t moved;
    struct weft_exec_pace pace;
    struct weft_exec_way ways[WEFT_COLLS][WEFT_EXEC_WAY_LENS];
    uint64_t process;
    pid_t pid;

    /* a run that waits long, or is not its caller's (queue.c); under the engine's lock */
    struct weft_exec_run *waiting; /* whose word the poller looks at */
    struct weft_engine_poller poller;
    uint32_t crossings;  /* waits in a row for somebody on our CPU */
    uint64_t stepped_ns; /* when we left one for that reason */
    bool is_polled;
    bool is_armed;            /* whoever sleeps relies on being rung for */
    struct weft_board *armed; /* where that is said; NULL: nowhere; lent */
    struct weft_engine_work work;
    struct weft_engine_timer timer;
    struct weft_list queue; /* of weft_exec_entry */
    struct weft_list spare; /* entries that are over, for the next; owned */
    struct weft_exec_run active;
    _Atomic bool is_active;
    bool is_at_work;

    /* the present run's time: of job `timed` - 1 */
    uint32_t timed;
    uint64_t since_ns; /* of the next run, if it is not to begin with its first wait; or 0 */
    uint64_t began_ns, told_ns, looked_ns;
    bool is_late;
    uint64_t heard_ns;    /* since when a member says that it has failed; 0: none does */
    uint32_t disputed;    /* job + 1 of which a message has a wrong length */
    uint64_t disputed_ns; /* since when */
};

/* The communicator's number of a rank of the group. */
static inline uint32_t weft_exec_member(const struct weft_exec_group *group, uint32_t rank)
{
    return group->members != NULL ? group->members[rank] : rank;
}

/* ---- run.c ---- */
void weft_exec_run_open(struct weft_exec_run *run, struct weft_exec *exec,
                        const struct weft_exec_job *job);
/* Scratch and items for the job: without memory it has failed. */
void weft_exec_prepare(struct weft_exec_run *run);
/* As far as it goes without waiting. */
void weft_exec_advance(struct weft_exec_run *run);
static inline bool weft_exec_is_reached(const struct weft_exec *exec,
                                        const struct weft_exec_await *await)
{
    return await->word != NULL
               ? weft_board_is_past(atomic_load_explicit(await->word, memory_order_acquire),
                                    await->value)
               : atomic_load_explicit(&exec->bell, memory_order_acquire) != 0;
}

/* Until it is over; its result. */
weft_status_t weft_exec_finish(struct weft_exec_run *run);

/* ---- prelude.c ---- */
/* Bytes of copies that the stage needs. */
size_t weft_exec_prelude_len(const struct weft_exec_stage *stage);
/* Sets run->data: the stage's, or its copies. */
bool weft_exec_prelude(struct weft_exec_run *run); /* false: it goes no further */
bool weft_exec_postlude(struct weft_exec_run *run);

/* ---- quick.c ---- */
weft_status_t weft_exec_run_quickly(struct weft_exec *exec, struct weft_exec_job *job);

/* ---- memory.c: steps within this host's memory ---- */
/* false: the run has failed, or its time is up. */
bool weft_exec_copy(struct weft_exec_run *run, const struct weft_plan_step *step);
bool weft_exec_reduce(struct weft_exec_run *run, const struct weft_plan_step *step);
/* What came, into its place. */
bool weft_exec_apply(struct weft_exec_run *run, const struct weft_exec_item *item);
struct weft_slice weft_exec_resolve(const struct weft_exec_run *run,
                                    const struct weft_plan_ref *ref, uint32_t rank);

/* ---- items.c: steps that are messages ---- */
/* What `len` bytes take up in the staging area. */
static inline size_t weft_exec_staged_len(size_t len)
{
    return (len + 63) / 64 * 64;
}
/* false: it waits for something (await is set), or has failed. */
bool weft_exec_send(struct weft_exec_run *run, const struct weft_plan_step *step);
bool weft_exec_recv(struct weft_exec_run *run, const struct weft_plan_step *step);
/* Are all receives of the round here? */
bool weft_exec_reap(struct weft_exec_run *run);
/* Has one behind the one that is waited for failed? Its rank is gone, however late the other is: the run fails. */
bool weft_exec_has_lost_recv(struct weft_exec_run *run);
/* Does no send under way read these bytes? */
bool weft_exec_is_writable(struct weft_exec_run *run, const struct weft_slice *slice);
bool weft_exec_sends_are_over(struct weft_exec_run *run);
/* Its time is up: nothing comes any more but the verdict. */
void weft_exec_await_verdict(struct weft_exec_run *run);
/* After a failure: are all messages over? */
bool weft_exec_is_drained(struct weft_exec_run *run);

/* ---- views.c: buffers where they lie ---- */
/* Ours, on our line of the board. */
void weft_exec_show_buffers(struct weft_exec_run *run);
/* All have shown theirs: is everything there that a mapped plan touches? */
bool weft_exec_can_map(const struct weft_exec_run *run);
/* Has it shown them from this process? A pid alone says nothing: containers count their own. It tells apart
 * what was cloned without a word to us. */
bool weft_exec_is_here(const struct weft_exec_run *run, uint32_t rank);
/* Everybody's buffers, in exec->views; false: the run has failed. */
bool weft_exec_map(struct weft_exec_run *run);
void weft_exec_unmap(struct weft_exec_run *run);
/* Where the view of rank `peer` is another process's; false: the run has failed. */
bool weft_exec_pull(struct weft_exec_run *run, uint32_t peer, const struct weft_slice *from,
                    void *to);

/* ---- withdraw.c: buffers that others see, after a failure ---- */
/* A run that has failed: does nobody write to our memory any more? false: it waits for somebody. */
bool weft_exec_withdraw(struct weft_exec_run *run);
/* The same, of one that nobody will advance any more; waits. */
void weft_exec_abandon(struct weft_exec_run *run);
/* Has a rank failed in this operation, so that its memory may be something else's by now? */
bool weft_exec_has_withdrawn(const struct weft_exec_run *run);
/* There is nothing to wait for but the verdict. */
void weft_exec_await_end(struct weft_exec_run *run);

/* ---- way.c: through slots, or by CMA ---- */
/* Rank 0 of the board: by CMA? */
bool weft_exec_way_begin(struct weft_exec_run *run);
void weft_exec_way_end(struct weft_exec_run *run);

/* ---- shared.c: steps on the board ---- */
bool weft_exec_shared_begin(struct weft_exec_run *run);
#define WEFT_EXEC_ENTRY_SHOWS 1 /* of showing each other the buffers */
void weft_exec_show(struct weft_exec_run *run, uint32_t value);
bool weft_exec_await_step(struct weft_exec_run *run, const struct weft_plan_step *step);
void weft_exec_shared_end(struct weft_exec_run *run);
void weft_exec_ring(struct weft_exec *exec, struct weft_exec_group *group);
static inline void weft_exec_wake(struct weft_exec *exec, struct weft_exec_group *group)
{
    if (atomic_load_explicit(&group->board->table->sleepers, memory_order_relaxed) != 0) {
        weft_exec_ring(exec, group);
    }
}
/* Before this rank waits or leaves; with whoever says that it sleeps, then looks. */
static inline void weft_exec_settle(struct weft_exec *exec, struct weft_exec_group *group)
{
    atomic_thread_fence(memory_order_seq_cst);
    weft_exec_wake(exec, group);
}
/* To be settled. */
static inline void weft_exec_show_line(const struct weft_exec_group *group, uint32_t signature,
                                       uint32_t value)
{
    struct weft_board *board = group->board;
    struct weft_board_line *line = weft_board_line(board, board->rank);
    uint32_t cpu = weft_exec_cpu();
    if (cpu != board->cpu) { /* mostly it stays where it is */
        board->cpu = cpu;
        atomic_store_explicit(&board->seats[board->rank].cpu, cpu + 1, memory_order_relaxed);
    }
    line->signature = signature;
    weft_board_tell_tsan(board->rank);
    atomic_store_explicit(&line->head, board->clock + value, memory_order_release);
}

/* ---- trouble.c: what a long wait comes to ---- */
#define WEFT_EXEC_TICK_MS 50 /* between two looks around */
/* It has failed, and everybody hears of it; advance() goes on until nobody touches its memory. rank: whose
 * fault it is, of the communicator, or NO_RANK. text: not the exec's own. */
/* The others hear of it, and all of them return with one verdict: see weft_exec_is_judged(). */
void weft_exec_fail(struct weft_exec_run *run, weft_status_t status, uint32_t rank,
                    const char *text);
/* Has a failed run its verdict? Its words are the run's then. It does not wait for ever: at last our own count. */
bool weft_exec_is_judged(struct weft_exec_run *run);
/* Those of this host may have no other way to hear it. */
void weft_exec_show_failure(struct weft_exec_run *run);
/* A wait begins. */
void weft_exec_begin_time(struct weft_exec_run *run);
/* After the communicator's end: with the verdict's words. true: the run has failed. */
bool weft_exec_check_end(struct weft_exec_run *run);
/* The same, and a look at ranks and clock. */
bool weft_exec_look_around(struct weft_exec_run *run);
/* The same, not more often than needed. */
void weft_exec_glance(struct weft_exec_run *run);
#define WEFT_EXEC_WORK                                                                             \
    ((size_t)4 << 20) /* bytes between two looks at the clock, of who does not wait */
bool weft_exec_is_in_time(struct weft_exec_run *run);
/* So much was read and written; false: nothing goes on, it has failed or is overdue. */
static inline bool weft_exec_worked(struct weft_exec_run *run, size_t len)
{
    run->worked += len;
    return run->worked < WEFT_EXEC_WORK || weft_exec_is_in_time(run);
}

/* Between two looks at a word, some 40 ns. Looks that follow each other at once are all under way when the word
 * comes, and thrown away with what was begun after them; and they take its line from whoever writes it. */
static inline void weft_exec_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb"); /* where a core has one thread, yield does nothing */
#endif
}

/* ---- queue.c ---- */
/* The nearest of those that owners of requests have set: what stands behind is late with the first. */
void weft_exec_find_limit(struct weft_exec *exec, uint64_t *deadline_ns_p, uint64_t *timeout_ms_p);
void weft_exec_queue_open(struct weft_exec *exec);
void weft_exec_queue_close(struct weft_exec *exec); /* it was stopped */
#define WEFT_EXEC_LOOKS 100                         /* at a word, before anything else is done */
#define WEFT_EXEC_FIRST_LOOKS 4                     /* before asking whether it can come at all */
#define WEFT_EXEC_CROWDED_LOOKS 4                   /* whoever we wait for needs this CPU */
/* Waits as long as it takes, driving. */
void weft_exec_wait(struct weft_exec_run *run);
/* Was this rank on our CPU, when it showed something last? Then it cannot show more while we look. */
static inline bool weft_exec_is_beside(const struct weft_board *board, uint32_t rank)
{
    return atomic_load_explicit(&board->seats[rank].cpu, memory_order_relaxed) ==
           weft_exec_cpu() + 1;
}

#endif
