/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From blocks to bytes. Blocks begin at multiples of a cache line, so that two ranks never write to the same
 * one; the last blocks of a vector or of a piece are shorter, or empty.
 */
#include "exec/bind.h"

#define LINE 64

static bool is_vector(uint32_t coll)
{
    return coll == WEFT_ALLREDUCE || coll == WEFT_BROADCAST || coll == WEFT_REDUCE ||
           coll == WEFT_BARRIER;
}

static size_t cut(size_t len, uint32_t blocks)
{
    if (blocks <= 1) {
        return len;
    }
    return ((len + blocks - 1) / blocks + LINE - 1) / LINE * LINE;
}

static size_t longest(const size_t *counts, uint32_t ranks, size_t otherwise)
{
    size_t most = counts != NULL ? 0 : otherwise;
    for (uint32_t i = 0; counts != NULL && i < ranks; i++) {
        most = counts[i] > most ? counts[i] : most;
    }
    return most;
}

void weft_bind(const struct weft_plan *plan, const struct weft_exec_group *group,
               const struct weft_exec_data *data, struct weft_binding *binding_p)
{
    uint32_t coll = plan->coll;
    struct weft_binding binding = {
        .data = data,
        .rank = group->rank,
        .ranks = group->ranks,
        .is_vector = is_vector(coll),
        .is_in_own = coll == WEFT_ALLGATHER || coll == WEFT_GATHER,
        .is_out_own = coll == WEFT_REDUCE_SCATTER || coll == WEFT_SCATTER,
        .segments = plan->segments,
        .element = weft_dtype_size(data->dtype),
    };
    size_t count = data->count;
    binding.total_len = count * binding.element;
    if (data->is_cut) {
        binding.total_len = cut(binding.total_len, group->ranks);
        count = (binding.total_len + binding.element - 1) / binding.element;
    }
    if (data->in_counts != NULL || data->out_counts != NULL) {
        size_t other = coll == WEFT_ALLTOALL ? count : 0; /* what only one array says, or two */
        size_t in = longest(data->in_counts, group->ranks, other);
        size_t out = longest(data->out_counts, group->ranks, other);
        count = in > out ? in : out;
    }
    binding.block_len =
        cut(count * binding.element, binding.is_vector ? plan->parts : plan->segments);
    binding.slot_len = binding.block_len * plan->slot_blocks;
    *binding_p = binding;
}

struct piece {
    size_t place, len;
};

/* Of a vector that was cut. */
static struct piece find_cut(const struct weft_binding *binding, uint32_t rank)
{
    size_t all = binding->data->count * binding->element;
    size_t from = rank * binding->total_len;
    from = from < all ? from : all;
    return (struct piece){.place = from,
                          .len = all - from < binding->total_len ? all - from : binding->total_len};
}

static struct piece find_piece(const struct weft_binding *binding, enum weft_plan_space space,
                               uint32_t rank)
{
    const struct weft_exec_data *data = binding->data;
    const size_t *counts = space == WEFT_SPACE_OUT ? data->out_counts : data->in_counts;
    const size_t *places = space == WEFT_SPACE_OUT ? data->out_places : data->in_places;
    bool is_own = (space == WEFT_SPACE_IN && binding->is_in_own) ||
                  (space == WEFT_SPACE_OUT && binding->is_out_own);
    struct piece piece = {.place = rank * binding->total_len, .len = binding->total_len};
    if (data->is_cut) {
        piece = find_cut(binding, rank);
        piece.place = is_own ? 0 : piece.place;
        return piece;
    }
    if (space != WEFT_SPACE_IN && space != WEFT_SPACE_OUT) {
        counts = data->in_counts != NULL ? data->in_counts : data->out_counts;
        places = NULL;
    }
    if (is_own) { /* a piece of the others' array: as long as there, at the beginning here */
        counts = space == WEFT_SPACE_IN ? data->out_counts : data->in_counts;
        piece.len = counts != NULL ? counts[rank] * binding->element : binding->total_len;
        piece.place = 0;
        return piece;
    }
    if (counts != NULL) {
        piece.len = counts[rank] * binding->element;
        piece.place = 0;
        for (uint32_t i = 0; places == NULL && i < rank; i++) {
            piece.place += counts[i] * binding->element;
        }
    }
    if (places != NULL) {
        piece.place = places[rank] * binding->element;
    }
    return piece;
}

static struct piece find_block(const struct weft_binding *binding, enum weft_plan_space space,
                               uint32_t block)
{
    struct piece piece;
    size_t from, to;
    size_t block_len = binding->block_len;
    if (binding->is_vector) {
        from = block * block_len;
        piece = (struct piece){.place = 0, .len = binding->total_len};
    } else {
        piece = find_piece(binding, space, block / binding->segments);
        /* Pieces of different lengths are cut each by itself. */
        block_len = cut(piece.len, binding->segments);
        from = block % binding->segments * block_len;
    }
    to = from + block_len;
    from = from < piece.len ? from : piece.len;
    to = to < piece.len ? to : piece.len;
    return (struct piece){.place = piece.place + from, .len = to - from};
}

size_t weft_bind_offset(const struct weft_binding *binding, enum weft_plan_space space,
                        uint32_t block)
{
    return find_block(binding, space, block).place;
}

size_t weft_bind_len(const struct weft_binding *binding, enum weft_plan_space space, uint32_t block,
                     uint32_t blocks)
{
    struct piece last;
    if (blocks == 0) {
        return 0;
    }
    last = find_block(binding, space, block + blocks - 1);
    if (blocks == 1) {
        return last.len;
    }
    return last.place + last.len - weft_bind_offset(binding, space, block);
}
