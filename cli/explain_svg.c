/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weft explain --svg: ranks are columns, rounds are rows, messages are arrows from the round in which they are
 * sent to the round in which they are taken. What a rank does alone is a square on its line: copies,
 * reductions, flags.
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
#define RANKS_MAX 64
#define ROUNDS_MAX 48
#define SQUARE 10
#define SQUARES_MAX 4

struct picture {
    const struct weft_plan *plan;
    double block_bytes;
    struct weft_cli_pen *pen;
    uint32_t ranks, rounds; /* drawn */
    int column_w;
};

static int rank_x(const struct picture *picture, uint32_t rank)
{
    return MARGIN + LABEL_W + picture->column_w / 2 + (int)rank * picture->column_w;
}

static int round_y(uint32_t round)
{
    return HEAD_H + (int)round * ROW_H;
}

static bool read_step(const struct picture *picture, uint32_t rank, uint32_t round, uint32_t index,
                      struct weft_plan_step *step_p)
{
    const struct weft_plan_builder *builder = picture->plan->builder;

    return round < builder->rounds(picture->plan, rank) &&
           builder->step(picture->plan, rank, round, index, step_p);
}

/* How many messages this rank sent to peer before this step. */
static uint32_t sent_before(const struct picture *picture, uint32_t rank, uint32_t peer,
                            uint32_t round, uint32_t index)
{
    struct weft_plan_step step;
    uint32_t count = 0;

    for (uint32_t i = 0; i <= round; i++) {
        for (uint32_t k = 0; read_step(picture, rank, i, k, &step); k++) {
            if (i == round && k == index) {
                return count;
            }
            count += step.kind == WEFT_STEP_SEND && step.peer == peer;
        }
    }
    return count;
}

/* The round in which the receiver takes the nth message of a sender. false: not in the picture. */
static bool find_receive(const struct picture *picture, uint32_t from, uint32_t to, uint32_t nth,
                         uint32_t *round_p, bool *is_added_p)
{
    struct weft_plan_step step;

    for (uint32_t round = 0; round < picture->rounds; round++) {
        for (uint32_t k = 0; read_step(picture, to, round, k, &step); k++) {
            bool is_receive = step.kind == WEFT_STEP_RECV || step.kind == WEFT_STEP_RECV_REDUCE;
            if (is_receive && step.peer == from && nth-- == 0) {
                *round_p = round;
                *is_added_p = step.kind == WEFT_STEP_RECV_REDUCE;
                return true;
            }
        }
    }
    return false;
}

static void draw_message(const struct picture *picture, uint32_t rank, uint32_t round,
                         uint32_t index, const struct weft_plan_step *step)
{
    uint32_t nth = sent_before(picture, rank, step->peer, round, index), taken;
    bool is_added;

    if (step->peer >= picture->ranks ||
        !find_receive(picture, rank, step->peer, nth, &taken, &is_added)) {
        return;
    }
    int from[2] = {rank_x(picture, rank), round_y(round) + 8};
    int to[2] = {rank_x(picture, step->peer), round_y(taken) + ROW_H - 8};
    char size[EXPLAIN_WORD_LEN];
    weft_cli_pen_line(picture->pen, from, to, is_added ? "added" : "message");
    if (picture->ranks <= 16) {
        weft_cli_pen_text(picture->pen, from[0] + (to[0] - from[0]) / 4 + 4,
                          from[1] + (to[1] - from[1]) / 4 + 2, 60, "s", "%s",
                          weft_explain_bytes(step->from.blocks * picture->block_bytes, size));
    }
}

static const char *square_class(uint8_t kind)
{
    return kind == WEFT_STEP_COPY     ? "data"
           : kind == WEFT_STEP_REDUCE ? "gpu"
           : kind == WEFT_STEP_SHOW   ? "ours"
                                      : "pu";
}

static void draw_cell(const struct picture *picture, uint32_t rank, uint32_t round)
{
    struct weft_plan_step step;
    uint8_t drawn[SQUARES_MAX];
    int count = 0;

    for (uint32_t i = 0; read_step(picture, rank, round, i, &step); i++) {
        if (step.kind == WEFT_STEP_SEND) {
            draw_message(picture, rank, round, i, &step);
        } else if (step.kind != WEFT_STEP_RECV && step.kind != WEFT_STEP_RECV_REDUCE &&
                   count < SQUARES_MAX && (count == 0 || drawn[count - 1] != step.kind)) {
            drawn[count++] = step.kind;
        }
    }
    for (int i = 0; i < count; i++) {
        weft_cli_pen_square(
            picture->pen, rank_x(picture, rank) - count * (SQUARE + 2) / 2 + i * (SQUARE + 2),
            round_y(round) + ROW_H / 2 - SQUARE / 2, SQUARE, square_class(drawn[i]));
    }
}

static void draw_frame(const struct picture *picture, const char *title, int w)
{
    int bottom = round_y(picture->rounds);

    weft_cli_pen_text(picture->pen, MARGIN, 40, w - 2 * MARGIN, "title", "%s", title);
    for (uint32_t rank = 0; rank < picture->ranks; rank++) {
        int x = rank_x(picture, rank);
        weft_cli_pen_line(picture->pen, (int[2]){x, HEAD_H}, (int[2]){x, bottom}, "line");
        weft_cli_pen_text(picture->pen, x - 8, HEAD_H - 8, 60, "b", "%u", rank);
    }
    for (uint32_t round = 0; round <= picture->rounds; round++) {
        int y = round_y(round);
        weft_cli_pen_line(picture->pen, (int[2]){MARGIN, y}, (int[2]){w - MARGIN, y}, "line");
        if (round < picture->rounds) {
            weft_cli_pen_text(picture->pen, MARGIN, y + ROW_H / 2 + 4, LABEL_W, "s", "round %u",
                              round);
        }
    }
}

static void draw_legend(const struct picture *picture, bool is_cut, int w)
{
    static const struct {
        const char *class, *name;
    } words[] = {{"data", "copy"}, {"gpu", "reduce"}, {"ours", "show a flag"}, {"pu", "await"}};
    int y = round_y(picture->rounds) + 20, x = MARGIN;

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
        weft_cli_pen_text_end(picture->pen, w - MARGIN, HEAD_H - 8, w / 2, "i",
                              "the first %u ranks and %u rounds", picture->ranks, picture->rounds);
    }
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

void weft_explain_svg(const struct weft_plan *plan, double bytes, const char *title, FILE *out)
{
    bool is_vector = plan->coll == WEFT_ALLREDUCE || plan->coll == WEFT_BROADCAST ||
                     plan->coll == WEFT_REDUCE || plan->coll == WEFT_BARRIER;
    double blocks = is_vector ? plan->parts : (double)plan->ranks * plan->segments;
    struct picture picture = {.plan = plan, .pen = weft_cli_pen_open()};

    picture.block_bytes = blocks > 0 ? bytes / blocks : 0;
    picture.ranks = plan->ranks < RANKS_MAX ? plan->ranks : RANKS_MAX;
    uint32_t rounds = most_rounds(plan, picture.ranks);
    picture.rounds = rounds < ROUNDS_MAX ? rounds : ROUNDS_MAX;
    picture.column_w = (PAGE_W - 2 * MARGIN - LABEL_W) / (int)picture.ranks;
    picture.column_w = picture.column_w > COLUMN_MAX   ? COLUMN_MAX
                       : picture.column_w < COLUMN_MIN ? COLUMN_MIN
                                                       : picture.column_w;
    int w = 2 * MARGIN + LABEL_W + (int)picture.ranks * picture.column_w;
    w = w < 660 ? 660 : w;
    draw_frame(&picture, title, w);
    for (uint32_t round = 0; round < picture.rounds; round++) {
        for (uint32_t rank = 0; rank < picture.ranks; rank++) {
            draw_cell(&picture, rank, round);
        }
    }
    draw_legend(&picture, picture.ranks < plan->ranks || picture.rounds < rounds, w);
    weft_cli_pen_close(picture.pen, w, round_y(picture.rounds) + FOOT_H, title, out);
}
