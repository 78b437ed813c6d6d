/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weft run, in five files: run.c (options, what is said at the end), run_start.c (secret, listener,
 * fork and exec), run_watch.c (the loop: exits, signals, deadlines), run_output.c (tagged lines),
 * run_sink.c (where they go, without waiting for it).
 */
#ifndef WEFT_CLI_RUN_H
#define WEFT_CLI_RUN_H

#include "cli.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>

#define WEFT_RUN_RANKS_MAX 4096
#define WEFT_RUN_REASON_LEN 160

/* Our own stdout or stderr, when lines are tagged. */
struct weft_run_sink {
    int fd;           /* lent */
    int sources_fd;   /* owned: an epoll of the ranks' streams that end here */
    size_t piece_len; /* as much as a writable fd takes without waiting */
    int error;        /* errno that ended it; 0: fine */
    bool is_waiting;  /* for room: the loop watches fd */
    bool is_deaf;     /* full: the loop does not watch the sources */
    char *bytes;      /* owned: what waits is [at, len) */
    size_t at, len, room;
};

/* One stream of one rank, when lines are tagged. */
struct weft_run_stream {
    int fd;                     /* read end, owned; -1: none or ended */
    struct weft_run_sink *sink; /* lent: the job's */
    int rank;
    char *line; /* owned: the line that is not whole yet */
    size_t len, room;
};

struct weft_run_rank {
    pid_t pid;
    int pidfd;      /* owned; -1: not started, or ended */
    bool has_group; /* leads its own process group: its children can be reached too */
    bool is_ended;
    int wait_status;                  /* when ended */
    struct weft_run_stream stream[2]; /* stdout, stderr */
};

/* Where ranks live when it is not simply here: the hosts of weft lab, with PIDs of their own. */
struct weft_run_ground {
    pid_t (*fork)(void *context, int rank);
    bool (*enter)(void *context, int rank); /* in the rank, last before exec; false: see errno */
    void (*describe)(void *context, struct weft_cli_json *json); /* for the summary */
    void *context;
};

struct weft_run_job {
    /* asked for */
    const struct weft_cli_command *command;
    const struct weft_run_ground *ground; /* NULL: here */
    int ranks;
    bool is_tagged, is_json;
    uint64_t timeout_ms; /* 0: none */
    uint64_t grace_ms;
    char **argv; /* lent: the program and its arguments */

    /* given to the ranks */
    int secret_fd; /* owned, sealed */
    int listen_fd; /* owned until rank 0 has it; -1 with a ground: rank 0 is told an address */
    char name[64]; /* WEFT_JOB */
    sigset_t old_mask;
    struct rlimit old_files;

    struct weft_run_rank *rank; /* [ranks], owned */
    int alive;
    int epoll_fd, signal_fd;      /* owned */
    struct weft_run_sink sink[2]; /* stdout, stderr */

    /* how it ends */
    bool is_ending;
    bool is_failed;
    int failed_rank; /* -1: the job as a whole */
    char reason[WEFT_RUN_REASON_LEN];
    int ended_by_us;
    uint64_t deadline_ns, kill_ns; /* WEFT_NEVER: none */
};

/* Starts the ranks, watches them, says what happened; returns the exit status. Of the job only what
 * is asked for is set. */
int weft_run(struct weft_run_job *job);

/* What an event of the loop is about: kind in the upper half, rank or sink in the lower. */
enum weft_run_event { WEFT_RUN_SIGNAL, WEFT_RUN_EXIT, WEFT_RUN_OUTPUT, WEFT_RUN_ROOM };
bool weft_run_listen(struct weft_run_job *job, int fd, enum weft_run_event event, unsigned index);

/* run_start.c: false: said in job->reason; *exec_errno_p ≠ 0: the program itself could not be
 * started */
bool weft_run_prepare(struct weft_run_job *job);
bool weft_run_start(struct weft_run_job *job, int *exec_errno_p);
void weft_run_release(struct weft_run_job *job);

/* run_watch.c */
void weft_run_fail(struct weft_run_job *job, int rank, const char *fmt, ...) WEFT_PRINTF(3, 4);
void weft_run_end(struct weft_run_job *job);   /* asks all ranks to end; the first call counts */
void weft_run_watch(struct weft_run_job *job); /* until all ranks have ended */

/* run_output.c */
void weft_run_sink_read(struct weft_run_job *job, struct weft_run_sink *sink); /* what ranks said */
void weft_run_drain(struct weft_run_job *job); /* all that is there, within the grace */

/* run_sink.c: nothing here waits */
bool weft_run_sinks_open(struct weft_run_job *job);
void weft_run_sinks_close(struct weft_run_job *job);
bool weft_run_sink_add(struct weft_run_sink *sink, int fd, unsigned index); /* a source */
void weft_run_sink_put(struct weft_run_sink *sink, const char *bytes, size_t len);
void weft_run_sink_push(struct weft_run_sink *sink); /* writes what can leave now */
void weft_run_sink_serve(struct weft_run_job *job,
                         struct weft_run_sink *sink); /* and tells the loop */
void weft_run_sink_break(struct weft_run_sink *sink,
                         int error); /* drops what waits, and all later */
size_t weft_run_sink_waiting(const struct weft_run_sink *sink);
bool weft_run_sink_is_full(const struct weft_run_sink *sink);

#endif
