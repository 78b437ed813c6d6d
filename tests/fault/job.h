/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For fault tests whose ranks are real: how they get into one job, and what each of them keeps for
 * the test: what its call returned, when, and how long closing took.
 */
#ifndef WEFT_TESTS_FAULT_JOB_H
#define WEFT_TESTS_FAULT_JOB_H

#include "harness/harness.h"
#include "weft/weft.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define JOB_ID_WORD (HARNESS_WORDS - 1) /* 1: the id is there, 2: there will be none */
#define JOB_READY_WORD (HARNESS_WORDS - 2)
#define JOB_CLOSE_NS UINT64_C(1000000000)
#define JOB_RANKS_MAX 64
#define JOB_MS_NS UINT64_C(1000000)

/* Thread sanitizers slow everything down; times that are a promise are kept in other builds. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define JOB_SLOWNESS 4
#else
#define JOB_SLOWNESS 1
#endif

struct job_report {
    uint64_t called_ns, returned_ns; /* around the call under test */
    uint64_t closing_ns, closed_ns;  /* around closing */
    int32_t status;                  /* of the call under test */
    int32_t close_status;
};

struct job_board {
    weft_id_t id;
    struct job_report report[JOB_RANKS_MAX];
};
_Static_assert(sizeof(struct job_board) <= HARNESS_SCRATCH_LEN, "the board fits");

static inline struct job_board *job_board(struct harness_shared *shared)
{
    return (struct job_board *)(void *)shared->scratch;
}

/* Loopback only; the deadlines are the test's. 0: as the environment says. */
static inline weft_config_t job_config(uint32_t start_timeout_ms, uint32_t timeout_ms)
{
    weft_config_t config = WEFT_CONFIG_INIT;
    config.start_timeout_ms = start_timeout_ms;
    config.timeout_ms = timeout_ms;
    config.interface = "lo";
    return config;
}

/* The root makes the id, the others wait for it. */
static inline weft_status_t job_share_id(bool is_root, struct harness_shared *shared,
                                         const weft_config_t *config, weft_id_t *id_p)
{
    struct job_board *board = job_board(shared);
    if (is_root) {
        weft_status_t status = weft_id_create(config, &board->id);
        atomic_store(&shared->word[JOB_ID_WORD], status == WEFT_OK ? 1 : 2);
        *id_p = board->id;
        return status;
    }
    if (!harness_wait_reach(&shared->word[JOB_ID_WORD], 1, 10000)) {
        return WEFT_ERR_TIMEOUT;
    }
    *id_p = board->id;
    return atomic_load(&shared->word[JOB_ID_WORD]) == 1 ? WEFT_OK : WEFT_ERR_PEER;
}

static inline weft_status_t job_join(int rank, int root, struct harness_shared *shared,
                                     const weft_config_t *config, weft_comm_t *comm_p)
{
    weft_id_t id;
    weft_status_t status = job_share_id(rank == root, shared, config, &id);
    if (status != WEFT_OK) {
        return status;
    }
    status = weft_comm_create(&id, rank, shared->ranks, config, comm_p);
    if (status == WEFT_OK) {
        atomic_fetch_add(&shared->word[JOB_READY_WORD], 1);
    }
    return status;
}

static inline void job_calls(int rank, struct harness_shared *shared)
{
    job_board(shared)->report[rank].called_ns = harness_now_ns();
}

/* Keeps what the call under test returned, and its words. Returns status. */
static inline int job_returned(int rank, struct harness_shared *shared, weft_status_t status)
{
    struct job_report *report = &job_board(shared)->report[rank];
    report->returned_ns = harness_now_ns();
    report->status = (int32_t)status;
    return harness_say(shared, rank, (int)status, "%s: %s", weft_status_name(status),
                       status == WEFT_OK ? "" : weft_error_text());
}

static inline void job_close(int rank, struct harness_shared *shared, weft_comm_t comm)
{
    struct job_report *report = &job_board(shared)->report[rank];
    report->closing_ns = harness_now_ns();
    report->close_status = (int32_t)weft_comm_close(comm);
    report->closed_ns = harness_now_ns();
}

/* ---- the test's side ---- */

/* The process's first thread sleeps in the kernel: after it said that it is about to call, that is
 * the call. */
static inline bool job_is_asleep(void *arg)
{
    char path[64], line[256];
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)*(const pid_t *)arg);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return false;
    }
    char *got = fgets(line, sizeof(line), file);
    fclose(file);
    const char *behind_name = got != NULL ? strrchr(line, ')') : NULL;
    return behind_name != NULL && behind_name[1] == ' ' && behind_name[2] == 'S';
}

static inline bool job_wait_asleep(const struct harness *harness, int rank, unsigned deadline_ms)
{
    pid_t pid = harness_pid(harness, rank);
    return harness_wait_until(job_is_asleep, &pid, deadline_ms);
}

static inline const struct job_report *job_report(struct harness *harness, int rank)
{
    return &job_board(harness_shared(harness))->report[rank];
}

/* ---- what ranks write to stderr ---- */

/* A file that all ranks append to; made by the test before it starts them. */
static inline int job_log_open(void)
{
    int fd = memfd_create("log", MFD_CLOEXEC);
    if (fd < 0 || fcntl(fd, F_SETFL, O_APPEND) != 0) {
        abort();
    }
    return fd;
}

static inline void job_log_read(int fd, char *text, size_t room)
{
    ssize_t len = pread(fd, text, room - 1, 0);
    text[len > 0 ? len : 0] = '\0';
}

static inline unsigned job_count_lines(const char *text, const char *words)
{
    unsigned count = 0;
    for (const char *at = strstr(text, words); at != NULL; at = strstr(at + 1, words)) {
        count++;
    }
    return count;
}

#endif
