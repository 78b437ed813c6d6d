/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One collective call as a test makes it: where its pieces lie, what is in them before, and what every
 * byte of the memory around must be afterwards. Both are painted from one description, so that a byte too
 * many or too few, an input that was changed and a gap that was written are all found by one comparison.
 */
#ifndef WEFT_TESTS_API_COLLECTIVES_H
#define WEFT_TESTS_API_COLLECTIVES_H

#include "unit/api/collectives_desk.h"
#include "unit/api/collectives_values.h"
#include "unit/api/messages.h"

#define TRIAL_RANKS 16
#define TRIAL_GAP 5 /* elements between pieces, at most */

/* ---- a call ---- */

/* The pieces that a rank reads, or writes; sizes and places in elements. */
struct side {
    int pieces; /* 0: this rank has nothing to do with it */
    size_t counts[TRIAL_RANKS], places[TRIAL_RANKS];
    size_t span; /* from the first element to behind the last */
    size_t at;   /* bytes from the beginning of its memory */
};

struct trial {
    weft_coll_t coll;
    weft_dtype_t dtype;
    weft_redop_t op;
    int root;
    size_t count;
    double scale;
    uint64_t seed; /* of the values, the gaps, and of what is left to chance */
    bool is_in_place;
    bool has_gaps; /* places are given, with gaps in between and in any order */
    const size_t
        *counts; /* of the pieces: [ranks]; alltoall [from × ranks + to]; NULL: all `count` */
    const char *algorithm;
    uint32_t timeout_ms;

    struct desk *desk;
    int me, ranks;
    struct side in, out;
    weft_call_t call;
};

static inline bool trial_is_rooted(weft_coll_t coll)
{
    return coll == WEFT_BROADCAST || coll == WEFT_REDUCE || coll == WEFT_GATHER ||
           coll == WEFT_SCATTER;
}

static inline bool trial_reduces(weft_coll_t coll)
{
    return coll == WEFT_ALLREDUCE || coll == WEFT_REDUCE_SCATTER || coll == WEFT_REDUCE;
}

static inline bool trial_has_pieces(weft_coll_t coll)
{
    return coll == WEFT_REDUCE_SCATTER || coll == WEFT_ALLGATHER || coll == WEFT_GATHER ||
           coll == WEFT_SCATTER || coll == WEFT_ALLTOALL;
}

/* Elements of the piece that goes from one rank to another. */
static inline size_t trial_piece(const struct trial *trial, int from, int to)
{
    if (trial->counts == NULL) {
        return trial->count;
    }
    switch (trial->coll) {
    case WEFT_ALLTOALL:
        return trial->counts[from * trial->ranks + to];
    case WEFT_ALLGATHER:
    case WEFT_GATHER:
        return trial->counts[from];
    default:
        return trial->counts[to];
    }
}

static inline int trial_in_pieces(const struct trial *trial)
{
    bool is_root = trial->me == trial->root;
    switch (trial->coll) {
    case WEFT_REDUCE_SCATTER:
    case WEFT_ALLTOALL:
        return trial->ranks;
    case WEFT_SCATTER:
        return is_root ? trial->ranks : 0;
    case WEFT_BROADCAST:
        return is_root ? 1 : 0;
    case WEFT_BARRIER:
        return 0;
    default:
        return 1;
    }
}

static inline int trial_out_pieces(const struct trial *trial)
{
    bool is_root = trial->me == trial->root;
    switch (trial->coll) {
    case WEFT_ALLGATHER:
    case WEFT_ALLTOALL:
        return trial->ranks;
    case WEFT_GATHER:
        return is_root ? trial->ranks : 0;
    case WEFT_REDUCE:
        return is_root ? 1 : 0;
    case WEFT_BARRIER:
        return 0;
    default:
        return 1;
    }
}

/* What is left to each rank: where its pieces lie, which function it calls. */
static inline uint64_t trial_own(const struct trial *trial, uint64_t salt)
{
    return values_mix(trial->seed + salt + ((uint64_t)trial->me << 32));
}

/* With gaps, some in rising and some in falling order. */
static inline void trial_place(const struct trial *trial, struct side *side, uint64_t salt)
{
    bool is_falling = trial->has_gaps && side->pieces > 1 && (values_mix(salt) & 1) != 0;
    for (int i = 0; i < side->pieces; i++) {
        int piece = is_falling ? side->pieces - 1 - i : i;
        bool has_gap = trial->has_gaps && side->pieces > 1;
        side->span += has_gap ? values_mix(salt + (uint64_t)i) % (TRIAL_GAP + 1) : 0;
        side->places[piece] = side->span;
        side->span += side->counts[piece];
    }
}

static inline void trial_lay_out(struct trial *trial)
{
    int me = trial->me;
    trial->in = (struct side){.pieces = trial_in_pieces(trial)};
    trial->out = (struct side){.pieces = trial_out_pieces(trial)};
    for (int q = 0; q < trial->in.pieces; q++) {
        trial->in.counts[q] = trial_piece(trial, me, trial->in.pieces > 1 ? q : me);
    }
    for (int q = 0; q < trial->out.pieces; q++) {
        trial->out.counts[q] = trial_piece(trial, trial->out.pieces > 1 ? q : me, me);
    }
    trial_place(trial, &trial->in, trial_own(trial, 1));
    trial_place(trial, &trial->out, trial_own(trial, 2));
}

/* Guards in front; mostly aligned as elements are, sometimes as nothing is. */
static inline void trial_align(struct trial *trial)
{
    size_t size = weft_dtype_size(trial->dtype), shift = trial_own(trial, 3) % 8;
    struct side *in = &trial->in, *out = &trial->out;
    in->at = GUARD_LEN + (shift < 4 ? 0 : shift < 6 ? size : shift);
    shift = trial_own(trial, 4) % 8;
    out->at = GUARD_LEN + (shift < 4 ? 0 : shift < 6 ? size : shift);
    if (trial->is_in_place && in->pieces > 0 && out->pieces > 0) {
        bool is_in_larger = in->pieces >= out->pieces;
        const struct side *larger = is_in_larger ? in : out;
        size_t mine = larger->pieces > 1 ? larger->places[trial->me] : 0;
        *(is_in_larger ? &out->at : &in->at) = larger->at + mine * size;
    }
}

/* Both sides in one piece of memory? */
static inline bool trial_shares(const struct trial *trial)
{
    return trial->is_in_place && trial->in.pieces > 0 && trial->out.pieces > 0;
}

/* ---- what is where ---- */

static inline struct values trial_values(const struct trial *trial, int to)
{
    return (struct values){trial->dtype, trial->op, trial->ranks, trial->scale,
                           values_mix(trial->seed ^ (uint64_t)(to + 1) << 40)};
}

/* The piece that goes from one rank to another (everybody: 0). */
static inline void trial_paint_piece(const struct trial *trial, int from, int to, size_t count,
                                     uint8_t *at)
{
    struct values values = trial_values(trial, to);
    if (trial_reduces(trial->coll)) {
        values_fill(&values, from, count, at);
    } else {
        values_fill_any(trial->dtype, values.seed ^ values_mix((uint64_t)from), count, at);
    }
}

/* The rank that a piece is for, in the coordinates of trial_paint_piece(). */
static inline int trial_target(const struct trial *trial, int to)
{
    return trial->coll == WEFT_REDUCE_SCATTER || trial->coll == WEFT_SCATTER ||
                   trial->coll == WEFT_ALLTOALL
               ? to
               : 0;
}

static inline void trial_paint_out(const struct trial *trial, uint8_t *memory)
{
    size_t size = weft_dtype_size(trial->dtype);
    const struct side *out = &trial->out;
    int target = trial_target(trial, trial->me);
    for (int q = 0; q < out->pieces; q++) {
        uint8_t *at = memory + out->at + out->places[q] * size;
        bool is_from_root = trial->coll == WEFT_BROADCAST || trial->coll == WEFT_SCATTER;
        if (trial_reduces(trial->coll)) {
            struct values values = trial_values(trial, target);
            values_fill_reduced(&values, out->counts[q], at);
        } else {
            trial_paint_piece(trial, is_from_root ? trial->root : q, target, out->counts[q], at);
        }
    }
}

static inline size_t trial_room(const struct trial *trial, const struct side *side)
{
    return side->at + side->span * weft_dtype_size(trial->dtype) + GUARD_LEN;
}

/* How much of the desk this call uses for its input, and for its output. */
static inline size_t trial_in_room(const struct trial *trial)
{
    size_t in = trial_room(trial, &trial->in), out = trial_room(trial, &trial->out);
    return trial_shares(trial) && out > in ? out : in;
}

static inline size_t trial_out_room(const struct trial *trial)
{
    return trial_shares(trial) ? 0 : trial_room(trial, &trial->out);
}

static inline void trial_paint(const struct trial *trial, uint8_t *in, uint8_t *out, bool is_after)
{
    size_t size = weft_dtype_size(trial->dtype);
    memset(in, GUARD_BYTE, trial_in_room(trial));
    memset(out, GUARD_BYTE, trial_out_room(trial));
    for (int q = 0; q < trial->in.pieces; q++) {
        int target = trial_target(trial, trial->in.pieces > 1 ? q : trial->me);
        trial_paint_piece(trial, trial->me, target, trial->in.counts[q],
                          in + trial->in.at + trial->in.places[q] * size);
    }
    if (is_after) {
        trial_paint_out(trial, trial_shares(trial) ? in : out);
    }
}

/* ---- making it ---- */

static inline void trial_describe(const struct trial *trial, char *text, size_t room)
{
    snprintf(text, room, "%s %s %s of %zu%s%s, root %d, %d ranks%s%s%s, seed %#llx",
             weft_coll_name(trial->coll), weft_dtype_name(trial->dtype),
             trial_reduces(trial->coll) ? weft_redop_name(trial->op) : "", trial->count,
             trial->counts != NULL ? " (pieces)" : "", trial->has_gaps ? " with gaps" : "",
             trial->root, trial->ranks, trial->is_in_place ? ", in place" : "",
             trial->algorithm != NULL ? ", by " : "",
             trial->algorithm != NULL ? trial->algorithm : "", (unsigned long long)trial->seed);
}

/* A buffer of which nothing is read or written may be NULL, and sometimes is. */
static inline uint8_t *trial_buffer(const struct trial *trial, const struct side *side,
                                    uint8_t *memory, uint64_t salt)
{
    bool is_used = side->pieces > 0 && side->span > 0;
    return is_used || (trial_own(trial, salt) & 1) != 0 ? memory + side->at : NULL;
}

static inline void trial_fill_call(struct trial *trial)
{
    weft_call_t *call = &trial->call;
    uint8_t *out = trial_shares(trial) ? trial->desk->in : trial->desk->out;
    *call = (weft_call_t)WEFT_CALL_INIT;
    call->coll = trial->coll;
    call->timeout_ms = trial->timeout_ms;
    call->algorithm = trial->algorithm;
    if (trial->coll == WEFT_BARRIER) {
        return;
    }
    call->dtype = trial->dtype;
    call->op = trial->op;
    call->root = trial->root;
    call->count = trial->count;
    call->scale = trial->scale;
    call->in = trial_buffer(trial, &trial->in, trial->desk->in, 5);
    call->out = trial_buffer(trial, &trial->out, out, 6);
    if (trial->counts != NULL) {
        call->count = trial->coll == WEFT_SCATTER || trial->coll == WEFT_REDUCE_SCATTER
                          ? trial_piece(trial, trial->me, trial->me)
                          : trial_piece(trial, trial->me, 0);
    }
    if (trial->in.pieces > 1) {
        call->in_counts = trial->counts != NULL ? trial->in.counts : NULL;
        call->in_places = trial->has_gaps ? trial->in.places : NULL;
    }
    if (trial->out.pieces > 1) {
        call->out_counts = trial->counts != NULL ? trial->out.counts : NULL;
        call->out_places = trial->has_gaps ? trial->out.places : NULL;
    }
}

/* Lays it out on the desk and paints what the call will read. The trial must stay where it is. */
static inline void trial_prepare(struct trial *trial)
{
    if (trial->coll == WEFT_ALLTOALL) {
        trial->is_in_place = false;
    }
    trial_lay_out(trial);
    trial_align(trial);
    if (trial_in_room(trial) > trial->desk->len || trial_out_room(trial) > trial->desk->len) {
        abort(); /* the test's own mistake */
    }
    if (trial->desk->in_kind == MEMORY_READ_ONLY) {
        mprotect(trial->desk->in, trial->desk->len, PROT_READ | PROT_WRITE);
    }
    trial_paint(trial, trial->desk->in, trial->desk->out, false);
    if (trial->desk->in_kind == MEMORY_READ_ONLY && !trial_shares(trial)) {
        mprotect(trial->desk->in, trial->desk->len, PROT_READ);
    }
    trial_fill_call(trial);
}

static inline weft_status_t trial_begin_plain(const struct trial *trial, weft_comm_t comm,
                                              weft_request_t *request_p)
{
    const weft_call_t *call = &trial->call;
    switch (trial->coll) {
    case WEFT_ALLREDUCE:
        return weft_allreduce(comm, call->in, call->out, call->count, call->dtype, call->op,
                              request_p);
    case WEFT_REDUCE_SCATTER:
        return weft_reduce_scatter(comm, call->in, call->out, call->count, call->dtype, call->op,
                                   request_p);
    case WEFT_ALLGATHER:
        return weft_allgather(comm, call->in, call->out, call->count, call->dtype, request_p);
    case WEFT_BROADCAST:
        return weft_broadcast(comm, call->in, call->out, call->count, call->dtype, call->root,
                              request_p);
    case WEFT_REDUCE:
        return weft_reduce(comm, call->in, call->out, call->count, call->dtype, call->op,
                           call->root, request_p);
    case WEFT_GATHER:
        return weft_gather(comm, call->in, call->out, call->count, call->dtype, call->root,
                           request_p);
    case WEFT_SCATTER:
        return weft_scatter(comm, call->in, call->out, call->count, call->dtype, call->root,
                            request_p);
    case WEFT_ALLTOALL:
        return weft_alltoall(comm, call->in, call->out, call->count, call->dtype, request_p);
    case WEFT_BARRIER:
        return weft_barrier(comm, request_p);
    }
    return WEFT_ERR_INVALID;
}

/* Through the plain function where it can say it, and through weft_collective() every second time. */
static inline weft_status_t trial_begin(const struct trial *trial, weft_comm_t comm,
                                        weft_request_t *request_p)
{
    bool is_plain = trial->counts == NULL && !trial->has_gaps && trial->algorithm == NULL &&
                    trial->timeout_ms == 0 && trial->op != WEFT_SCALED;
    return is_plain && (trial_own(trial, 7) & 1) != 0
               ? trial_begin_plain(trial, comm, request_p)
               : weft_collective(comm, &trial->call, request_p);
}

/* ---- judging it ---- */

/* Results that mean the same become the same. */
static inline void trial_forgive(const struct trial *trial, const uint8_t *got, uint8_t *want)
{
    size_t size = weft_dtype_size(trial->dtype);
    for (size_t i = 0; trial->out.pieces == 1 && i < trial->out.counts[0]; i++) {
        size_t at = trial->out.at + i * size;
        uint64_t got_bits = values_load(trial->dtype, got + at);
        uint64_t want_bits = values_load(trial->dtype, want + at);
        if (values_are_same(trial->dtype, trial->op, got_bits, want_bits)) {
            memcpy(want + at, got + at, size);
        }
    }
}

static inline int trial_compare(const struct trial *trial, const char *name, const uint8_t *got,
                                const uint8_t *want, size_t len, int rank,
                                struct harness_shared *shared)
{
    char text[256];
    size_t at = 0, size = weft_dtype_size(trial->dtype);
    if (memcmp(got, want, len) == 0) {
        return 0;
    }
    while (got[at] == want[at]) {
        at++;
    }
    const struct side *side = name[0] == 'i' ? &trial->in : &trial->out;
    long long offset = (long long)at - (long long)side->at;
    trial_describe(trial, text, sizeof(text));
    return harness_say(shared, rank, FAILED,
                       "%s: %s byte %lld (element %lld of %zu) is %#x, not %#x", text, name, offset,
                       offset / (long long)size, side->span, got[at], want[at]);
}

/* Is everything as it must be, now that the call has ended well? */
static inline int trial_check(struct trial *trial, int rank, struct harness_shared *shared)
{
    struct desk *desk = trial->desk;
    bool is_shared = trial_shares(trial);
    trial_paint(trial, desk->in_image, desk->out_image, true);
    if (trial_reduces(trial->coll) && values_is_float(trial->dtype)) {
        trial_forgive(trial, is_shared ? desk->in : desk->out,
                      is_shared ? desk->in_image : desk->out_image);
    }
    EXPECT_PASS(trial_compare(trial, is_shared ? "memory" : "in", desk->in, desk->in_image,
                              trial_in_room(trial), rank, shared));
    return trial_compare(trial, "out", desk->out, desk->out_image, trial_out_room(trial), rank,
                         shared);
}

/* What a call returned that should have ended well. */
static inline int trial_expect_ok(const struct trial *trial, weft_status_t status, int rank,
                                  struct harness_shared *shared)
{
    char text[256];
    if (status == WEFT_OK) {
        return 0;
    }
    trial_describe(trial, text, sizeof(text));
    return harness_say(shared, rank, FAILED, "%s: %s: %s", text, weft_status_name(status),
                       weft_error_text());
}

/* Prepared, made, waited for, judged. me and ranks are set by the caller. */
static inline int trial_run(struct trial *trial, weft_comm_t comm, int rank,
                            struct harness_shared *shared)
{
    trial_prepare(trial);
    EXPECT_PASS(trial_expect_ok(trial, trial_begin(trial, comm, NULL), rank, shared));
    return trial_check(trial, rank, shared);
}

/* ---- drawing one ---- */

/* The k-th pair of dtype and op that means something, round and round. */
static inline void trial_pair(size_t k, weft_dtype_t *dtype_p, weft_redop_t *op_p)
{
    for (k %= (size_t)WEFT_DTYPES * WEFT_REDOPS;;
         k = (k + 1) % ((size_t)WEFT_DTYPES * WEFT_REDOPS)) {
        *dtype_p = (weft_dtype_t)(k % WEFT_DTYPES);
        *op_p = (weft_redop_t)(k / WEFT_DTYPES);
        if (values_is_defined(*dtype_p, *op_p)) {
            return;
        }
    }
}

static inline double trial_scale(uint64_t seed)
{
    static const double scales[] = {0.5, 2.0, 0.25, 1.0, -1.0};
    return scales[seed % LENS(scales)];
}

/* Pieces of any sizes up to most, a third of them none at all. */
static inline void trial_draw_counts(uint64_t seed, size_t most, size_t *counts, int pieces)
{
    for (int i = 0; i < pieces; i++) {
        uint64_t random = values_mix(seed + (uint64_t)i);
        counts[i] = random % 3 == 0 ? 0 : (size_t)(values_mix(random) % (most + 1));
    }
}

#endif
