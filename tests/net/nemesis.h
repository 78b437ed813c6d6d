/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank of the nemesis: what the work (nemesis_work.c) and the program around it (nemesis_program.c) share.
 */
#ifndef WEFT_TESTS_NET_NEMESIS_H
#define WEFT_TESTS_NET_NEMESIS_H

#include <weft/weft.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RANKS_MAX 64
#define BUFFER_LEN ((size_t)2 << 20)  /* of each of a rank's buffers */
#define WINDOW_LEN ((size_t)64 << 10) /* of the memory that others put into and get from */

/* The ranks that are left, with what they lent each other. */
struct team {
    weft_comm_t comm;
    int ranks, me;
    int member[RANKS_MAX]; /* by rank of this communicator: its number in the job */
    uint8_t *window;       /* WINDOW_LEN bytes and the signal, registered; owned */
    weft_mem_t own, mem[RANKS_MAX];
    uint64_t puts; /* that the signal has counted */
};

/* What this rank does now, for whoever asks. */
struct doing {
    _Atomic uint64_t calls, ops;
    _Atomic(const char *) call; /* NULL: none, it computes */
    _Atomic uint64_t since_ns;
};

/* Mistakes that the checker must find: NEMESIS_PLANT, on rank 3 only. */
enum plant { PLANT_NOTHING, PLANT_WRONG, PLANT_LEAK, PLANT_LIE, PLANT_VERDICT, PLANT_SOCKET };

struct rank {
    int number;
    enum plant plant;
    uint64_t seed, next; /* of operations: the same on all ranks */
    uint64_t limit_ns;   /* no call takes longer */
    struct doing doing;
    uint8_t *in, *out; /* owned, BUFFER_LEN each */
    bool is_wrong;     /* a result was, and was told */
    /* the call that failed */
    const char *failed;
    uint64_t took_ns;
    char text[600];
};

uint64_t nemesis_now_ns(void);
void nemesis_pause_us(unsigned us);
/* One line of JSON on stdout; printf's words are its fields, text its last one. */
void nemesis_tell(const char *event, const char *text, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Around every call of Weft: tells how long it took if that was too long, and keeps what a failed one said. */
void nemesis_calls(struct rank *rank, const char *call);
weft_status_t nemesis_returned(struct rank *rank, weft_status_t status);
#define NEMESIS_CALL(rank, name, call)                                                             \
    (nemesis_calls((rank), (name)), nemesis_returned((rank), (call)))

/* Makes and ends what a team shares; after opening, all ranks of it go on with the same operation. */
weft_status_t nemesis_team_open(struct rank *rank, struct team *team);
void nemesis_team_close(struct team *team);

/* The next operation, which all ranks draw from the seed. What it returns is an error, or every result was right, or
 * rank->is_wrong. */
weft_status_t nemesis_operate(struct rank *rank, struct team *team);
/* Does any rank want to stop? All get the same answer. */
weft_status_t nemesis_agree(struct rank *rank, struct team *team, bool wants, bool *any_p);
/* A collective that no other rank calls, in place of the one above. */
weft_status_t nemesis_differ(struct rank *rank, struct team *team);

#endif
