/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The test's side: forks the ranks, waits for them by pidfd, so that a deadline needs no signal
 * handler, and judges what they left.
 */
#include "harness/private.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define STAND_MS 2000 /* a SIGSTOP that has not stopped its process by then never will */
#define DEATH_NS UINT64_C(10000000000) /* the kernel needs no more to end a killed process */

static bool fail(struct harness *harness, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static bool fail(struct harness *harness, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(harness->error, sizeof(harness->error), fmt, args);
    va_end(args);
    return false;
}

/* A test cannot go on without its ranks, and says so at once. */
static _Noreturn void die(const char *what)
{
    fprintf(stderr, "harness: %s: %s\n", what, strerror(errno));
    abort();
}

static void fork_process(struct harness *harness, int process, pid_t parent)
{
    pid_t pid = fork();
    if (pid == 0) {
        harness_be_rank(harness, harness->is_threads ? -1 : process, parent);
    }
    if (pid < 0) {
        die("fork");
    }
    harness->pid[process] = pid;
    harness->pidfd[process] = (int)syscall(SYS_pidfd_open, pid, 0); /* always CLOEXEC */
    if (harness->pidfd[process] < 0 && errno != ENOSYS) { /* a valgrind does not know it */
        die("pidfd_open");
    }
}

static struct harness *start(int ranks, harness_fn fn, void *arg, bool is_threads)
{
    struct harness *harness = calloc(1, sizeof(*harness));
    if (harness == NULL) {
        die("memory");
    }
    harness->ranks = ranks;
    harness->is_threads = is_threads;
    harness->fn = fn;
    harness->arg = arg;
    harness->processes = is_threads ? 1 : ranks;
    harness->map_len = sizeof(struct harness_map) + (size_t)ranks * sizeof(struct harness_result);
    harness->map =
        mmap(NULL, harness->map_len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    harness->pid = calloc((size_t)harness->processes, sizeof(pid_t));
    harness->pidfd = calloc((size_t)harness->processes, sizeof(int));
    if (harness->map == MAP_FAILED || harness->pid == NULL || harness->pidfd == NULL) {
        die("memory");
    }
    harness->map->shared.ranks = ranks;
    for (int rank = 0; rank < ranks; rank++) {
        harness->map->result[rank].exit_code = -1;
        harness->map->result[rank].begin_ns = harness_now_ns();
    }
    fflush(NULL); /* or the children would print it again */
    pid_t parent = getpid();
    for (int process = 0; process < harness->processes; process++) {
        fork_process(harness, process, parent);
    }
    return harness;
}

struct harness *harness_start(int ranks, harness_fn fn, void *arg)
{
    return start(ranks, fn, arg, false);
}

struct harness *harness_start_threads(int ranks, harness_fn fn, void *arg)
{
    return start(ranks, fn, arg, true);
}

void harness_close(struct harness *harness)
{
    if (harness == NULL) {
        return;
    }
    harness_wait(harness, 0);
    munmap(harness->map, harness->map_len);
    free(harness->pid);
    free(harness->pidfd);
    free(harness);
}

struct harness_shared *harness_shared(struct harness *harness)
{
    return &harness->map->shared;
}

const struct harness_result *harness_result(const struct harness *harness, int rank)
{
    return &harness->map->result[rank];
}

const char *harness_error(const struct harness *harness)
{
    return harness->error;
}

static int process_of(const struct harness *harness, int rank)
{
    return harness->is_threads ? 0 : rank;
}

pid_t harness_pid(const struct harness *harness, int rank)
{
    return harness->pid[process_of(harness, rank)];
}

/* ---- waiting ---- */

/* The process has ended: keeps how, for all its ranks. */
static void reap(struct harness *harness, int process)
{
    int wait_status = 0;
    while (waitpid(harness->pid[process], &wait_status, 0) < 0 && errno == EINTR) {
    }
    if (harness->pidfd[process] >= 0) {
        close(harness->pidfd[process]);
    }
    harness->pid[process] = 0;
    harness->pidfd[process] = -1;
    for (int rank = 0; rank < harness->ranks; rank++) {
        struct harness_result *result = &harness->map->result[rank];
        if (process_of(harness, rank) != process) {
            continue;
        }
        result->exit_code = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : -1;
        result->signal = WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) : 0;
        if (!result->is_returned) {
            result->end_ns = harness_now_ns();
        }
    }
}

/* Has it ended? Waits for that, or a little where there are no pidfds; it is not reaped. */
static bool has_ended(const struct harness *harness, int process, uint64_t wait_ms)
{
    struct pollfd ended = {.fd = harness->pidfd[process], .events = POLLIN};
    siginfo_t facts = {0};
    if (ended.fd >= 0) {
        return poll(&ended, 1, (int)wait_ms) > 0;
    }
    if (waitid(P_PID, (id_t)harness->pid[process], &facts, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        facts.si_pid != 0) {
        return true;
    }
    poll(NULL, 0, wait_ms > 0 ? 1 : 0);
    return false;
}

/* Until this process has ended; false: not before the deadline. */
static bool wait_process(struct harness *harness, int process, uint64_t deadline_ns)
{
    while (harness->pid[process] != 0) {
        uint64_t now_ns = harness_now_ns();
        uint64_t left_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;
        if (has_ended(harness, process, (left_ns + 999999) / 1000000)) {
            reap(harness, process);
        } else if (left_ns == 0) {
            return false;
        }
    }
    return true;
}

bool harness_wait_rank(struct harness *harness, int rank, unsigned deadline_ms)
{
    uint64_t deadline_ns = harness_now_ns() + deadline_ms * UINT64_C(1000000);
    return wait_process(harness, process_of(harness, rank), deadline_ns) ||
           fail(harness, "rank %d still runs after %u ms: %s", rank, deadline_ms,
                harness->map->result[rank].text);
}

static void append(struct harness *harness, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static void append(struct harness *harness, const char *fmt, ...)
{
    size_t used = strlen(harness->error);
    va_list args;
    va_start(args, fmt);
    vsnprintf(harness->error + used, sizeof(harness->error) - used, fmt, args);
    va_end(args);
}

/* Of threads of one process, those that have not returned are the late ones. */
static bool is_late(const struct harness *harness, int rank)
{
    return harness->pid[process_of(harness, rank)] != 0 &&
           !(harness->is_threads && harness->map->result[rank].is_returned);
}

static void name_the_late(struct harness *harness, unsigned deadline_ms)
{
    fail(harness, "still running after %u ms:", deadline_ms);
    for (int rank = 0; rank < harness->ranks; rank++) {
        const char *text = harness->map->result[rank].text;
        if (is_late(harness, rank)) {
            append(harness, " rank %d%s%s%s", rank, text[0] != 0 ? " (" : "", text,
                   text[0] != 0 ? ")" : "");
        }
    }
}

bool harness_wait(struct harness *harness, unsigned deadline_ms)
{
    uint64_t deadline_ns = harness_now_ns() + deadline_ms * UINT64_C(1000000);
    bool is_in_time = true;
    for (int process = 0; process < harness->processes; process++) {
        is_in_time = wait_process(harness, process, deadline_ns) && is_in_time;
    }
    if (is_in_time) {
        return true;
    }
    if (deadline_ms > 0) { /* else the caller gives up, and an earlier error stands */
        name_the_late(harness, deadline_ms);
    }
    for (int process = 0; process < harness->processes; process++) {
        if (harness->pid[process] != 0) {
            kill(harness->pid[process], SIGKILL);
            wait_process(harness, process, harness_now_ns() + DEATH_NS);
        }
    }
    return false;
}

/* ---- signals ---- */

bool harness_kill(struct harness *harness, int rank, int signal)
{
    pid_t pid = harness_pid(harness, rank);
    if (pid == 0 || kill(pid, signal) < 0) {
        return fail(harness, "rank %d has ended", rank);
    }
    return true;
}

static bool is_standing(void *arg)
{
    pid_t pid = *(pid_t *)arg;
    char path[64], line[256];
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return false;
    }
    char *got = fgets(line, sizeof(line), file);
    fclose(file);
    const char *behind_name = got != NULL ? strrchr(line, ')') : NULL;
    return behind_name != NULL && behind_name[1] == ' ' && behind_name[2] == 'T';
}

bool harness_stop(struct harness *harness, int rank)
{
    pid_t pid = harness_pid(harness, rank);
    if (!harness_kill(harness, rank, SIGSTOP)) {
        return false;
    }
    return harness_wait_until(is_standing, &pid, STAND_MS) ||
           fail(harness, "rank %d did not stop", rank);
}

bool harness_continue(struct harness *harness, int rank)
{
    return harness_kill(harness, rank, SIGCONT);
}

/* ---- judging ---- */

bool harness_check_clean(struct harness *harness)
{
    for (int rank = 0; rank < harness->ranks; rank++) {
        const struct harness_result *result = &harness->map->result[rank];
        const struct harness_holdings *before = &result->before, *after = &result->after;
        if (!result->is_returned) {
            continue;
        }
        if (result->exit_code != 0) {
            return fail(harness, "rank %d returned, then ended badly (exit %d, signal %d)", rank,
                        result->exit_code, result->signal);
        }
        if (after->fds > before->fds || after->threads > before->threads ||
            after->shared_maps > before->shared_maps) {
            return fail(
                harness,
                "rank %d leaks: %u fds before, %u after; %u threads, %u; %u shared maps, %u", rank,
                before->fds, after->fds, before->threads, after->threads, before->shared_maps,
                after->shared_maps);
        }
        if (result->has_lost_memory) {
            return fail(harness, "rank %d leaks memory; the sanitizer's report is above", rank);
        }
    }
    return true;
}

bool harness_check_status(struct harness *harness, int status)
{
    bool is_right = true;
    for (int rank = 0; rank < harness->ranks; rank++) {
        const struct harness_result *result = &harness->map->result[rank];
        if (result->is_returned && result->status == status) {
            continue;
        }
        if (is_right) {
            fail(harness, "not every rank returned %d:", status);
            is_right = false;
        }
        if (result->is_returned) {
            append(harness, " rank %d returned %d (%s)", rank, result->status, result->text);
        } else {
            append(harness, " rank %d did not return (exit %d, signal %d)", rank, result->exit_code,
                   result->signal);
        }
    }
    return is_right;
}
