/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Puts, gets and signals of rank 0 in rank 1's memory. What has come is overwritten with something else as
 * soon as it was looked at, and looked at again before the place is used again; some places are kept to the
 * end. So whatever is written a second time, however late, is found.
 */
#include "lanes.h"

#define SLOTS 8
#define SLOT_LEN (4 * MIB) /* keeps four NICs busy */
#define KEPT 128           /* places that are written once and looked at again in the end */
#define KEPT_LEN (128 * KIB)
#define KEPT_EVERY_S 0.05
#define MEMORY_LEN (SLOTS * SLOT_LEN + KEPT * KEPT_LEN)
#define SIGNAL_SLOTS 16
#define SIGNAL_AHEAD 8
#define SIGNAL_LEN (2 * MIB)
#define SIGNAL_LAST ((uint64_t)1 << 40)

/* Rank 0 tells rank 1 where it has put, or what it has got. */
struct token {
    uint64_t round;
    uint64_t offset, len;
    uint64_t is_kept, is_last;
};

static bool send_words(struct traffic *traffic, const void *words, size_t len)
{
    return lanes_is_fine(
        traffic, "weft_send",
        weft_send(traffic->comm, words, len, 1 - traffic->rank, traffic->tag, NULL));
}

static bool receive_words(struct traffic *traffic, void *words, size_t len)
{
    return lanes_is_fine(
        traffic, "weft_recv",
        weft_recv(traffic->comm, words, len, 1 - traffic->rank, traffic->tag, NULL, NULL));
}

/* Rank 1's memory, for rank 0. */
static bool lend(struct traffic *traffic, void *memory, size_t len, weft_mem_t *mem_p)
{
    if (traffic->rank == 0) {
        return receive_words(traffic, mem_p, sizeof(*mem_p));
    }
    return lanes_is_fine(traffic, "weft_mem_register",
                         weft_mem_register(traffic->comm, memory, len, mem_p)) &&
           send_words(traffic, mem_p, sizeof(*mem_p));
}

/* In three pieces: very short, short, long. */
static bool move(struct traffic *traffic, const weft_mem_t *mem, uint64_t offset, uint8_t *data,
                 size_t len, bool is_put)
{
    static const size_t cut[] = {0, 100, 40101};
    for (int i = 0; i < 3; i++) {
        size_t end = i < 2 ? cut[i + 1] : len;
        uint8_t *from = data + cut[i];
        weft_status_t status =
            is_put ? weft_put(traffic->comm, mem, offset + cut[i], from, end - cut[i])
                   : weft_get(traffic->comm, mem, offset + cut[i], from, end - cut[i]);
        if (!lanes_is_fine(traffic, is_put ? "weft_put" : "weft_get", status)) {
            return false;
        }
    }
    return lanes_is_fine(traffic, "weft_quiet", weft_quiet(traffic->comm));
}

/* The place of a round: one of a ring, or now and then one that is kept to the end. */
static void choose_place(struct token *token, double *kept_s, uint64_t *kept)
{
    token->is_last = lanes_is_over();
    token->is_kept = *kept < KEPT && lanes_now_s() >= *kept_s + KEPT_EVERY_S;
    if (token->is_kept) {
        token->offset = SLOTS * SLOT_LEN + *kept * KEPT_LEN;
        token->len = KEPT_LEN;
        *kept_s = lanes_now_s();
        ++*kept;
        return;
    }
    token->offset = token->round % SLOTS * SLOT_LEN;
    token->len = SLOT_LEN - token->round % 1000;
}

static struct piece *piece_at(struct piece *pieces, const struct token *token)
{
    return &pieces[token->is_kept ? SLOTS + (token->offset - SLOTS * SLOT_LEN) / KEPT_LEN
                                  : token->offset / SLOT_LEN];
}

/* What is put in odd rounds is overwritten by another put, in even rounds by rank 1 itself. Rank 1's
 * answer to the round before the last says that this round's place is free. */
static void put_all(struct traffic *traffic, const weft_mem_t *mem)
{
    uint8_t *data = lanes_allocate(SLOT_LEN);
    struct token token = {0};
    uint64_t kept = 0, answer;
    double kept_s = 0;
    bool is_going = true;
    for (; is_going && token.is_last == 0; token.round++) {
        if (token.round >= 2 && !receive_words(traffic, &answer, sizeof(answer))) {
            return;
        }
        choose_place(&token, &kept_s, &kept);
        lanes_fill(data, token.len, lanes_stamp(traffic, token.round, 'A'));
        is_going = move(traffic, mem, token.offset, data, token.len, true);
        if (is_going && token.round % 2 == 1) {
            lanes_fill(data, token.len, lanes_stamp(traffic, token.round, 'B'));
            is_going = move(traffic, mem, token.offset, data, token.len, true);
        }
        is_going = is_going && send_words(traffic, &token, sizeof(token));
        lanes_progress(traffic, token.len);
    }
    for (int i = 0; is_going && i < (token.round >= 2 ? 2 : 1); i++) {
        is_going = receive_words(traffic, &answer, sizeof(answer));
    }
}

static void look_at_puts(struct traffic *traffic, uint8_t *memory)
{
    static struct piece pieces[SLOTS + KEPT];
    struct token token = {0};
    while (token.is_last == 0 && receive_words(traffic, &token, sizeof(token))) {
        struct piece *piece = piece_at(pieces, &token);
        *piece =
            (struct piece){memory + token.offset, token.len,
                           lanes_stamp(traffic, token.round, token.round % 2 == 1 ? 'B' : 'A')};
        lanes_check(traffic, piece, "after quiet");
        if (token.round % 2 == 0) {
            piece->stamp = lanes_stamp(traffic, token.round, 'B');
            lanes_fill(piece->data, piece->len, piece->stamp);
        }
        lanes_check_again(traffic, &pieces[(token.round + 2) % SLOTS]);
        lanes_progress(traffic, token.len);
        if (!send_words(traffic, &token.round, sizeof(token.round))) {
            return;
        }
    }
    for (int i = 0; i < SLOTS + KEPT && !traffic->has_failed; i++) {
        lanes_check_again(traffic, &pieces[i]);
    }
}

void lanes_put(struct traffic *traffic)
{
    uint8_t *memory = traffic->rank == 1 ? lanes_allocate(MEMORY_LEN) : NULL;
    weft_mem_t mem;
    if (!lend(traffic, memory, MEMORY_LEN, &mem)) {
        return;
    }
    if (traffic->rank == 0) {
        put_all(traffic, &mem);
    } else {
        look_at_puts(traffic, memory);
    }
}

/* Rank 1 changes a place when rank 0 has said that it has what was there. */
static void offer(struct traffic *traffic, uint8_t *memory)
{
    struct token token = {0};
    for (uint64_t round = 0; round < SLOTS; round++) {
        lanes_fill(memory + round * SLOT_LEN, SLOT_LEN, lanes_stamp(traffic, round, 'A'));
    }
    uint64_t round = 0;
    if (!send_words(traffic, &round, sizeof(round))) {
        return;
    }
    while (receive_words(traffic, &token, sizeof(token)) && token.is_last == 0) {
        round = token.round + SLOTS;
        lanes_fill(memory + round % SLOTS * SLOT_LEN, SLOT_LEN, lanes_stamp(traffic, round, 'A'));
        lanes_progress(traffic, SLOT_LEN);
        if (!send_words(traffic, &round, sizeof(round))) {
            return;
        }
    }
}

/* What was got is written over, and must stay so: an answer that comes twice would show. */
static void get_all(struct traffic *traffic, const weft_mem_t *mem, uint8_t *memory)
{
    static struct piece pieces[SLOTS + KEPT];
    struct token token = {0};
    uint64_t kept = 0, number;
    double kept_s = 0;
    bool is_going = receive_words(traffic, &number, sizeof(number));
    for (; is_going && token.is_last == 0; token.round++) {
        if (token.round >= SLOTS && !receive_words(traffic, &number, sizeof(number))) {
            return;
        }
        choose_place(&token, &kept_s, &kept);
        struct piece *piece = piece_at(pieces, &token);
        lanes_check_again(traffic, piece);
        *piece = (struct piece){memory + token.offset, token.len,
                                lanes_stamp(traffic, token.round, 'A')};
        is_going =
            move(traffic, mem, token.round % SLOTS * SLOT_LEN, piece->data, piece->len, false);
        if (!is_going) {
            return;
        }
        lanes_check(traffic, piece, "after quiet");
        piece->stamp = lanes_stamp(traffic, token.round, 'B');
        lanes_fill(piece->data, piece->len, piece->stamp);
        lanes_progress(traffic, token.len);
        is_going = send_words(traffic, &token, sizeof(token));
    }
    for (uint64_t i = token.round; is_going && i < token.round + SLOTS - 1; i++) {
        is_going = i < SLOTS || receive_words(traffic, &number, sizeof(number));
    }
    for (int i = 0; i < SLOTS + KEPT && is_going; i++) {
        lanes_check_again(traffic, &pieces[i]);
    }
}

void lanes_get(struct traffic *traffic)
{
    uint8_t *memory = lanes_allocate(MEMORY_LEN);
    weft_mem_t mem;
    if (!lend(traffic, memory, MEMORY_LEN, &mem)) {
        return;
    }
    if (traffic->rank == 0) {
        get_all(traffic, &mem, memory);
    } else {
        offer(traffic, memory);
    }
}

/* ---- puts with signals: a ring of places, each with a word of its own ---- */

static size_t signal_len(uint64_t round)
{
    static const size_t len[] = {SIGNAL_LEN, 100, 40000, SIGNAL_LEN - 9};
    return len[round % 4];
}

static uint64_t signal_add(uint64_t round)
{
    return 1 + round * 7 % 65536;
}

static void signal_all(struct traffic *traffic, const weft_mem_t *mem)
{
    uint8_t *data = lanes_allocate(SIGNAL_SLOTS * SIGNAL_LEN);
    uint64_t number;
    bool is_last = false;
    uint64_t round = 0;
    for (; !is_last; round++) {
        uint64_t slot = round % SIGNAL_SLOTS;
        if (round >= SIGNAL_AHEAD && !receive_words(traffic, &number, sizeof(number))) {
            return;
        }
        if (slot == 0 && !lanes_is_fine(traffic, "weft_quiet", weft_quiet(traffic->comm))) {
            return; /* the memory is ours again after it */
        }
        is_last = lanes_is_over();
        size_t len = signal_len(round);
        lanes_fill(data + slot * SIGNAL_LEN, len, lanes_stamp(traffic, round, 'A'));
        if (!lanes_is_fine(traffic, "weft_put_signal",
                           weft_put_signal(traffic->comm, mem, slot * SIGNAL_LEN,
                                           data + slot * SIGNAL_LEN, len, mem,
                                           SIGNAL_SLOTS * SIGNAL_LEN + slot * 8,
                                           is_last ? SIGNAL_LAST : signal_add(round)))) {
            return;
        }
        lanes_progress(traffic, len);
    }
    bool is_going = lanes_is_fine(traffic, "weft_quiet", weft_quiet(traffic->comm));
    for (uint64_t i = 0; is_going && i < SIGNAL_AHEAD && i < round; i++) {
        is_going = receive_words(traffic, &number, sizeof(number));
    }
}

static void check_sums(const struct traffic *traffic, const uint64_t *word, const uint64_t *sum,
                       uint64_t sums)
{
    for (uint64_t i = 0; i < SIGNAL_SLOTS; i++) {
        if ((sums >> i & 1) != 0) {
            lanes_check_number(traffic, "sum of signals", word[i], sum[i]);
        }
    }
}

/* One round of rank 1; *is_last_p when it was the last one. */
static bool take_signal(struct traffic *traffic, uint8_t *memory, uint64_t round, uint64_t *sum,
                        bool *is_last_p)
{
    static struct piece pieces[SIGNAL_SLOTS];
    uint64_t slot = round % SIGNAL_SLOTS;
    const uint64_t *word = (const uint64_t *)(const void *)(memory + SIGNAL_SLOTS * SIGNAL_LEN);
    if (!lanes_is_fine(traffic, "weft_wait_signal",
                       weft_wait_signal(traffic->comm, &word[slot], sum[slot] + signal_add(round),
                                        WEFT_NO_LIMIT))) {
        return false;
    }
    uint64_t value = __atomic_load_n(&word[slot], __ATOMIC_ACQUIRE);
    *is_last_p = value >= SIGNAL_LAST;
    sum[slot] += *is_last_p ? SIGNAL_LAST : signal_add(round);
    check_sums(traffic, word, sum, 1ULL << slot);
    struct piece *piece = &pieces[slot];
    *piece = (struct piece){memory + slot * SIGNAL_LEN, signal_len(round),
                            lanes_stamp(traffic, round, 'A')};
    lanes_check(traffic, piece, "after its signal");
    piece->stamp = lanes_stamp(traffic, round, 'B');
    lanes_fill(piece->data, piece->len, piece->stamp);
    lanes_progress(traffic, piece->len);
    for (int i = 0; i < SIGNAL_SLOTS; i++) { /* all of them in the end */
        if (*is_last_p || i == (int)((round + SIGNAL_AHEAD) % SIGNAL_SLOTS)) {
            lanes_check_again(traffic, &pieces[i]);
        }
    }
    return send_words(traffic, &round, sizeof(round));
}

void lanes_signal(struct traffic *traffic)
{
    size_t len = SIGNAL_SLOTS * (SIGNAL_LEN + 8);
    uint8_t *memory = lanes_allocate(len);
    uint64_t sum[SIGNAL_SLOTS] = {0};
    bool is_last = false;
    weft_mem_t mem;
    if (!lend(traffic, memory, len, &mem)) {
        return;
    }
    if (traffic->rank == 0) {
        signal_all(traffic, &mem);
        return;
    }
    for (uint64_t round = 0; !is_last; round++) {
        if (!take_signal(traffic, memory, round, sum, &is_last)) {
            return;
        }
    }
    check_sums(traffic, (const uint64_t *)(void *)(memory + SIGNAL_SLOTS * SIGNAL_LEN), sum,
               0xffff);
}
