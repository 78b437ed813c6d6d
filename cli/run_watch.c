/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watching a job until its last rank has ended. Exits come by pidfd, because epoll hands them over
 * in the order in which they happened: the first rank that failed is the one to name, the others
 * often fail a moment later because of it.
 *
 * A rank leads a process group, so that what it started gets the signals too. Signals of the
 * terminal reach the terminal's own group without us; only ranks outside of it need them from us.
 */
#include "run.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define EVENTS 64

bool weft_run_listen(struct weft_run_job *job, int fd, enum weft_run_event event, unsigned index)
{
    struct epoll_event wanted = {.events = EPOLLIN};

    wanted.data.u64 = (uint64_t)event << 32 | index;
    return epoll_ctl(job->epoll_fd, EPOLL_CTL_ADD, fd, &wanted) == 0;
}

void weft_run_fail(struct weft_run_job *job, int rank, const char *fmt, ...)
{
    va_list args;

    if (job->is_failed) {
        return;
    }
    job->is_failed = true;
    job->failed_rank = rank;
    va_start(args, fmt);
    vsnprintf(job->reason, sizeof(job->reason), fmt, args);
    va_end(args);
}

static void signal_rank(const struct weft_run_rank *rank, int number)
{
    kill(rank->has_group ? -rank->pid : rank->pid, number);
}

/* has_terminal: the terminal has told its own group already */
static void signal_all(struct weft_run_job *job, int number, bool has_terminal)
{
    for (int i = 0; i < job->ranks; i++) {
        const struct weft_run_rank *rank = &job->rank[i];
        if (rank->pidfd >= 0 && (rank->has_group || !has_terminal)) {
            signal_rank(rank, number);
        }
    }
}

void weft_run_end(struct weft_run_job *job)
{
    if (job->is_ending) {
        return;
    }
    job->is_ending = true;
    job->ended_by_us = job->alive;
    job->kill_ns = weft_clock_after_ms(job->grace_ms);
    signal_all(job, SIGTERM, false);
    signal_all(job, SIGCONT, false); /* a stopped rank would not see it */
}

static void judge_exit(struct weft_run_job *job, int number)
{
    const struct weft_run_rank *rank = &job->rank[number];
    int status = rank->wait_status;

    if (WIFSIGNALED(status)) {
        const char *name = sigabbrev_np(WTERMSIG(status));
        char other[16];
        snprintf(other, sizeof(other), "RT%d", WTERMSIG(status));
        weft_run_fail(job, number, "rank %d (pid %d) was killed by SIG%s%s", number, (int)rank->pid,
                      name != NULL ? name : other, WCOREDUMP(status) ? " (core dumped)" : "");
    } else if (WEXITSTATUS(status) != 0) {
        weft_run_fail(job, number, "rank %d (pid %d) exited with status %d", number, (int)rank->pid,
                      WEXITSTATUS(status));
    }
    if (job->is_failed) {
        weft_run_end(job);
    }
}

static void take_exit(struct weft_run_job *job, int number)
{
    struct weft_run_rank *rank = &job->rank[number];
    siginfo_t info = {0};

    if (rank->pidfd < 0 ||
        waitid(P_PID, (id_t)rank->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid == 0) {
        return;
    }
    /* What a failed rank started goes with it. Before the rank is reaped, so that its number cannot
     * have passed to someone else. */
    bool is_fine = info.si_code == CLD_EXITED && info.si_status == 0;
    if (rank->has_group && (job->is_ending || !is_fine)) {
        kill(-rank->pid, SIGKILL);
    }
    waitpid(rank->pid, &rank->wait_status, 0);
    close(rank->pidfd);
    rank->pidfd = -1;
    rank->is_ended = true;
    job->alive--;
    judge_exit(job, number);
}

static void take_signals(struct weft_run_job *job)
{
    struct signalfd_siginfo info;

    while (read(job->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        signal_all(job, (int)info.ssi_signo, info.ssi_code == SI_KERNEL);
        if (info.ssi_signo == SIGTSTP) {
            raise(SIGSTOP); /* as it would have done, had we not blocked it; SIGCONT comes next */
        }
    }
}

static void take_event(struct weft_run_job *job, uint64_t data)
{
    unsigned index = (unsigned)(data & UINT32_MAX);

    switch ((enum weft_run_event)(data >> 32)) {
    case WEFT_RUN_SIGNAL:
        take_signals(job);
        break;
    case WEFT_RUN_EXIT:
        take_exit(job, (int)index);
        break;
    case WEFT_RUN_OUTPUT:
        weft_run_sink_read(job, &job->sink[index]);
        break;
    case WEFT_RUN_ROOM:
        weft_run_sink_serve(job, &job->sink[index]);
        break;
    }
}

static void check_deadlines(struct weft_run_job *job)
{
    uint64_t now_ns = weft_clock_ns();

    if (now_ns >= job->deadline_ns) {
        job->deadline_ns = WEFT_NEVER;
        weft_run_fail(job, -1, "the job did not end within %llu.%03llu s",
                      (unsigned long long)(job->timeout_ms / 1000),
                      (unsigned long long)(job->timeout_ms % 1000));
        weft_run_end(job);
    }
    if (now_ns >= job->kill_ns) {
        job->kill_ns = WEFT_NEVER;
        signal_all(job, SIGKILL, false);
    }
}

void weft_run_watch(struct weft_run_job *job)
{
    struct epoll_event events[EVENTS];

    if (job->timeout_ms > 0) {
        job->deadline_ns = weft_clock_after_ms(job->timeout_ms);
    }
    while (job->alive > 0) {
        uint64_t next_ns = job->deadline_ns < job->kill_ns ? job->deadline_ns : job->kill_ns;
        int count = epoll_wait(job->epoll_fd, events, EVENTS, weft_clock_ms_until(next_ns));
        for (int i = 0; i < count; i++) {
            take_event(job, events[i].data.u64);
        }
        check_deadlines(job);
    }
    weft_run_drain(job);
}
