/* SPDX-License-Identifier: Apache-2.0 */
/* The board's arithmetic: who may write where, and since when. */
#include "exec/board.h"

#include <stdlib.h>
#include <string.h>

#define SHORT_LEN ((size_t)128 << 10)
#define RING_MIN ((size_t)64 << 10)
#define PAGE ((size_t)4096)

static size_t head_len(uint32_t ranks)
{
    size_t len = sizeof(struct weft_board_table) + ranks * sizeof(struct weft_board_seat);
    return (len + PAGE - 1) / PAGE * PAGE;
}

size_t weft_board_len(uint32_t ranks, size_t ring_len)
{
    return head_len(ranks) + ranks * ring_len;
}

size_t weft_board_ring_len(uint32_t ranks)
{
    size_t len = weft_mem_cache_len() / 2 / ranks / RING_MIN * RING_MIN;
    len = len > WEFT_BOARD_RING_MAX ? WEFT_BOARD_RING_MAX : len;
    return len < RING_MIN ? RING_MIN : len;
}

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>

#define KEYS 64 /* ranks of several boards share them: it may see less for that, never more */
static char keys[KEYS];

void weft_board_tell_tsan(uint32_t rank)
{
    __tsan_release(&keys[rank % KEYS]);
}

void weft_board_ask_tsan(uint32_t rank)
{
    __tsan_acquire(&keys[rank % KEYS]);
}
#endif

weft_status_t weft_board_open(void *memory, size_t ring_len, uint32_t ranks, uint32_t rank,
                              struct weft_board *board_p)
{
    uint32_t *known = calloc(ranks, sizeof(*known));
    if (known == NULL) {
        return weft_fail(WEFT_ERR_MEMORY, "no memory for a board of %u ranks", ranks);
    }
    *board_p = (struct weft_board){
        .table = memory,
        .seats = (struct weft_board_seat *)((uint8_t *)memory + sizeof(struct weft_board_table)),
        .rings = (uint8_t *)memory + head_len(ranks),
        .ring_len = ring_len,
        .short_len = ring_len,
        .ranks = ranks,
        .rank = rank,
        .known = known,
        .operation = 1, /* a line of zeros is no operation's */
        .oldest = 1,
    };
    return WEFT_OK;
}

void weft_board_close(struct weft_board *board)
{
    free(board->known);
    board->known = NULL;
}

static void warm(struct weft_board *board)
{
    size_t upto = board->ring_offset <= board->short_len ? board->short_len : board->ring_len;
    for (uint32_t rank = 0; rank < board->ranks; rank++) {
        uint8_t *ring = board->rings + rank * board->ring_len;
        weft_mem_warm(ring + board->warm_len, upto - board->warm_len);
    }
    board->warm_len = upto;
}

uint32_t weft_board_take(struct weft_board *board, size_t len, size_t *offset_p)
{
    uint32_t number = board->operation;
    size_t room = len <= SHORT_LEN ? board->short_len : board->ring_len;
    uint64_t end;
    len = (len + WEFT_BOARD_STRIDE - 1) / WEFT_BOARD_STRIDE * WEFT_BOARD_STRIDE;
    if (board->ring_offset + len > room) { /* slots do not wrap */
        board->ring_pos += board->ring_len - board->ring_offset;
        board->ring_offset = 0;
    }
    (void)weft_board_take_line(board);
    *offset_p = board->ring_offset;
    end = board->ring_pos += len;
    board->ring_offset += len;
    if (board->ring_offset > board->warm_len) {
        warm(board);
    }
    /* What began before end - ring_len lies where we write. */
    while (board->oldest != number && end > board->ring_len &&
           board->past[board->oldest % WEFT_BOARD_LINES].ring_from < end - board->ring_len) {
        board->oldest++;
    }
    return weft_board_free_at(board);
}

bool weft_board_ask_ended(struct weft_board *board, uint32_t clock, uint32_t *rank_p)
{
    for (uint32_t rank = 0; rank < board->ranks; rank++) {
        if (rank != board->rank && !weft_board_is_past(board->known[rank], clock)) {
            board->known[rank] =
                atomic_load_explicit(&board->seats[rank].ended, memory_order_acquire);
            if (!weft_board_is_past(board->known[rank], clock)) {
                *rank_p = rank;
                return false;
            }
            weft_board_ask_tsan(rank);
        }
    }
    board->everybody = clock;
    return true;
}

uint32_t weft_board_claim(struct weft_board *board, uint32_t count)
{
    uint64_t mine = (uint64_t)board->operation << 32;
    uint64_t seen = atomic_load_explicit(&board->table->claim, memory_order_relaxed);
    for (;;) {
        /* An older operation's: over, because everybody has entered this one. */
        uint64_t base = seen >> 32 == board->operation ? seen : mine;
        if ((uint32_t)base >= count) {
            return count;
        }
        if (atomic_compare_exchange_weak_explicit(&board->table->claim, &seen, base + 1,
                                                  memory_order_acq_rel, memory_order_relaxed)) {
            return (uint32_t)base;
        }
    }
}

/* Whoever stops comes before our look at the word, and we see it; or after, and sees that we are back. */
bool weft_board_resume_claims(struct weft_board *board)
{
    uint64_t seen;
    weft_board_begin_claims(board);
    seen = atomic_fetch_add_explicit(&board->table->claim, 0, memory_order_acq_rel);
    if (seen != ((uint64_t)board->operation << 32 | UINT32_MAX)) {
        return true;
    }
    weft_board_end_claims(board);
    return false;
}

void weft_board_stop_claims(struct weft_board *board)
{
    (void)atomic_exchange_explicit(
        &board->table->claim, (uint64_t)board->operation << 32 | UINT32_MAX, memory_order_acq_rel);
}
