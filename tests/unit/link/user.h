/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who uses a link, in tests: sends numbered envelopes and chunks, takes what comes, and notices whatever is lost,
 * comes twice, comes in another order, is not what was sent, or is read after it was given back.
 */
#ifndef WEFT_TESTS_LINK_USER_H
#define WEFT_TESTS_LINK_USER_H

#include "unit/link/ends.h"

#define CHUNKS_MAX 400
#define CHUNK_LEN 200
#define ENVELOPE_MAX 4000 /* longer than WHOLE_MAX: some come in two steps */

struct user {
    /* chunks out */
    uint8_t source[CHUNKS_MAX][CHUNK_LEN];
    uint8_t is_sent[CHUNKS_MAX], is_forgotten[CHUNKS_MAX];
    uint32_t chunks; /* posted so far */
    uint32_t sent;   /* SENT came for so many */
    uint32_t forgotten;
    /* chunks in */
    uint8_t target[CHUNKS_MAX][CHUNK_LEN];
    uint8_t has_landed[CHUNKS_MAX];
    uint32_t landed;
    /* envelopes */
    uint32_t said, heard;
    bool is_hearing; /* the next one's header has come */
    uint8_t envelope[ENVELOPE_MAX];
};

static inline uint8_t pattern(uint32_t rank, uint32_t n, size_t i)
{
    return (uint8_t)((rank * 131 + n * 17 + i * 7) ^ (n >> 5));
}

static inline void fill(uint8_t *data, size_t len, uint32_t rank, uint32_t n)
{
    for (size_t i = 0; i < len; i++) {
        data[i] = pattern(rank, n, i);
    }
}

static inline void check(const uint8_t *data, size_t len, uint32_t rank, uint32_t n)
{
    for (size_t i = 0; i < len; i++) {
        if (data[i] != pattern(rank, n, i)) {
            fail_msg("number %u of rank %u is wrong at byte %zu of %zu", n, rank, i, len);
        }
    }
}

static inline struct user *user_of(struct end *end)
{
    return end->user;
}

static inline void users_open(struct pair *pair)
{
    for (int i = 0; i < 2; i++) {
        pair->end[i].user = calloc(1, sizeof(struct user));
        assert_non_null(pair->end[i].user);
    }
}

static inline void users_close(struct pair *pair)
{
    for (int i = 0; i < 2; i++) {
        free(pair->end[i].user);
    }
}

/* ---- out ---- */

static inline size_t envelope_len(uint32_t n)
{
    static const size_t lens[] = {8, 0, 300, 64, 3000, 1, 2049, 100};
    return lens[n % WEFT_COUNT_OF(lens)];
}

/* false: FULL */
static inline bool say(struct end *end)
{
    struct user *user = user_of(end);
    uint32_t n = user->said + 1;
    struct weft_wire_data frame = {.type = WEFT_DATA_EAGER, .tag = n};
    uint8_t data[ENVELOPE_MAX];
    const struct weft_slice slice = {data, envelope_len(n)};
    enum weft_post how;
    fill(data, slice.len, end->self.rank, n);
    how = weft_link_send(&end->link, &frame, &slice, NULL);
    memset(data, 0xdd, sizeof(data));
    assert_int_not_equal(how, WEFT_POST_LENT);
    user->said += how == WEFT_POST_SENT;
    return how == WEFT_POST_SENT;
}

/* false: FULL */
static inline bool stream(struct end *end)
{
    struct user *user = user_of(end);
    uint32_t n = user->chunks;
    struct weft_wire_data frame = {.type = WEFT_DATA_CHUNK, .tag = 1, .a = n};
    const struct weft_slice slice = {user->source[n], CHUNK_LEN};
    enum weft_post how;
    fill(user->source[n], CHUNK_LEN, end->self.rank, n);
    how = weft_link_stream(&end->link, &frame, &slice, user->source[n]);
    assert_int_not_equal(how, WEFT_POST_SENT);
    user->chunks += how == WEFT_POST_LENT;
    return how == WEFT_POST_LENT;
}

/* It is wanted back: nobody may read it from now on. */
static inline void forget(struct end *end, uint32_t n)
{
    struct user *user = user_of(end);
    if (!user->is_sent[n] && !user->is_forgotten[n]) {
        assert_int_equal(weft_link_forget(&end->link, user->source[n], false), 1);
        user->is_forgotten[n] = 1;
        user->forgotten++;
        memset(user->source[n], 0xdd, CHUNK_LEN);
    }
}

/* ---- in ---- */

static inline void heard(struct end *end, const struct weft_wire_data *frame, const uint8_t *data)
{
    struct user *user = user_of(end);
    assert_int_equal(frame->tag, user->heard + 1); /* in order, once */
    user->heard++;
    user->is_hearing = false;
    assert_int_equal(frame->len, envelope_len(user->heard));
    check(data, frame->len, end->other->self.rank, user->heard);
}

static inline void header(struct end *end, const struct weft_done *done)
{
    struct user *user = user_of(end);
    struct weft_slice slice = {user->envelope, done->frame.len};
    if (weft_wire_data_is_bulk(&done->frame)) {
        bool is_void = done->frame.tag == UINT32_MAX;
        slice.data = is_void ? NULL : user->target[done->frame.a];
        assert_false(end->pieces[done->lane->slot].is_there);
        end->pieces[done->lane->slot].frame = done->frame;
        end->pieces[done->lane->slot].is_there = true;
    } else {
        assert_int_equal(done->frame.tag, user->heard + 1);
        assert_false(user->is_hearing); /* once */
        user->is_hearing = true;
    }
    weft_link_place(&end->link, done, &slice);
}

static inline void landed(struct end *end, const struct weft_done *done)
{
    struct user *user = user_of(end);
    uint64_t n = done->frame.a;
    if (!weft_wire_data_is_bulk(&done->frame)) {
        heard(end, &done->frame, user->envelope);
        return;
    }
    assert_true(end->pieces[done->lane->slot].is_there);
    end->pieces[done->lane->slot].is_there = false;
    if (done->frame.tag != UINT32_MAX) {
        assert_int_equal(user->has_landed[n], 0); /* once */
        user->has_landed[n] = 1;
        user->landed++;
        check(user->target[n], CHUNK_LEN, end->other->self.rank, (uint32_t)n);
        memset(user->target[n], 0xaa, CHUNK_LEN); /* the next one to use this memory */
    }
}

static inline void given_back(struct end *end, const struct weft_done *done)
{
    struct user *user = user_of(end);
    size_t n = (size_t)((uint8_t *)done->cookie - user->source[0]) / CHUNK_LEN;
    assert_int_equal(user->is_sent[n] + user->is_forgotten[n], 0);
    assert_int_equal(user_of(end->other)->has_landed[n], 1); /* only what is there */
    user->is_sent[n] = 1;
    user->sent++;
    memset(user->source[n], 0xdd, CHUNK_LEN);
}

static inline unsigned take(struct end *end)
{
    struct weft_done done[32];
    unsigned count = weft_links_poll(end->links, done, WEFT_COUNT_OF(done));
    for (unsigned i = 0; i < count; i++) {
        assert_ptr_equal(done[i].owner, &end->link);
        switch (done[i].kind) {
        case WEFT_DONE_OPENED:
            end->opened++;
            break;
        case WEFT_DONE_ARRIVED:
            assert_false(user_of(end)->is_hearing);
            heard(end, &done[i].frame, done[i].payload);
            break;
        case WEFT_DONE_HEADER:
            header(end, &done[i]);
            break;
        case WEFT_DONE_LANDED:
            landed(end, &done[i]);
            break;
        case WEFT_DONE_SENT:
            given_back(end, &done[i]);
            break;
        case WEFT_DONE_WRITABLE:
            end->writable++;
            break;
        case WEFT_DONE_LOST:
            end->lost++;
            break;
        }
    }
    return count;
}

static inline bool is_untouched(const struct end *end)
{
    const struct user *user = end->other->user;
    for (uint32_t n = 0; n < user->chunks; n++) {
        const uint8_t *target = ((const struct user *)end->user)->target[n];
        if (((const struct user *)end->user)->has_landed[n]) {
            for (size_t i = 0; i < CHUNK_LEN; i++) {
                if (target[i] != 0xaa) {
                    return false; /* written after it had landed */
                }
            }
        }
    }
    return true;
}

/* ---- until all is through ---- */

static inline bool connect_dialled(struct fake_lane *fake)
{
    return fake_connect(fake);
}

static inline bool move(struct fake_lane *fake)
{
    if (fake->other == NULL && fake->lane.is_up && weft_list_is_empty(&fake->pipe) &&
        fake->begun == NULL) {
        fake_end(fake); /* it hears of it at last */
        return true;
    }
    return fake_both(fake);
}

static inline void dial_now(struct end *end)
{
    struct weft_bundle *bundle = end->link.bundle;
    for (uint32_t i = 0; bundle != NULL && i < bundle->count; i++) {
        bundle->slots[i].retry_ns = 0;
    }
}

/* Nothing is on its way, wanted or not. */
static inline bool is_flushed(const struct end *end)
{
    const struct weft_bundle *bundle = end->link.bundle;
    for (uint32_t i = 0; bundle != NULL && i < bundle->count; i++) {
        const struct weft_slot *slot = &bundle->slots[i];
        if (slot->state == SLOT_UP &&
            (slot->flying_count > slot->ghost_count ||
             (slot->ghost_count == 0 && slot->lane->ops->queued(slot->lane) > 0))) {
            return false;
        }
    }
    return bundle == NULL || (end->link.keep_len == 0 && end->link.lane != NULL &&
                              weft_list_is_empty(&bundle->replay));
}

static inline bool is_through(struct end *end)
{
    const struct user *user = user_of(end);
    return user->sent + user->forgotten == user->chunks &&
           user_of(end->other)->heard == user->said && is_flushed(end);
}

static inline void carry_again(struct end *end)
{
    for (uint32_t i = 0; i < end->links->tcp_count; i++) {
        weft_links_carrier(end->links, end->links->nics[i].name, true);
    }
}

/* Everything moves, everything comes up again, nothing new happens. */
static inline void settle(struct pair *pair)
{
    carry_again(&pair->end[0]);
    carry_again(&pair->end[1]);
    for (int i = 0; i < 3000; i++) {
        for (int k = 0; k < 2; k++) {
            struct end *end = &pair->end[k];
            dial_now(end);
            if (end->link.bundle != NULL) {
                tick(end);
            }
            each_lane(end, connect_dialled);
            take(end);
            each_lane(end, move);
            take(end);
        }
        if (i > 20 && is_through(&pair->end[0]) && is_through(&pair->end[1])) {
            return;
        }
    }
    fail_msg("it does not end: said %u heard %u, said %u heard %u; chunks %u sent %u, %u sent %u",
             user_of(&pair->end[0])->said, user_of(&pair->end[1])->heard,
             user_of(&pair->end[1])->said, user_of(&pair->end[0])->heard,
             user_of(&pair->end[0])->chunks, user_of(&pair->end[0])->sent,
             user_of(&pair->end[1])->chunks, user_of(&pair->end[1])->sent);
}

static inline uint32_t count_free(const struct weft_bundle *bundle)
{
    uint32_t count = 0;
    for (const struct weft_list *node = bundle->free.next; node != &bundle->free;
         node = node->next) {
        count++;
    }
    return count;
}

/* What must be true when all is through. */
static inline void check_settled(struct pair *pair, uint32_t pool)
{
    for (int k = 0; k < 2; k++) {
        struct end *end = &pair->end[k];
        const struct weft_bundle *bundle = end->link.bundle;
        assert_int_equal(bundle->landed, end->other->link.bundle->sent); /* no hole is left */
        assert_int_equal(bundle->acked, bundle->sent);
        assert_int_equal(end->link.acked, end->link.sent);
        assert_int_equal(end->link.keep_len, 0);
        assert_int_equal(count_free(bundle), pool);
        assert_true(is_untouched(end));
        assert_int_equal(end->lost, 0);
        for (uint32_t i = 0; i < bundle->count; i++) {
            assert_int_equal(bundle->slots[i].flying_count, 0);
            assert_int_equal(bundle->slots[i].ghost_count, 0);
            assert_int_equal(bundle->slots[i].flying_len, 0);
        }
    }
}

/* Both links are up over all lanes. */
static inline uint32_t pair_up(struct pair *pair, uint32_t nics)
{
    pair_open(pair, nics);
    users_open(pair);
    weft_link_want(&pair->end[1].link);
    settle(pair);
    return count_free(pair->end[1].link.bundle);
}

static inline void pair_down(struct pair *pair)
{
    pair_close(pair);
    users_close(pair);
}

#endif
