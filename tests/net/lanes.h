/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of lanes_program share: what is said, and the patterns. */
#ifndef WEFT_TESTS_NET_LANES_H
#define WEFT_TESTS_NET_LANES_H

#include <weft/weft.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KIB ((size_t)1024)
#define MIB (1024 * KIB)

/* One kind of it, in a thread of its own. */
struct traffic {
    const char *name;
    void (*run)(struct traffic *traffic);
    weft_comm_t comm;
    int rank, ranks, tag;
    bool has_failed;
    double began_s, last_s, second_s; /* last_s: of progress; 0: none yet */
    double stall_s, worst_s;          /* the longest of this second, and of all */
    uint64_t bytes, second_bytes, rounds;
};

/* A buffer and what it must hold; stamp 0: nothing yet. */
struct piece {
    uint8_t *data;
    size_t len;
    uint64_t stamp;
};

/* lanes_messages.c */
void lanes_long(struct traffic *traffic);
void lanes_back(struct traffic *traffic);
void lanes_short(struct traffic *traffic);
void lanes_all(struct traffic *traffic);
/* lanes_onesided.c */
void lanes_put(struct traffic *traffic);
void lanes_get(struct traffic *traffic);
void lanes_signal(struct traffic *traffic);

/* lanes_burst.c */
void lanes_burst(struct traffic *traffic);
/* lanes_control.c */
void lanes_control(struct traffic *traffic);

/* lanes_common.c */
double lanes_now_s(void);
/* Whether stdin has ended: no further round. */
bool lanes_is_over(void);
void *lanes_allocate(size_t len); /* zeroed; ends the process when there is none */
void lanes_free_all(void);        /* when no traffic runs any more */

void lanes_print_failure(const char *name, const char *call, weft_status_t status);
/* Says a failure, the traffic's first only. */
bool lanes_is_fine(struct traffic *traffic, const char *call, weft_status_t status);
void lanes_print_stats(const struct traffic *traffic, const char *event, double since);
/* So many bytes are where they belong. */
void lanes_progress(struct traffic *traffic, size_t bytes);

/* Of one round of one traffic; kind tells what is written first from what comes after it. Never 0. */
uint64_t lanes_stamp(const struct traffic *traffic, uint64_t round, char kind);
void lanes_fill(uint8_t *data, size_t len, uint64_t stamp);
/* Says where it is wrong, and ends the process. */
void lanes_check(const struct traffic *traffic, const struct piece *piece, const char *when);
/* The same before it is used for something else, if it holds anything. */
void lanes_check_again(const struct traffic *traffic, struct piece *piece);
void lanes_check_number(const struct traffic *traffic, const char *what, uint64_t is,
                        uint64_t should);

#endif
