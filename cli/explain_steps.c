/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The steps of a plan as text, round by round. Where all ranks do the same (peers and blocks counted from the
 * own rank, r) a round is one line; otherwise messages are arrows, and what ranks do alone is said once
 * for all that do it.
 */
#include "explain.h"

#include <stdlib.h>
#include <string.h>

#define LINE_LEN 1024
#define RANKS_LOOKED_AT 256 /* to see whether all do the same */
#define MANY_RANKS 100000   /* then fewer */
#define STEPS_COUNTED 1000000
#define RANKS_GLANCED_AT 8
#define ARROWS_MAX 32 /* of one round */
#define INDENT 11
#define IN_FULL 8 /* rounds */

struct view {
    const struct weft_plan *plan;
    double block_bytes;
    uint32_t blocks; /* in all */
    FILE *out;
};

/* How peers and blocks are written. */
struct form {
    bool is_xor;
    bool has_blocks; /* which ones; else only how many, and copies in a row are one */
    bool has_values; /* of flags */
};

/* ---- words ---- */

static void add(char line[LINE_LEN], const char *fmt, ...) WEFT_PRINTF(2, 3);
static void add(char line[LINE_LEN], const char *fmt, ...)
{
    size_t used = strlen(line);
    va_list args;

    va_start(args, fmt);
    vsnprintf(line + used, LINE_LEN - used, fmt, args);
    va_end(args);
}

/* "r", "r+1", "r-1": number counted from the own one, among count. */
static void add_relative(char line[LINE_LEN], uint32_t own, uint32_t number, uint32_t count)
{
    uint32_t up = (number + count - own % count) % count;

    if (up == 0) {
        add(line, "r");
    } else if (up <= count / 2) {
        add(line, "r+%u", up);
    } else {
        add(line, "r-%u", count - up);
    }
}

static void add_peer(char line[LINE_LEN], const struct view *view, const struct form *form,
                     uint32_t rank, uint32_t peer)
{
    if (peer == WEFT_PLAN_ALL) {
        add(line, "all");
    } else if (form->is_xor) {
        add(line, "r^%u", rank ^ peer);
    } else {
        add_relative(line, rank, peer, view->plan->ranks);
    }
}

static void add_blocks(char line[LINE_LEN], const struct view *view, const struct form *form,
                       uint32_t rank, const struct weft_plan_ref *ref)
{
    uint32_t each = view->blocks / view->plan->ranks;
    char size[EXPLAIN_WORD_LEN];

    if (ref->blocks == 0) {
        add(line, "an empty message");
        return;
    }
    if (form->has_blocks && view->blocks == view->plan->ranks && ref->blocks == 1) {
        add(line, "block ");
        add_relative(line, rank, ref->block, view->blocks);
    } else if (form->has_blocks && each > 1 && ref->blocks == each && ref->block % each == 0) {
        add(line, "piece ");
        add_relative(line, rank, ref->block / each, view->plan->ranks);
    } else if (form->has_blocks && view->blocks > 1 && view->blocks != ref->blocks) {
        add(line, "block%s %u", ref->blocks == 1 ? "" : "s", ref->block);
        if (ref->blocks > 1) {
            add(line, "-%u", ref->block + ref->blocks - 1);
        }
    } else {
        add(line, "%u block%s", ref->blocks, ref->blocks == 1 ? "" : "s");
    }
    add(line, " (%s)", weft_explain_bytes(ref->blocks * view->block_bytes, size));
}

static const char *space_name(uint8_t space)
{
    static const char *const names[] = {"?", "in", "out", "tmp", "slot", "their in", "every out"};

    return space < WEFT_COUNT_OF(names) ? names[space] : "?";
}

static void add_value(char line[LINE_LEN], const struct form *form, uint32_t value)
{
    if (form->has_values) {
        add(line, " %u", value);
    } else {
        add(line, " the next");
    }
}

static void add_step(char line[LINE_LEN], const struct view *view, const struct form *form,
                     uint32_t rank, const struct weft_plan_step *step)
{
    add(line, "%s", line[0] != '\0' ? "; " : "");
    switch ((enum weft_step_kind)step->kind) {
    case WEFT_STEP_SEND:
        add(line, "send ");
        add_blocks(line, view, form, rank, &step->from);
        add(line, " to ");
        add_peer(line, view, form, rank, step->peer);
        break;
    case WEFT_STEP_RECV:
    case WEFT_STEP_RECV_REDUCE:
        add(line, step->kind == WEFT_STEP_RECV ? "receive " : "receive and add ");
        add_blocks(line, view, form, rank, &step->to);
        add(line, " from ");
        add_peer(line, view, form, rank, step->peer);
        break;
    case WEFT_STEP_COPY:
        add(line, "copy ");
        add_blocks(line, view, form, rank, &step->to);
        add(line, " %s > %s", space_name(step->from.space), space_name(step->to.space));
        break;
    case WEFT_STEP_REDUCE:
        add(line, "add %u sources of ", step->sources);
        add_blocks(line, view, form, rank, &step->to);
        add(line, " > %s%s%s", space_name(step->to.space),
            step->also.space != WEFT_SPACE_NONE ? " and " : "",
            step->also.space != WEFT_SPACE_NONE ? space_name(step->also.space) : "");
        add(line, "%s", (step->flags & WEFT_STEP_ANY) != 0 ? " (whoever is first)" : "");
        break;
    case WEFT_STEP_SHOW:
        add(line, "show");
        add_value(line, form, step->value);
        break;
    case WEFT_STEP_AWAIT:
        add(line, "await");
        add_value(line, form, step->value);
        add(line, " of ");
        add_peer(line, view, form, rank, step->peer);
        break;
    case WEFT_STEP_AWAIT_FREE:
        add(line, "await free slots");
        break;
    case WEFT_STEP_AWAIT_ANY:
        add(line, "await all that was shared out");
        break;
    }
}

/* ---- lines ---- */

/* Prints text behind a label, wrapped where `between` stands: the blank at its end goes. */
static void print_wrapped(FILE *out, const char *label, const char *text, const char *between)
{
    size_t column = (size_t)fprintf(out, "%-*s ", INDENT - 1, label), gap = strlen(between);
    bool is_first = true;

    for (;;) {
        const char *end = strstr(text, between);
        size_t len = end != NULL ? (size_t)(end - text) + gap : strlen(text);
        size_t shown = end != NULL ? len - strspn(end + gap - 1, " ") : len;
        if (!is_first && column + 1 + shown > WEFT_CLI_WIDTH) {
            fprintf(out, "\n%*s", INDENT, "");
            column = INDENT;
            is_first = true;
        }
        column += (size_t)fprintf(out, "%s%.*s", is_first ? "" : " ", (int)shown, text);
        is_first = false;
        if (end == NULL) {
            break;
        }
        text += len;
    }
    fputc('\n', out);
}

static bool is_same_copy(const struct weft_plan_step *a, const struct weft_plan_step *b)
{
    return a->kind == WEFT_STEP_COPY && b->kind == WEFT_STEP_COPY && a->to.space == b->to.space &&
           a->from.space == b->from.space;
}

static bool is_message(const struct weft_plan_step *step)
{
    return step->kind == WEFT_STEP_SEND || step->kind == WEFT_STEP_RECV ||
           step->kind == WEFT_STEP_RECV_REDUCE;
}

/* What a rank does in a round, as one line. */
static void say_rank(const struct view *view, const struct form *form, uint32_t rank,
                     uint32_t round, bool has_messages, char line[LINE_LEN])
{
    const struct weft_plan_builder *builder = view->plan->builder;
    struct weft_plan_step step, next;
    uint32_t index = 0;

    line[0] = '\0';
    if (round >= builder->rounds(view->plan, rank)) {
        return;
    }
    while (builder->step(view->plan, rank, round, index++, &step)) {
        while (!form->has_blocks && builder->step(view->plan, rank, round, index, &next) &&
               is_same_copy(&step, &next)) {
            step.to.blocks += next.to.blocks;
            index++;
        }
        if (has_messages || !is_message(&step)) {
            add_step(line, view, form, rank, &step);
        }
        if (strlen(line) == LINE_LEN - 1) {
            return; /* nobody reads on */
        }
    }
}

/* One line for all ranks. is_short: without what changes from round to round. */
static bool say_all(const struct view *view, uint32_t round, bool is_short, char line[LINE_LEN])
{
    const struct form forms[] = {{false, !is_short, !is_short},
                                 {true, !is_short, !is_short},
                                 {false, false, !is_short},
                                 {true, false, !is_short}};
    bool is_brief = is_short || view->plan->ranks > MANY_RANKS;
    uint32_t most = is_brief ? RANKS_GLANCED_AT : RANKS_LOOKED_AT;
    uint32_t ranks = view->plan->ranks < most ? view->plan->ranks : most;
    char other[LINE_LEN];

    for (size_t i = 0; i < WEFT_COUNT_OF(forms); i++) {
        bool is_same = true;
        say_rank(view, &forms[i], 0, round, true, line);
        for (uint32_t rank = 1; rank < ranks && is_same; rank++) {
            say_rank(view, &forms[i], rank, round, true, other);
            is_same = strcmp(line, other) == 0;
        }
        if (is_same) {
            return true;
        }
    }
    return false;
}

/* Does the receiver add what it gets from this rank in this round? */
static bool is_added(const struct weft_plan *plan, uint32_t from, uint32_t to, uint32_t round)
{
    struct weft_plan_step step;

    for (uint32_t i = 0;
         round < plan->builder->rounds(plan, to) && plan->builder->step(plan, to, round, i, &step);
         i++) {
        if (step.peer == from &&
            (step.kind == WEFT_STEP_RECV || step.kind == WEFT_STEP_RECV_REDUCE)) {
            return step.kind == WEFT_STEP_RECV_REDUCE;
        }
    }
    return false;
}

static void print_arrows(const struct view *view, const char *label, uint32_t round)
{
    const struct weft_plan *plan = view->plan;
    char line[LINE_LEN] = "", size[EXPLAIN_WORD_LEN];
    struct weft_plan_step step;
    uint32_t shown = 0, left = 0, looked = 0;

    for (uint32_t rank = 0; rank < plan->ranks && looked < STEPS_COUNTED; rank++) {
        looked++;
        if (round >= plan->builder->rounds(plan, rank)) {
            continue;
        }
        for (uint32_t i = 0;
             looked < STEPS_COUNTED && plan->builder->step(plan, rank, round, i, &step); i++) {
            looked++;
            if (step.kind != WEFT_STEP_SEND) {
                continue;
            }
            if (shown == ARROWS_MAX) {
                left++;
                continue;
            }
            shown++;
            add(line, "%s%u > %u%s %s", line[0] != '\0' ? ", " : "", rank, step.peer,
                is_added(plan, rank, step.peer, round) ? " +" : "",
                weft_explain_bytes(step.from.blocks * view->block_bytes, size));
        }
    }
    if (left > 0) {
        add(line, ", and %s%u more", looked < STEPS_COUNTED ? "" : "at least ", left);
    }
    if (line[0] != '\0') {
        print_wrapped(view->out, label, line, ", ");
    }
}

/* What ranks do without others, those that do the same together. */
static void print_alone(const struct view *view, uint32_t round)
{
    static const struct form form = {false, false, true};
    uint32_t most = view->plan->ranks > MANY_RANKS ? RANKS_GLANCED_AT : RANKS_LOOKED_AT;
    uint32_t ranks = view->plan->ranks < most ? view->plan->ranks : most;
    char first[LINE_LEN], line[LINE_LEN], other[LINE_LEN];
    bool *is_said = weft_cli_alloc(ranks, sizeof(*is_said));

    for (uint32_t rank = 0; rank < ranks; rank++) {
        say_rank(view, &form, rank, round, false, first);
        if (is_said[rank] || first[0] == '\0') {
            continue;
        }
        snprintf(line, sizeof(line), "rank %u", rank);
        for (uint32_t q = rank + 1; q < ranks; q++) {
            say_rank(view, &form, q, round, false, other);
            if (strcmp(first, other) == 0) {
                is_said[q] = true;
                add(line, ", %u", q);
            }
        }
        add(line, ": ");
        add(line, "%s", first);
        print_wrapped(view->out, "", line, "; ");
    }
    free(is_said);
}

static uint32_t most_rounds(const struct weft_plan *plan)
{
    uint32_t most = 0;

    for (uint32_t rank = 0; rank < plan->ranks && rank < 100000; rank++) {
        uint32_t rounds = plan->builder->rounds(plan, rank);
        most = rounds > most ? rounds : most;
    }
    return most;
}

static bool is_alike(const struct view *view, uint32_t round, const char *line)
{
    char its[LINE_LEN];

    return say_all(view, round, true, its) && strcmp(line, its) == 0;
}

/* How many rounds from this one on are the same line for all ranks; 0: this one is not. Of very many not
 * every one is looked at: found by doubling and halving. */
static uint32_t count_alike(const struct view *view, uint32_t round, uint32_t rounds,
                            char line[LINE_LEN])
{
    uint32_t low = 0, high = 1; /* round + low is alike, round + high is not or not known */

    if (!say_all(view, round, true, line)) {
        return 0;
    }
    while (round + high < rounds && is_alike(view, round + high, line)) {
        low = high;
        high = high < 64 ? high + 1 : high * 2;
    }
    high = round + high < rounds ? high : rounds - round;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        *(is_alike(view, round + middle, line) ? &low : &high) = middle;
    }
    return high;
}

static void print_round(const struct view *view, uint32_t round)
{
    char line[LINE_LEN], label[32];

    snprintf(label, sizeof(label), "round %u", round);
    if (say_all(view, round, false, line)) {
        print_wrapped(view->out, label, line[0] != '\0' ? line : "nothing", "; ");
    } else {
        print_arrows(view, label, round);
        print_alone(view, round);
    }
}

/* Few rounds in full; of many, those that are alike together. */
static void print_rounds(const struct view *view, uint32_t rounds, uint32_t lines_max)
{
    char line[LINE_LEN], label[32];
    uint32_t lines = 0, alike;

    for (uint32_t round = 0; round < rounds; round += alike, lines++) {
        if (lines == lines_max) {
            fprintf(view->out, "...        and %u more (--rounds shows them)\n", rounds - round);
            return;
        }
        alike = rounds > IN_FULL ? count_alike(view, round, rounds, line) : 0;
        if (alike > 2) {
            snprintf(label, sizeof(label), "%u-%u", round, round + alike - 1);
            print_wrapped(view->out, label, line, "; ");
        } else {
            alike = 1;
            print_round(view, round);
        }
    }
}

void weft_explain_steps(const struct weft_plan *plan, double bytes, uint32_t rounds_max, FILE *out)
{
    bool is_vector = plan->coll == WEFT_ALLREDUCE || plan->coll == WEFT_BROADCAST ||
                     plan->coll == WEFT_REDUCE || plan->coll == WEFT_BARRIER;
    struct view view = {.plan = plan, .out = out};

    view.blocks = is_vector ? plan->parts : plan->ranks * plan->segments;
    view.block_bytes = view.blocks > 0 ? bytes / view.blocks : 0;
    print_rounds(&view, most_rounds(plan), rounds_max);
}
