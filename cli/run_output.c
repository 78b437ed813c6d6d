/* SPDX-License-Identifier: Apache-2.0 */
/* Tagged output: a line leaves in one piece, with its rank in front, whatever the pieces it came
 * in. */
#include "run.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define PIECE_LEN 65536
#define LINE_MAX_LEN                                                                               \
    (16u << 20) /* a longer line is cut: a rank that never ends one must not eat us */
#define TAG_LEN 16
#define EVENTS 64
#define KEPT_LEN (1u << 20) /* of what is drained, before the reader has to take some */

static void hold(struct weft_run_stream *stream, const char *bytes, size_t len)
{
    if (stream->room - stream->len < len) {
        stream->room = 2 * stream->room + len + TAG_LEN;
        stream->line = weft_cli_grow(stream->line, stream->room, 1);
    }
    memcpy(stream->line + stream->len, bytes, len);
    stream->len += len;
}

/* A line's tag comes with its first byte. */
static void append(struct weft_run_stream *stream, const char *bytes, size_t len)
{
    char tag[TAG_LEN];

    if (stream->len == 0 || stream->line[stream->len - 1] == '\n') {
        int tag_len = snprintf(tag, sizeof(tag), "[%d] ", stream->rank);
        hold(stream, tag, (size_t)tag_len);
    }
    hold(stream, bytes, len);
}

/* Hands on the first len bytes that are held, in one piece; keeps the rest. */
static void flush(struct weft_run_stream *stream, size_t len)
{
    weft_run_sink_put(stream->sink, stream->line, len);
    memmove(stream->line, stream->line + len, stream->len - len);
    stream->len -= len;
}

static void end_line(struct weft_run_stream *stream)
{
    if (stream->len > 0) {
        append(stream, "\n", 1);
        flush(stream, stream->len);
    }
}

static void close_stream(struct weft_run_stream *stream)
{
    close(stream->fd);
    stream->fd = -1;
    free(stream->line);
    stream->line = NULL;
    stream->len = stream->room = 0;
}

/* One reading. Returns how many bytes there were: 0 when there were none, or the stream ended. */
static size_t read_piece(struct weft_run_stream *stream)
{
    char piece[PIECE_LEN];
    size_t whole = 0; /* up to the last newline */
    ssize_t got = read(stream->fd, piece, sizeof(piece));

    if (got < 0) {
        return 0;
    }
    for (const char *at = piece; at < piece + got;) {
        size_t left = (size_t)(piece + got - at);
        const char *newline = memchr(at, '\n', left);
        size_t len = newline != NULL ? (size_t)(newline - at) + 1 : left;
        append(stream, at, len);
        whole = newline != NULL ? stream->len : whole;
        at += len;
    }
    if (whole > 0) {
        flush(stream, whole);
    }
    if (got == 0 || stream->len > LINE_MAX_LEN) {
        end_line(stream);
    }
    /* when our reader has left, the rank learns it as it would without us: by SIGPIPE */
    if (got == 0 || stream->sink->error != 0) {
        close_stream(stream);
        return 0;
    }
    return (size_t)got;
}

void weft_run_sink_read(struct weft_run_job *job, struct weft_run_sink *sink)
{
    struct epoll_event events[EVENTS];
    int count = epoll_wait(sink->sources_fd, events, EVENTS, 0);

    for (int i = 0; i < count && !weft_run_sink_is_full(sink); i++) {
        unsigned index = events[i].data.u32;
        read_piece(&job->rank[index / 2].stream[index % 2]);
    }
    weft_run_sink_serve(job, sink);
}

/* ---- after the last rank ---- */

/* True: someone wants us to end. */
static bool take_last_signals(const struct weft_run_job *job)
{
    struct signalfd_siginfo info;
    bool is_end = false;

    while (read(job->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo == SIGTSTP) {
            raise(SIGSTOP);
        }
        is_end = is_end || info.ssi_signo == SIGINT || info.ssi_signo == SIGTERM ||
                 info.ssi_signo == SIGHUP || info.ssi_signo == SIGQUIT;
    }
    return is_end;
}

/* Until at most `most` bytes wait. A slow reader of a job that went well gets the grace anew with
 * each piece it takes; one that takes nothing loses the rest. */
static void settle(struct weft_run_job *job, struct weft_run_sink *sink, size_t most,
                   uint64_t *deadline_ns_p)
{
    struct pollfd fds[2] = {{.fd = sink->fd, .events = POLLOUT},
                            {.fd = job->signal_fd, .events = POLLIN}};

    for (;;) {
        size_t before = weft_run_sink_waiting(sink);
        weft_run_sink_push(sink);
        size_t waiting = weft_run_sink_waiting(sink);
        if (waiting <= most) {
            return;
        }
        if (waiting < before && !job->is_failed) {
            *deadline_ns_p = weft_clock_after_ms(job->grace_ms);
        }
        uint64_t end_ns = *deadline_ns_p < job->deadline_ns ? *deadline_ns_p : job->deadline_ns;
        if (weft_clock_ns() >= end_ns || take_last_signals(job)) {
            weft_run_sink_break(sink, ETIMEDOUT);
            weft_run_fail(job, -1, "the end of the ranks' output was not read, and is lost");
            return;
        }
        poll(fds, WEFT_COUNT_OF(fds), weft_clock_ms_until(end_ns));
    }
}

/* What is there now, not until its end: a process that a rank left behind may hold the stream open,
 * and go on writing, for ever. */
static void drain(struct weft_run_job *job, struct weft_run_stream *stream, uint64_t *deadline_ns_p)
{
    int there = 0;

    if (stream->fd < 0) {
        return;
    }
    size_t left = ioctl(stream->fd, FIONREAD, &there) == 0 && there > 0 ? (size_t)there : 0;
    while (left > 0 && stream->fd >= 0) {
        size_t got = read_piece(stream);
        settle(job, stream->sink, KEPT_LEN, deadline_ns_p);
        left = got > 0 && got < left ? left - got : 0;
    }
    if (stream->fd >= 0) {
        end_line(stream);
        close_stream(stream);
    }
}

void weft_run_drain(struct weft_run_job *job)
{
    uint64_t deadline_ns = weft_clock_after_ms(job->grace_ms);

    for (int which = 1; which >= 0; which--) { /* stderr first: it says what went wrong */
        for (int i = 0; i < job->ranks; i++) {
            drain(job, &job->rank[i].stream[which], &deadline_ns);
        }
    }
    for (int which = 1; which >= 0; which--) {
        struct weft_run_sink *sink = &job->sink[which];
        settle(job, sink, 0, &deadline_ns);
        if (sink->error != 0 && sink->error != EPIPE) {
            weft_run_fail(job, -1, "cannot write: %s", strerror(sink->error));
        }
    }
}
