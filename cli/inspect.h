/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to `weft inspect`: recordings are read (inspect_read.c), merged per communicator
 * (inspect_merge.c), judged (inspect_judge.c, inspect_blame.c), put into words (inspect_words.c, inspect_sentences.c) and
 * printed (inspect_print.c, inspect_json.c). What is judged is pure: recordings in, findings out.
 */
#ifndef WEFT_CLI_INSPECT_H
#define WEFT_CLI_INSPECT_H

#include "cli.h"
#include "wire/dump.h"

/* ---- inspect_read.c ---- */

struct inspect_source {
    char *name;     /* "run/rank-3.dump", "pid 4711"; owned */
    uint8_t *bytes; /* owned */
    struct weft_dump dump;
    bool is_live;
    bool is_stopped; /* its process is, by a signal or a debugger */
    int64_t seen_ns; /* live: all that began before was seen; since 1970 */
};

struct inspect_input {
    struct inspect_source *sources; /* [count], by rank; owned */
    size_t count;
    char **notes; /* what its user should know, sentences; owned */
    size_t note_count;
    size_t unreadable; /* things that a note says could not be read */
};

/* What cannot be read becomes a note that names it. A folder means the *.dump in it. */
void weft_inspect_add_file(struct inspect_input *input, const char *path);
/* All recorders of a process, or of its children when it has none; when there are none at all a note says
 * so: that may be the rank that never came. */
void weft_inspect_add_pid(struct inspect_input *input, int64_t pid);
/* Of two of one rank the later one stays; sorts. */
void weft_inspect_settle(struct inspect_input *input);
void weft_inspect_close(struct inspect_input *input);

/* ---- inspect_merge.c ---- */

/* What one rank did of a list. Numbers before entries[0] are lost, and done. */
struct inspect_part {
    uint32_t rank;                       /* of the communicator */
    const struct inspect_source *source; /* lent */
    struct weft_dump_entry *entries;     /* by number; owned */
    size_t count, room;
    uint32_t next;                /* it has not entered this one */
    bool is_cut;                  /* … when the first rank was read; it has gone on since */
    struct weft_dump_entry doing; /* its latest call of any kind, if that goes on; else TORN */
    const struct inspect_list *doing_list; /* of that call's communicator; NULL: not known; lent */
};

/* The calls that all ranks of a communicator make in one order. */
struct inspect_list {
    uint64_t comm;
    bool is_control;            /* those of the control plane have an order of their own */
    uint32_t ranks;             /* of the communicator */
    struct inspect_part *parts; /* [count] of those of whom there is a recording, by rank; owned */
    size_t count;
};

/* The verdict of a failure, as most recordings tell it. */
struct inspect_blame {
    const struct weft_dump *dump; /* one that tells it; lent; NULL: none names a rank */
    size_t same, all;             /* recordings that name this rank; those of failures */
};

struct inspect_case {
    struct inspect_list *lists; /* owned */
    size_t list_count;
    size_t torn;       /* lines that could not be read */
    bool is_only_comm; /* all lists are of one communicator */
    bool is_failed;    /* a recording was made by a failure: then everything counts */
    struct inspect_blame blame;
    int64_t threshold_ns; /* who waits shorter is at work */
};
#define INSPECT_AT_WORK_NS INT64_C(1000000000)
void weft_inspect_merge(const struct inspect_input *input, struct inspect_case *it);
void weft_inspect_case_close(struct inspect_case *it);

/* Of the communicator's rank; NULL: there is no recording of it. */
const struct inspect_part *weft_inspect_part(const struct inspect_list *list, uint32_t rank);

enum inspect_state {
    INSPECT_ABSENT,
    INSPECT_INSIDE,
    INSPECT_FAILED,
    INSPECT_ENDED,
};
/* entry_p: NULL when it is not there any more. */
enum inspect_state weft_inspect_state(const struct inspect_part *part, uint32_t number,
                                      const struct weft_dump_entry **entry_p);

/* ---- inspect_judge.c ---- */

enum inspect_kind {
    INSPECT_MISMATCH, /* `ranks` called `call`, `others` called `other` */
    INSPECT_HISTORY,  /* the same, before what is recorded */
    INSPECT_MISSING,  /* `ranks` have not entered `call`, `others` wait */
    INSPECT_STUCK,    /* `ranks` are inside `call`, all have entered it */
    INSPECT_MESSAGE,  /* `ranks` (one) wait in a call that is no collective */
    INSPECT_BLAMED, /* the verdict names `ranks` (one, or none that is recorded), `others` were inside `call` */
};

struct inspect_finding {
    enum inspect_kind kind;
    const struct inspect_list *list; /* lent */
    uint32_t number;
    struct weft_dump_entry call, other;
    bool *ranks, *others;              /* [list->count], of its parts; owned */
    int64_t since_ns;                  /* 0: not known */
    int64_t waited_ns;                 /* of whoever waits longest */
    const struct inspect_blame *blame; /* BLAMED; lent */
    char *text;                        /* owned */
};

struct inspect_verdict {
    struct inspect_finding *findings; /* the first cause first; owned */
    size_t count;
};
void weft_inspect_judge(const struct inspect_case *it, struct inspect_verdict *verdict);
/* One more, at the end, with nothing in it yet. */
struct inspect_finding *weft_inspect_add(struct inspect_verdict *verdict, enum inspect_kind kind,
                                         const struct inspect_list *list, uint32_t number);
void weft_inspect_verdict_close(struct inspect_verdict *verdict);
/* Last operation that all recorded ranks of the list have ended; -1: none. */
int64_t weft_inspect_completed(const struct inspect_list *list);
/* One more than the last that any of them has entered. */
uint32_t weft_inspect_reached(const struct inspect_list *list);

/* ---- inspect_blame.c ---- */

void weft_inspect_find_blame(const struct inspect_input *input, struct inspect_blame *blame);
/* Puts what the verdict of a failure says first. */
void weft_inspect_blame(const struct inspect_case *it, struct inspect_verdict *verdict);

/* ---- inspect_words.c ---- */

#define INSPECT_WORDS_LEN 160
/* "0-2,5", of ranks in ascending order. */
const char *weft_inspect_ranks(const uint32_t *ranks, size_t count, char text[INSPECT_WORDS_LEN]);
/* … and of all others of `total` ranks. */
const char *weft_inspect_gaps(const uint32_t *ranks, size_t count, uint32_t total,
                              char text[INSPECT_WORDS_LEN]);
/* Sorts them and leaves each one once; how many are left. */
size_t weft_inspect_sort(uint32_t *ranks, size_t count);
/* The ranks of the parts that are chosen (NULL: all): [*count_p], owned by the caller. */
uint32_t *weft_inspect_pick(const struct inspect_list *list, const bool *chosen, size_t *count_p);
const char *weft_inspect_chosen(const struct inspect_list *list, const bool *chosen,
                                char text[INSPECT_WORDS_LEN]);
/* Ranks of the list, and the job's numbers for them where those are others and known: "rank 2", "ranks 0-1,3",
 * "rank 1 (6 of the job)", "all 2 ranks (4,6 of the job)". Owned by the caller. */
char *weft_inspect_name(const struct inspect_list *list, const uint32_t *ranks, size_t count);
/* May the job count its members otherwise? Only some of those are recorded. */
bool weft_inspect_is_renumbered(const struct inspect_list *list);
/* "allreduce #12 (f32 x 100, sum)", "recv (64 bytes from rank 0, tag 7)". list: of the call's communicator; NULL: its
 * own numbers are enough. */
const char *weft_inspect_call(const struct inspect_list *list, const struct weft_dump_entry *entry,
                              bool is_numbered, char text[INSPECT_WORDS_LEN]);
const char *weft_inspect_clock(int64_t real_ns, char text[INSPECT_WORDS_LEN]); /* "14:03:21.123" */
const char *weft_inspect_span(int64_t ns, char text[INSPECT_WORDS_LEN]);       /* "12.3 s" */

/* ---- inspect_sentences.c ---- */

/* The sentence of a finding; owned by the caller. */
char *weft_inspect_sentence(const struct inspect_finding *finding, bool is_only_comm);
/* … of no finding. */
char *weft_inspect_all_is_well(const struct inspect_case *it);

/* ---- inspect_print.c, inspect_json.c ---- */

struct inspect_view {
    const struct inspect_input *input;
    const struct inspect_case *job;
    const struct inspect_verdict *verdict;
    unsigned last; /* operations to show */
};
void weft_inspect_print(const struct inspect_view *view, FILE *out);
bool weft_inspect_print_json(const struct inspect_view *view, FILE *out);
/* Ranks of the job of which there is a recording: [*count_p], ascending, owned by the caller. *total_p: how
 * many ranks it has. */
uint32_t *weft_inspect_recorded(const struct inspect_input *input, size_t *count_p,
                                uint32_t *total_p);
/* The operations of a list to show. */
void weft_inspect_window(const struct inspect_view *view, const struct inspect_list *list,
                         uint32_t *first_p, uint32_t *end_p);

#endif
