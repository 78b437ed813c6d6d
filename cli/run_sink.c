/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where tagged lines go: our own stdout and stderr. Whoever reads them may be slow or asleep, and
 * the loop that watches the ranks must not wait for that. So what cannot leave now is kept, the
 * loop is asked to say when there is room, and a sink that is full reads no rank until then: a rank
 * that prints too much waits in its own write(), as it would without us.
 *
 * The descriptors are not made non-blocking, because others share them. A pipe that poll() calls
 * writable takes PIPE_BUF bytes without waiting.
 */
#include "run.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#define FULL_LEN (1u << 20)

static bool is_regular(int fd)
{
    struct stat facts;

    return fstat(fd, &facts) == 0 && S_ISREG(facts.st_mode);
}

static uint64_t event_of(enum weft_run_event event, unsigned index)
{
    return (uint64_t)event << 32 | index;
}

bool weft_run_sinks_open(struct weft_run_job *job)
{
    for (unsigned i = 0; i < 2; i++) {
        struct weft_run_sink *sink = &job->sink[i];
        sink->fd = (int)i + STDOUT_FILENO;
        sink->piece_len = is_regular(sink->fd) ? SSIZE_MAX : PIPE_BUF;
        sink->sources_fd = epoll_create1(EPOLL_CLOEXEC);
        if (sink->sources_fd < 0 || !weft_run_listen(job, sink->sources_fd, WEFT_RUN_OUTPUT, i)) {
            return false;
        }
    }
    return true;
}

void weft_run_sinks_close(struct weft_run_job *job)
{
    for (unsigned i = 0; i < 2; i++) {
        if (job->sink[i].sources_fd >= 0) {
            close(job->sink[i].sources_fd);
        }
        free(job->sink[i].bytes);
    }
}

bool weft_run_sink_add(struct weft_run_sink *sink, int fd, unsigned index)
{
    struct epoll_event wanted = {.events = EPOLLIN, .data.u32 = index};

    return epoll_ctl(sink->sources_fd, EPOLL_CTL_ADD, fd, &wanted) == 0;
}

size_t weft_run_sink_waiting(const struct weft_run_sink *sink)
{
    return sink->len - sink->at;
}

bool weft_run_sink_is_full(const struct weft_run_sink *sink)
{
    return weft_run_sink_waiting(sink) >= FULL_LEN;
}

void weft_run_sink_break(struct weft_run_sink *sink, int error)
{
    sink->error = error;
    sink->at = sink->len = 0;
}

void weft_run_sink_put(struct weft_run_sink *sink, const char *bytes, size_t len)
{
    if (sink->error != 0) {
        return;
    }
    if (sink->at > 0 && sink->room - sink->len < len) {
        memmove(sink->bytes, sink->bytes + sink->at, sink->len - sink->at);
        sink->len -= sink->at;
        sink->at = 0;
    }
    if (sink->room - sink->len < len) {
        sink->room = sink->len + len + FULL_LEN;
        sink->bytes = weft_cli_grow(sink->bytes, sink->room, 1);
    }
    memcpy(sink->bytes + sink->len, bytes, len);
    sink->len += len;
}

void weft_run_sink_push(struct weft_run_sink *sink)
{
    struct pollfd room = {.fd = sink->fd, .events = POLLOUT};

    while (sink->at < sink->len && poll(&room, 1, 0) == 1) {
        size_t left = sink->len - sink->at;
        ssize_t put = write(sink->fd, sink->bytes + sink->at,
                            left < sink->piece_len ? left : sink->piece_len);
        if (put >= 0) {
            sink->at += (size_t)put;
        } else if (errno == EAGAIN) {
            return;
        } else if (errno != EINTR) {
            weft_run_sink_break(sink, errno);
        }
    }
    if (sink->at == sink->len) {
        sink->at = sink->len = 0;
    }
}

/* The loop hears of room while something waits, and of the ranks while we are not full. */
static void tell_loop(struct weft_run_job *job, struct weft_run_sink *sink)
{
    unsigned index = (unsigned)(sink - job->sink);
    struct epoll_event room = {.events = EPOLLOUT};
    struct epoll_event sources = {.events = 0};
    bool is_waiting = weft_run_sink_waiting(sink) > 0;

    room.data.u64 = event_of(WEFT_RUN_ROOM, index);
    if (is_waiting != sink->is_waiting) {
        sink->is_waiting = is_waiting;
        if (epoll_ctl(job->epoll_fd, is_waiting ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, sink->fd, &room) !=
                0 &&
            is_waiting) {
            sink->is_waiting = false;
            weft_run_sink_break(sink, errno);
        }
    }
    if (weft_run_sink_is_full(sink) != sink->is_deaf) {
        sink->is_deaf = !sink->is_deaf;
        sources.events = sink->is_deaf ? 0 : EPOLLIN;
        sources.data.u64 = event_of(WEFT_RUN_OUTPUT, index);
        epoll_ctl(job->epoll_fd, EPOLL_CTL_MOD, sink->sources_fd, &sources);
    }
}

void weft_run_sink_serve(struct weft_run_job *job, struct weft_run_sink *sink)
{
    weft_run_sink_push(sink);
    tell_loop(job, sink);
    /* a reader that left is no failure of ours: the ranks learn it by SIGPIPE */
    if (sink->error != 0 && sink->error != EPIPE) {
        weft_run_fail(job, -1, "cannot write: %s", strerror(sink->error));
        weft_run_end(job);
    }
}
