/* SPDX-License-Identifier: Apache-2.0 */
/* Tagged output: a line leaves in one piece, with its rank in front, whatever the pieces it came
 * in. */
#include "run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PIECE_LEN 65536
#define LINE_MAX_LEN                                                                               \
    (16u << 20) /* a longer line is cut: a rank that never ends one must not eat us */
#define TAG_LEN 16

static void write_all(int fd, const char *bytes, size_t len, bool *is_broken_p)
{
    while (len > 0) {
        ssize_t put = write(fd, bytes, len);
        if (put < 0 && errno == EINTR) {
            continue;
        }
        if (put < 0) {
            *is_broken_p = true;
            return;
        }
        bytes += put;
        len -= (size_t)put;
    }
}

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

/* Writes the first len bytes that are held, in one piece; keeps the rest. */
static bool flush(struct weft_run_stream *stream, size_t len)
{
    bool is_broken = false;

    write_all(stream->to_fd, stream->line, len, &is_broken);
    memmove(stream->line, stream->line + len, stream->len - len);
    stream->len -= len;
    return !is_broken;
}

static bool end_line(struct weft_run_stream *stream)
{
    append(stream, "\n", 1);
    return flush(stream, stream->len);
}

static void close_stream(struct weft_run_stream *stream)
{
    close(stream->fd);
    stream->fd = -1;
    free(stream->line);
    stream->line = NULL;
    stream->len = stream->room = 0;
}

/* One reading. False: nothing was there, or the stream has ended. */
static bool read_piece(struct weft_run_stream *stream)
{
    char piece[PIECE_LEN];
    size_t whole = 0; /* up to the last newline */
    bool is_fine = true;
    ssize_t got = read(stream->fd, piece, sizeof(piece));

    if (got < 0) {
        return errno == EINTR;
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
        is_fine = flush(stream, whole);
    }
    if (stream->len > 0 && (got == 0 || stream->len > LINE_MAX_LEN)) {
        is_fine = end_line(stream) && is_fine;
    }
    /* when our reader has left, the rank learns it as it would without us: by SIGPIPE */
    if (got == 0 || !is_fine) {
        close_stream(stream);
        return false;
    }
    return true;
}

void weft_run_stream_read(struct weft_run_stream *stream)
{
    if (stream->fd >= 0) {
        read_piece(stream);
    }
}

void weft_run_stream_drain(struct weft_run_stream *stream)
{
    while (stream->fd >= 0 && read_piece(stream)) {
    }
    if (stream->fd >= 0) {
        if (stream->len > 0) {
            end_line(stream);
        }
        close_stream(stream);
    }
}
