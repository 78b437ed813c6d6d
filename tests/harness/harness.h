/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests with several ranks: runs them as forked processes (or as threads of one forked
 * process), lets the test kill, stop and watch them, keeps what each returned and said, and counts
 * what it left open. Every wait has a deadline; no rank outlives the test.
 *
 *     static int body(int rank, struct harness_shared *shared, void *arg);
 *
 *     struct harness *harness = harness_start(4, body, NULL);
 *     assert_harness(harness, harness_wait_for(&harness_shared(harness)->word[0], 4, 1000));
 *     harness_kill(harness, 2, SIGKILL);
 *     assert_harness(harness, harness_wait(harness, 2000));
 *     assert_int_equal(harness_result(harness, 2)->signal, SIGKILL);
 *     assert_harness(harness, harness_check_clean(harness));
 *     harness_close(harness);
 *
 * Ranks never use cmocka's asserts (they would longjmp into the test's copy): they return a status
 * and say why.
 */
#ifndef WEFT_TESTS_HARNESS_H
#define WEFT_TESTS_HARNESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define HARNESS_WORDS 64
#define HARNESS_SCRATCH_LEN 65536
#define HARNESS_TEXT_LEN 640

/* Zeroed at the start; seen by all ranks and by the test. */
struct harness_shared {
    int ranks;
    _Atomic uint32_t word[HARNESS_WORDS]; /* for hand-shakes */
    _Alignas(16) uint8_t scratch[HARNESS_SCRATCH_LEN];
};

/* What a rank does; the number it returns is its status. */
typedef int (*harness_fn)(int rank, struct harness_shared *shared, void *arg);

/* What a process holds. */
struct harness_holdings {
    unsigned fds;
    unsigned threads;
    unsigned shared_maps; /* memfds, shm, shared anonymous memory */
};

struct harness_result {
    bool is_returned; /* the function came back; then status is what it returned */
    int status;
    char text[HARNESS_TEXT_LEN];           /* the latest harness_say() */
    uint64_t begin_ns, end_ns;             /* harness_now_ns(); end: returned, or was found dead */
    int exit_code;                         /* of its process; -1: killed, or not yet ended */
    int signal;                            /* that killed its process; 0: none */
    struct harness_holdings before, after; /* around the function; only when it returned */
    bool has_lost_memory;                  /* seen by the leak sanitizer, in builds that have it */
};

struct harness;

/* ---- the test's side (harness.c) ---- */

/* One process per rank. arg is lent; each rank has its own copy of what it points to. Ends the test
 * program when the system has no process for us. */
struct harness *harness_start(int ranks, harness_fn fn, void *arg);
/* All ranks are threads of one process; signals and the leak check are for that process. */
struct harness *harness_start_threads(int ranks, harness_fn fn, void *arg);
/* Kills what still runs and frees everything; NULL is fine. */
void harness_close(struct harness *harness);

struct harness_shared *harness_shared(struct harness *harness);
const struct harness_result *harness_result(const struct harness *harness, int rank);
pid_t harness_pid(const struct harness *harness, int rank);

/* Until all ranks have ended. false: the deadline came first; all are killed, and the error names
 * those that still ran. */
bool harness_wait(struct harness *harness, unsigned deadline_ms);
/* The same for one rank; kills nobody. */
bool harness_wait_rank(struct harness *harness, int rank, unsigned deadline_ms);

/* Sends a signal; false when the rank has ended. */
bool harness_kill(struct harness *harness, int rank, int signal);
/* SIGSTOP, and waits until it stands; SIGCONT. */
bool harness_stop(struct harness *harness, int rank);
bool harness_continue(struct harness *harness, int rank);

/* After harness_wait(). Ranks that were killed are not looked at; whoever returned must hold no
 * more than before, and must have exited in good order. false: the error names rank and leak. */
bool harness_check_clean(struct harness *harness);
/* Did every rank return this status? false: the error names those that did not, and what they said.
 */
bool harness_check_status(struct harness *harness, int status);

/* What the latest failed call had to say. */
const char *harness_error(const struct harness *harness);

/* For tests that include cmocka: fails with the harness's error, after killing the ranks. */
#define assert_harness(harness, claim)                                                             \
    do {                                                                                           \
        if (!(claim)) {                                                                            \
            harness_wait((harness), 0);                                                            \
            fail_msg("%s: %s", #claim, harness_error(harness));                                    \
        }                                                                                          \
    } while (0)

/* ---- for both sides (wait.c) ---- */

uint64_t harness_now_ns(void); /* monotonic, the same in all processes */
/* Polls until *word is value, or at least value. false: the deadline passed. */
bool harness_wait_for(const _Atomic uint32_t *word, uint32_t value, unsigned deadline_ms);
bool harness_wait_reach(const _Atomic uint32_t *word, uint32_t value, unsigned deadline_ms);
/* Polls any condition. */
bool harness_wait_until(bool (*is_true)(void *arg), void *arg, unsigned deadline_ms);

/* ---- the rank's side (rank.c) ---- */

/* Keeps words for the test. Returns status, so that a rank can `return harness_say(…)`. */
int harness_say(struct harness_shared *shared, int rank, int status, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Of the calling process, now. */
void harness_count(struct harness_holdings *holdings_p);
unsigned harness_count_fds(void);

/* ---- strangers (stranger.c): somebody on the network who is no rank ---- */

/* A TCP port of 127.0.0.1 that nobody listens on at this moment. */
uint16_t harness_free_port(void);

/* Connects to "127.0.0.1" or "::1"; to an abstract unix socket (name without its zero byte). The fd
 * is non-blocking; -1: errno, ETIMEDOUT at the deadline. */
int stranger_connect(const char *address, uint16_t port, unsigned deadline_ms);
int stranger_connect_unix(const char *name, unsigned deadline_ms);
/* All bytes, or false. A peer that has closed is no crash. */
bool stranger_send(int fd, const void *bytes, size_t len, unsigned deadline_ms);
/* Reads until room is full, the peer closes or the deadline; returns how much it got. */
size_t stranger_read(int fd, void *bytes, size_t room, unsigned deadline_ms);
/* Reads and forgets until the peer closes or resets; false: it still had not at the deadline. */
bool stranger_is_closed(int fd, unsigned deadline_ms);

#endif
