/* SPDX-License-Identifier: Apache-2.0 */
/* What strangers say at a port of ours: browsers, TLS clients, scanners, noise, and bytes that are nearly right. */
#ifndef WEFT_TESTS_FAULT_STRANGERS_H
#define WEFT_TESTS_FAULT_STRANGERS_H

#include "harness/harness.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define STRANGERS_WAIT_MS 5000

static const char strangers_http[] = "GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n";
static const char strangers_tls[] =
    "\x16\x03\x01\x00\xc8\x01\x00\x00\xc4\x03\x03 and what a browser adds";
static const char strangers_noise[] =
    "\x93\x00\xff\xfe\x80\x7f never seen on this wire \xde\xad\xbe\xef";
static const char strangers_almost[] = "WEFX";
static const char strangers_one_byte[] = "\n";
/* magic and version are right, the kind is none a caller may send */
static const char strangers_wrong_kind[] = "WEFT\x01\x00\x01\x00";

static const struct {
    const char *bytes;
    size_t len;
} strangers_speeches[] = {
    {strangers_http, sizeof(strangers_http) - 1},
    {strangers_tls, sizeof(strangers_tls) - 1},
    {strangers_noise, sizeof(strangers_noise) - 1},
    {strangers_almost, sizeof(strangers_almost) - 1},
    {strangers_one_byte, sizeof(strangers_one_byte) - 1},
    {strangers_wrong_kind, sizeof(strangers_wrong_kind) - 1},
};
#define STRANGERS_SPEECHES (sizeof(strangers_speeches) / sizeof(strangers_speeches[0]))

/* One of many, on a connection of its own: says something and leaves, in one of several bad manners. Some wait until
 * they are closed; false: that took too long. */
static inline bool strangers_misbehave(int fd, unsigned number)
{
    const struct linger reset = {.l_onoff = 1, .l_linger = 0};
    size_t speech = number % (STRANGERS_SPEECHES + 1); /* the last says nothing */
    bool is_closed = true;
    if (speech < STRANGERS_SPEECHES) {
        stranger_send(fd, strangers_speeches[speech].bytes, strangers_speeches[speech].len,
                      STRANGERS_WAIT_MS);
    }
    if (number % 64 == 0 && speech < STRANGERS_SPEECHES) {
        is_closed = stranger_is_closed(fd, STRANGERS_WAIT_MS);
    } else if (number % 2 == 0) {
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    }
    close(fd);
    return is_closed;
}

static inline int strangers_by_size(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return a < b ? -1 : a > b;
}

#endif
