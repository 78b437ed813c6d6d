/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The board: memory that the ranks of one group on one host share. Each has a seat with 32 lines, used in
 * turn, one per operation: a line holds how far its rank is (head), what it called (signature) and either
 * the data itself, if that is short, or where its buffers lie. Longer data goes through its ring.
 *
 * Progress is one clock per board: every operation takes plan->shows ticks of it, on every rank alike. The
 * head of a rank's line of operation k is the clock of its latest SHOW there; so one word says both which
 * operation and how far. `ended` is the clock at the end of its latest operation: what others need before
 * they use lines and ring again. A rank that has shown anything of operation k has ended operation k - 1,
 * so `ended` is hardly ever looked at.
 */
#ifndef WEFT_EXEC_BOARD_H
#define WEFT_EXEC_BOARD_H

#include "mem/mem.h"

#define WEFT_BOARD_LINES 32
#define WEFT_BOARD_LINE_DATA 56
#define WEFT_BOARD_STRIDE 128 /* neighbouring lines are fetched in pairs */
#define WEFT_BOARD_RING_MAX ((size_t)4 << 20)
#define WEFT_BOARD_CROWDED_LEN                                                                     \
    ((size_t)1 << 20) /* for short_len, when ranks share a core's cache */

/* Where a rank's buffers lie, for those who may read them where they are. Region 0: private memory, whose
 * address the offset is. */
struct weft_board_descriptor {
    uint64_t in_region, in_offset;
    uint64_t out_region, out_offset;
    uint64_t process;   /* whose address space the private ones are of */
    int32_t pid;        /* as it counts itself: for CMA */
    uint32_t is_pulled; /* said by rank 0: private inputs are read by CMA this time */
};

struct weft_board_line {
    _Alignas(WEFT_BOARD_STRIDE) _Atomic uint32_t head;
    uint32_t signature;
    union {
        uint8_t data[WEFT_BOARD_LINE_DATA];
        struct weft_board_descriptor buffers;
    };
};

struct weft_board_seat {
    struct weft_board_line lines[WEFT_BOARD_LINES];
    _Alignas(WEFT_BOARD_STRIDE) _Atomic uint32_t ended;
    _Alignas(WEFT_BOARD_STRIDE) _Atomic uint32_t asleep;
    _Atomic uint32_t failed; /* what its communicator ended with: it shows nothing any more */
    _Atomic uint32_t cpu;    /* where it was when it showed something last, + 1 */
    /* the latest operation that it claims steps of; + 1: it has done */
    _Alignas(WEFT_BOARD_STRIDE) _Atomic uint32_t claims;
};

struct weft_board_table { /* at the beginning */
    _Alignas(WEFT_BOARD_STRIDE) _Atomic uint32_t sleepers;
    _Alignas(
        WEFT_BOARD_STRIDE) _Atomic uint64_t claim; /* operation, next step that anyone may do */
    _Alignas(WEFT_BOARD_STRIDE) _Atomic uint32_t any_done; /* such steps, in all */
};

struct weft_board {
    struct weft_board_table *table; /* shared */
    struct weft_board_seat *seats;  /* shared, [ranks] */
    uint8_t *rings;                 /* shared, [ranks][ring_len] */
    size_t ring_len;
    size_t
        short_len; /* so much of a ring short operations use: what is used again soon stays cached */
    size_t warm_len; /* so much of every ring is mapped here */
    uint32_t ranks, rank;
    uint32_t cpu;       /* where we were last */
    uint32_t operation; /* number of the present (or next) one */
    uint32_t clock;     /* at its beginning */
    uint32_t any_base;  /* of any_done */
    uint32_t everybody; /* has ended this far, as we know */
    uint32_t *known;    /* [ranks]: how far each has ended, as we know; owned */
    uint64_t ring_pos;  /* where the next operation's slots begin, counted on for ever */
    size_t ring_offset; /* the same, in the ring */
    uint32_t oldest;    /* operation that may still use what lies before ring_pos */
    struct {
        uint32_t clock;     /* at its end */
        uint64_t ring_from; /* where its slots began */
    } past[WEFT_BOARD_LINES];
};

size_t weft_board_len(uint32_t ranks, size_t ring_len);
/* How long a ring is good: all of them in half of the last-level cache. */
size_t weft_board_ring_len(uint32_t ranks);
/* memory: weft_board_len() bytes, zeroed by whoever made it; lent. ERR_MEMORY. short_len is the whole ring;
 * who sets it to less does so on all ranks. */
weft_status_t weft_board_open(void *memory, size_t ring_len, uint32_t ranks, uint32_t rank,
                              struct weft_board *board_p);
void weft_board_close(struct weft_board *board);

/* Ranks that are threads have the board at an address each, and the thread sanitizer knows words by their
 * addresses: it is told who has heard of whose work. ANYBODY: of those who do what anyone may. */
#define WEFT_BOARD_ANYBODY UINT32_MAX
#ifdef __SANITIZE_THREAD__
void weft_board_tell_tsan(uint32_t rank);
void weft_board_ask_tsan(uint32_t rank);
#else
#define weft_board_tell_tsan(rank) ((void)(rank))
#define weft_board_ask_tsan(rank) ((void)(rank))
#endif

static inline struct weft_board_line *weft_board_line(const struct weft_board *board, uint32_t rank)
{
    return &board->seats[rank].lines[board->operation % WEFT_BOARD_LINES];
}
static inline bool weft_board_is_past(uint32_t clock, uint32_t value)
{
    return (int32_t)(clock - value) >= 0;
}

/* The clock at the end of the operation before `oldest`; before all of them it is 0. Their numbers wrap
 * around, an hour of short ones is enough: one must not ask which is the greater. */
static inline uint32_t weft_board_free_at(const struct weft_board *board)
{
    return board->past[(board->oldest - 1) % WEFT_BOARD_LINES].clock;
}
/* As take(), of the line alone. */
static inline uint32_t weft_board_take_line(struct weft_board *board)
{
    uint32_t number = board->operation;
    board->past[number % WEFT_BOARD_LINES].ring_from = board->ring_pos;
    if (number - board->oldest >= WEFT_BOARD_LINES) { /* it was used 32 operations ago */
        board->oldest = number - WEFT_BOARD_LINES + 1;
    }
    return weft_board_free_at(board);
}
/* Takes len bytes of every ring for this operation; returns how far everybody must have ended before they
 * (and this operation's line) are written. *offset_p: where in the ring. */
uint32_t weft_board_take(struct weft_board *board, size_t len, size_t *offset_p);
/* Has everybody ended at `clock`? Looks at who is not known to; *rank_p: who has not, otherwise. */
bool weft_board_ask_ended(struct weft_board *board, uint32_t clock, uint32_t *rank_p);
static inline bool weft_board_has_ended(struct weft_board *board, uint32_t clock, uint32_t *rank_p)
{
    return weft_board_is_past(board->everybody, clock) ||
           weft_board_ask_ended(board, clock, rank_p);
}
/* The operation is over for this rank. */
static inline void weft_board_end(struct weft_board *board, uint32_t shows, uint32_t anys)
{
    board->clock += shows;
    board->any_base += anys;
    board->past[board->operation % WEFT_BOARD_LINES].clock = board->clock;
    board->operation++;
    weft_board_tell_tsan(board->rank);
    atomic_store_explicit(&board->seats[board->rank].ended, board->clock, memory_order_release);
}
/* The next step of this operation that nobody has; ≥ count: none. Between begin and end, which say whether
 * this rank may be at such a step. */
uint32_t weft_board_claim(struct weft_board *board, uint32_t count);
static inline void weft_board_begin_claims(struct weft_board *board)
{
    atomic_store_explicit(&board->seats[board->rank].claims, board->operation,
                          memory_order_relaxed); /* a claim follows, which orders it */
}
static inline void weft_board_end_claims(struct weft_board *board)
{
    atomic_store_explicit(&board->seats[board->rank].claims, board->operation + 1,
                          memory_order_release);
}
/* After an end in the middle, of who has claimed a step and not begun it: false, if claims were stopped
 * meanwhile. Then it stays undone. */
bool weft_board_resume_claims(struct weft_board *board);
/* Nobody claims another one; who has is seen by is_at_claim() from now on. */
void weft_board_stop_claims(struct weft_board *board);
static inline bool weft_board_is_at_claim(const struct weft_board *board, uint32_t rank)
{
    return atomic_load_explicit(&board->seats[rank].claims, memory_order_acquire) ==
           board->operation;
}

#endif
