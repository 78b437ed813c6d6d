/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weft explain --svg: ranks are columns, time runs down in rows, messages are arrows. A round of a rank stands
 * in the first row in which all that it receives has been sent: rounds are a rank's own count, rows are
 * everybody's. What a rank does alone is a square on its line: copies, reductions, flags.
 */
#include "explain.h"

#include "topo_svg.h"

#include <stdlib.h>
#include <string.h>

#define MARGIN 24
#define LABEL_W 76
#define HEAD_H 84
#define ROW_H 66
#define FOOT_H 46
#define COLUMN_MAX 110
#define COLUMN_MIN 44
#define PAGE_W 1000
#define WIDTH_MIN 660
#define RANKS_MAX 64
#define ROUNDS_MAX 48
#define MESSAGES_MAX 16384
#define SQUARE 10
#define SQUARES_MAX 8

struct message {
    uint32_t from, to;
    uint32_t sent, taken; /* rounds */
    uint32_t blocks;
    bool is_added, is_taken;
};

struct picture {
    const struct weft_plan *plan;
    double block_bytes;
    struct weft_cli_pen *pen;
    uint32_t ranks, rounds; /* drawn */
    int column_w;
    uint32_t rows;
    uint32_t row[RANKS_MAX][ROUNDS_MAX]; /* of a round of a rank */
    uint32_t count;
    struct message message[MESSAGES_MAX];
};

/* ---- what there is ---- */

static bool read_step(const struct picture *picture, uint32_t rank, uint32_t round, uint32_t index,
                      struct weft_plan_step *step_p)
{
    const struct weft_plan_builder *builder = picture->plan->builder;

    return round < builder->rounds(picture->plan, rank) &&
           builder->step(picture->plan, rank, round, index, step_p);
}

static void collect_sends(struct picture *picture, uint32_t rank)
{
    struct weft_plan_step step;

    for (uint32_t round = 0; round < picture->rounds; round++) {
        for (uint32_t k = 0; read_step(picture, rank, round, k, &step); k++) {
            if (step.kind == WEFT_STEP_SEND && step.peer < picture->ranks &&
                picture->count < MESSAGES_MAX) {
                picture->message[picture->count++] = (struct message){
                    .from = rank, .to = step.peer, .sent = round, .blocks = step.from.blocks};
            }
        }
    }
}

/* Messages between two ranks are taken in the order in which they are sent. */
static void match_receives(struct picture *picture, uint32_t rank)
{
    struct weft_plan_step step;

    for (uint32_t round = 0; round < picture->rounds; round++) {
        for (uint32_t k = 0; read_step(picture, rank, round, k, &step); k++) {
            if (step.kind != WEFT_STEP_RECV && step.kind != WEFT_STEP_RECV_REDUCE) {
                continue;
            }
            for (uint32_t i = 0; i < picture->count; i++) {
                struct message *message = &picture->message[i];
                if (message->from == step.peer && message->to == rank && !message->is_taken) {
                    message->is_taken = true;
                    message->taken = round;
                    message->is_added = step.kind == WEFT_STEP_RECV_REDUCE;
                    break;
                }
            }
        }
    }
}

/* Moves rounds down until nothing is taken before it is sent. */
static void find_rows(struct picture *picture)
{
    bool is_moved = true;

    for (uint32_t turn = 0; is_moved && turn < RANKS_MAX * ROUNDS_MAX; turn++) {
        is_moved = false;
        for (uint32_t i = 0; i < picture->count; i++) {
            const struct message *message = &picture->message[i];
            uint32_t *row = &picture->row[message->to][message->taken];
            uint32_t sent = picture->row[message->from][message->sent];
            if (message->is_taken && *row < sent) {
                *row = sent;
                is_moved = true;
            }
        }
        for (uint32_t rank = 0; rank < picture->ranks; rank++) {
            for (uint32_t round = 0; round < picture->rounds; round++) {
                uint32_t least = round > 0 ? picture->row[rank][round - 1] + 1 : 0;
                uint32_t *row = &picture->row[rank][round];
                is_moved = is_moved || *row < least;
                *row = *row < least ? least : *row;
            }
        }
    }
    for (uint32_t rank = 0; rank < picture->ranks; rank++) {
        uint32_t rounds = picture->plan->builder->rounds(picture->plan, rank);
        rounds = rounds < picture->rounds ? rounds : picture->rounds;
        uint32_t end = rounds > 0 ? picture->row[rank][rounds - 1] + 1 : 0;
        picture->rows = picture->rows < end ? end : picture->rows;
    }
}

/* Blocks of every message that is sent in this row; 0: they differ, or there is none. */
static uint32_t uniform_blocks(const struct picture *picture, uint32_t row)
{
    uint32_t blocks = 0;

    for (uint32_t i = 0; i < picture->count; i++) {
        const struct message *message = &picture->message[i];
        if (picture->row[message->from][message->sent] != row) {
            continue;
        }
        if (blocks != 0 && message->blocks != blocks) {
            return 0;
        }
        blocks = message->blocks;
    }
    return blocks;
}

/* ---- drawing ---- */

static int rank_x(const struct picture *picture, uint32_t rank)
{
    return MARGIN + LABEL_W + picture->column_w / 2 + (int)rank * picture->column_w;
}

static int row_y(uint32_t row)
{
    return HEAD_H + (int)row * ROW_H;
}

static void draw_message(const struct picture *picture, const struct message *message)
{
    uint32_t sent = picture->row[message->from][message->sent];
    uint32_t taken = picture->row[message->to][message->taken];
    int from[2] = {rank_x(picture, message->from), row_y(sent) + 8};
    int to[2] = {rank_x(picture, message->to), row_y(taken) + ROW_H - 8};
    char size[EXPLAIN_WORD_LEN];

    weft_cli_pen_line(picture->pen, from, to, message->is_added ? "added" : "message");
    if (picture->ranks <= 16 && message->blocks > 0 && uniform_blocks(picture, sent) == 0) {
        weft_cli_pen_text(picture->pen, from[0] + (to[0] - from[0]) / 4 + 4,
                          from[1] + (to[1] - from[1]) / 4 + 2, 60, "s", "%s",
                          weft_explain_bytes(message->blocks * picture->block_bytes, size));
    }
}

static const char *square_class(uint8_t kind)
{
    return kind == WEFT_STEP_COPY     ? "data"
           : kind == WEFT_STEP_REDUCE ? "gpu"
           : kind == WEFT_STEP_SHOW   ? "ours"
                                      : "pu";
}

static bool is_message(const struct weft_plan_step *step)
{
    return step->kind == WEFT_STEP_SEND || step->kind == WEFT_STEP_RECV ||
           step->kind == WEFT_STEP_RECV_REDUCE;
}

static void draw_squares(const struct picture *picture, uint32_t rank, uint32_t round)
{
    struct weft_plan_step step;
    uint8_t drawn[SQUARES_MAX];
    int count = 0, most = picture->column_w / (SQUARE + 2) - 1;

    most = most < SQUARES_MAX ? most : SQUARES_MAX;
    for (uint32_t i = 0; read_step(picture, rank, round, i, &step); i++) {
        if (!is_message(&step) && count < most && (count == 0 || drawn[count - 1] != step.kind)) {
            drawn[count++] = step.kind;
        }
    }
    for (int i = 0; i < count; i++) {
        weft_cli_pen_square(picture->pen,
                            rank_x(picture, rank) - count * (SQUARE + 2) / 2 + i * (SQUARE + 2),
                            row_y(picture->row[rank][round]) + ROW_H / 2 - SQUARE / 2, SQUARE,
                            square_class(drawn[i]));
    }
}

static void draw_frame(const struct picture *picture, const char *title, int w)
{
    char size[EXPLAIN_WORD_LEN];

    weft_cli_pen_text(picture->pen, MARGIN, 40, w - 2 * MARGIN, "title", "%s", title);
    for (uint32_t rank = 0; rank < picture->ranks; rank++) {
        int x = rank_x(picture, rank);
        weft_cli_pen_line(picture->pen, (int[2]){x, HEAD_H}, (int[2]){x, row_y(picture->rows)},
                          "line");
        weft_cli_pen_text(picture->pen, rank < 10 ? x - 4 : x - 8, HEAD_H - 8, 60, "b", "%u", rank);
    }
    for (uint32_t row = 0; row <= picture->rows; row++) {
        int y = row_y(row);
        weft_cli_pen_line(picture->pen, (int[2]){MARGIN, y}, (int[2]){w - MARGIN, y}, "line");
        if (row == picture->rows) {
            break;
        }
        uint32_t blocks = uniform_blocks(picture, row);
        weft_cli_pen_text(picture->pen, MARGIN, y + ROW_H / 2 - 2, LABEL_W, "t", "time %u", row);
        if (blocks > 0) {
            weft_cli_pen_text(picture->pen, MARGIN, y + ROW_H / 2 + 14, LABEL_W, "s", "%s each",
                              weft_explain_bytes(blocks * picture->block_bytes, size));
        }
    }
}

static void draw_legend(const struct picture *picture, bool is_cut, int w)
{
    static const struct {
        const char *class, *name;
    } words[] = {{"data", "copy"}, {"gpu", "reduce"}, {"ours", "show a flag"}, {"pu", "await"}};
    int y = row_y(picture->rows) + 20, x = MARGIN;

    weft_cli_pen_line(picture->pen, (int[2]){x, y + 5}, (int[2]){x + 24, y + 5}, "message");
    weft_cli_pen_text(picture->pen, x + 30, y + 9, 80, "s", "message");
    weft_cli_pen_line(picture->pen, (int[2]){x + 100, y + 5}, (int[2]){x + 124, y + 5}, "added");
    weft_cli_pen_text(picture->pen, x + 130, y + 9, 80, "s", "and added");
    x += 215;
    for (size_t i = 0; i < WEFT_COUNT_OF(words); i++, x += 95) {
        weft_cli_pen_square(picture->pen, x, y, SQUARE, words[i].class);
        weft_cli_pen_text(picture->pen, x + 15, y + 9, 80, "s", "%s", words[i].name);
    }
    if (is_cut) {
        weft_cli_pen_text_end(picture->pen, w - MARGIN, 62, w / 2, "i",
                              "the first %u ranks and %u rounds", picture->ranks, picture->rounds);
    }
}

static void draw(const struct picture *picture, const char *title, int w, bool is_cut)
{
    draw_frame(picture, title, w);
    for (uint32_t i = 0; i < picture->count; i++) {
        if (picture->message[i].is_taken) {
            draw_message(picture, &picture->message[i]);
        }
    }
    for (uint32_t rank = 0; rank < picture->ranks; rank++) {
        for (uint32_t round = 0; round < picture->rounds; round++) {
            draw_squares(picture, rank, round);
        }
    }
    draw_legend(picture, is_cut, w);
}

static uint32_t most_rounds(const struct weft_plan *plan, uint32_t ranks)
{
    uint32_t most = 0;

    for (uint32_t rank = 0; rank < ranks; rank++) {
        uint32_t rounds = plan->builder->rounds(plan, rank);
        most = rounds > most ? rounds : most;
    }
    return most;
}

static void lay_out(struct picture *picture)
{
    int width = (PAGE_W - 2 * MARGIN - LABEL_W) / (int)picture->ranks;

    picture->column_w = width > COLUMN_MAX ? COLUMN_MAX : width < COLUMN_MIN ? COLUMN_MIN : width;
    for (uint32_t rank = 0; rank < picture->ranks; rank++) {
        collect_sends(picture, rank);
    }
    for (uint32_t rank = 0; rank < picture->ranks; rank++) {
        match_receives(picture, rank);
    }
    find_rows(picture);
}

void weft_explain_svg(const struct weft_plan *plan, double bytes, const char *title, FILE *out)
{
    bool is_vector = plan->coll == WEFT_ALLREDUCE || plan->coll == WEFT_BROADCAST ||
                     plan->coll == WEFT_REDUCE || plan->coll == WEFT_BARRIER;
    double blocks = is_vector ? plan->parts : (double)plan->ranks * plan->segments;
    struct picture *picture = weft_cli_alloc(1, sizeof(*picture));

    picture->plan = plan;
    picture->pen = weft_cli_pen_open();
    picture->block_bytes = blocks > 0 ? bytes / blocks : 0;
    picture->ranks = plan->ranks < RANKS_MAX ? plan->ranks : RANKS_MAX;
    uint32_t rounds = most_rounds(plan, picture->ranks);
    picture->rounds = rounds < ROUNDS_MAX ? rounds : ROUNDS_MAX;
    lay_out(picture);
    int w = 2 * MARGIN + LABEL_W + (int)picture->ranks * picture->column_w;
    w = w < WIDTH_MIN ? WIDTH_MIN : w;
    draw(picture, title, w, picture->ranks < plan->ranks || picture->rounds < rounds);
    weft_cli_pen_close(picture->pen, w, row_y(picture->rows) + FOOT_H, title, out);
    free(picture);
}
