/* SPDX-License-Identifier: Apache-2.0 */
/* From blocks to bytes: arithmetic only. */
#ifndef WEFT_EXEC_BIND_H
#define WEFT_EXEC_BIND_H

#include "exec/exec.h"

struct weft_binding {
    const struct weft_exec_data *data;
    uint32_t rank, ranks;
    bool is_vector;
    bool is_in_own, is_out_own; /* only this rank's piece is there */
    uint32_t segments;          /* per piece */
    size_t element;
    size_t total_len; /* of the vector, or of one piece when all are equal */
    size_t block_len; /* of a block, except that the last ones may be shorter */
    size_t slot_len;  /* of a slot */
};

void weft_bind(const struct weft_plan *plan, const struct weft_exec_group *group,
               const struct weft_exec_data *data, struct weft_binding *binding_p);
/* Where a block begins in IN, OUT or, for other spaces, in the data as such. */
size_t weft_bind_offset(const struct weft_binding *binding, enum weft_plan_space space,
                        uint32_t block);
/* Bytes of a range of blocks. */
size_t weft_bind_len(const struct weft_binding *binding, enum weft_plan_space space, uint32_t block,
                     uint32_t blocks);
/* Longest block: a unit of TMP. */
static inline size_t weft_bind_unit(const struct weft_binding *binding)
{
    return binding->block_len;
}

#endif
