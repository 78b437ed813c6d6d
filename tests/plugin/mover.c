/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One end of a connection, for tests that need hosts of their own.
 *
 *   mover receive          prints its handle; ends when an empty message comes
 *   mover send HANDLE      sends messages until its stdin ends, then an empty one
 *
 * A line on stdin is answered with what happened since the last: {"event": "gap", "ms": …, "messages": …}, the longest time
 * without a message. Every message is checked; an error is {"event": "failed", "result": …} and ends it.
 */
#include "plugin.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FLIGHT = 4, LEN = 1 << 20 };

static struct plugin plugin;
static char memory[FLIGHT][LEN];
static bool is_sender, is_over;
static double last_s, longest_s;
static unsigned messages, told;

static void say_result(int result)
{
    if (result != 0) {
        printf("{\"event\": \"failed\", \"result\": %d, \"messages\": %u}\n", result, messages);
        fprintf(stderr, "%s", plugin_said());
        fflush(stdout);
        exit(1);
    }
}

static void hear_stdin(void)
{
    char line[64];
    ssize_t len = read(STDIN_FILENO, line, sizeof(line));
    if (len == 0) {
        is_over = true;
    } else if (len > 0) {
        double now = now_s();
        longest_s = now - last_s > longest_s ? now - last_s : longest_s;
        printf("{\"event\": \"gap\", \"number\": %u, \"ms\": %.1f, \"messages\": %u}\n", ++told,
               1e3 * longest_s, messages);
        fflush(stdout);
        longest_s = 0;
        last_s = now;
    }
}

static void *post(void *comm, unsigned number, size_t len)
{
    void *request = NULL, *data = memory[number % FLIGHT];
    size_t room = LEN;
    int tag = 0;
    if (is_sender) {
        pattern_fill(data, len, number);
        say_result(plugin_isend(&plugin, comm, data, len, 0, &request));
    } else {
        say_result(plugin_irecv(&plugin, comm, 1, &data, &room, &tag, &request));
    }
    return request;
}

static void done(unsigned number, int len)
{
    double now = now_s();
    longest_s = now - last_s > longest_s ? now - last_s : longest_s;
    last_s = now;
    messages++;
    if (!is_sender && !pattern_is(memory[number % FLIGHT], (size_t)len, number)) {
        printf("{\"event\": \"wrong\", \"number\": %u}\n", number);
        exit(1);
    }
}

static void move(void *comm)
{
    void *requests[FLIGHT];
    unsigned posted = 0, finished = 0;
    bool is_last = false;
    last_s = now_s();
    while (!is_last || (is_sender && finished < posted)) {
        int is_done = 0, len = 0;
        if (posted - finished < FLIGHT && !is_last) {
            requests[posted % FLIGHT] = post(comm, posted, is_over ? 0 : LEN);
            is_last = is_sender && is_over && requests[posted % FLIGHT] != NULL;
            posted += requests[posted % FLIGHT] != NULL;
        }
        if (finished < posted) {
            say_result(plugin_test(&plugin, requests[finished % FLIGHT], &is_done, &len));
        }
        if (is_done) {
            is_last |= !is_sender && len == 0;
            done(finished++, len);
        } else {
            sched_yield();
        }
        hear_stdin();
    }
}

static void *connect_by(const char *text)
{
    char handle[NCCL_HANDLE_LEN];
    void *comm = NULL;
    if (strlen(text) != (size_t)2 * NCCL_HANDLE_LEN) {
        exit(2);
    }
    for (int i = 0; i < NCCL_HANDLE_LEN; i++) {
        char digits[3] = {text[(ptrdiff_t)2 * i], text[(ptrdiff_t)2 * i + 1], '\0'};
        handle[i] = (char)strtoul(digits, NULL, 16);
    }
    while (comm == NULL) {
        say_result(plugin_connect(&plugin, handle, &comm));
        sched_yield();
    }
    return comm;
}

static void *accept_one(void)
{
    unsigned char handle[NCCL_HANDLE_LEN];
    void *listener, *comm = NULL;
    say_result(plugin_listen(&plugin, handle, &listener));
    printf("{\"event\": \"handle\", \"hex\": \"");
    for (int i = 0; i < NCCL_HANDLE_LEN; i++) {
        printf("%02x", handle[i]);
    }
    printf("\"}\n");
    fflush(stdout);
    while (comm == NULL) {
        say_result(plugin_accept(&plugin, listener, &comm));
        sched_yield();
    }
    plugin_close_listen(&plugin, listener);
    return comm;
}

int main(int argc, char **argv)
{
    void *comm;
    alarm(110);
    is_sender = argc == 3 && strcmp(argv[1], "send") == 0;
    plugin_open(11, &plugin);
    comm = is_sender ? connect_by(argv[2]) : accept_one();
    fcntl(STDIN_FILENO, F_SETFL, O_NONBLOCK);
    move(comm);
    plugin_close_send(&plugin, comm);
    printf("{\"event\": \"done\", \"messages\": %u}\n", messages);
    fprintf(stderr, "%s", plugin_said());
    return 0;
}
