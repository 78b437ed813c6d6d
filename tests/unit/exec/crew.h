/* SPDX-License-Identifier: Apache-2.0 */
/* All ranks of a board in one process, each with its own struct over the same memory. */
#ifndef WEFT_TESTS_EXEC_CREW_H
#define WEFT_TESTS_EXEC_CREW_H

#include "exec/board.h"

#include "../plan/support.h"

#include <stdlib.h>

#define RANKS 4
#define RING ((size_t)512 << 10)
#define SMALL ((size_t)64 << 10) /* operations up to this are short ones, whatever the threshold */

struct crew {
    void *memory;
    struct weft_board board[RANKS];
};

static inline void open_crew(struct crew *crew, size_t ring_len, size_t short_len)
{
    size_t len = weft_board_len(RANKS, ring_len);

    crew->memory = aligned_alloc(4096, (len + 4095) / 4096 * 4096);
    assert_non_null(crew->memory);
    memset(crew->memory, 0, len);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        assert_int_equal(weft_board_open(crew->memory, ring_len, RANKS, rank, &crew->board[rank]),
                         WEFT_OK);
        crew->board[rank].short_len = short_len;
    }
}

static inline void close_crew(struct crew *crew)
{
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        weft_board_close(&crew->board[rank]);
    }
    free(crew->memory);
}

#endif
