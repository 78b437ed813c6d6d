/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plugin as NCCL meets it: loaded from its file, any version by one set of calls, and what the tests do with it
 * again and again. Everything has a deadline.
 */
#ifndef WEFT_TESTS_PLUGIN_H
#define WEFT_TESTS_PLUGIN_H

#include "abi.h"

#include <stdbool.h>

enum { PLUGIN_FIRST = 8, PLUGIN_LAST = 12, PLUGIN_DEADLINE_S = 20 };

struct plugin {
    int version;
    void *context;
    union {
        const void *symbol;
        const struct nccl_net_v8 *v8;
        const struct nccl_net_v9 *v9;
        const struct nccl_net_v10 *v10;
        const struct nccl_net_v11 *v11;
        const struct nccl_net_v12 *v12;
    } net;
};

/* Loads this version and calls init; ends the test when it cannot. */
void plugin_open(int version, struct plugin *plugin_p);
int plugin_listen(const struct plugin *plugin, void *handle, void **listener_p);
int plugin_connect(const struct plugin *plugin, void *handle, void **comm_p);
int plugin_accept(const struct plugin *plugin, void *listener, void **comm_p);
int plugin_isend(const struct plugin *plugin, void *comm, void *data, size_t len, int tag,
                 void **request_p);
int plugin_irecv(const struct plugin *plugin, void *comm, int count, void **data, size_t *lens,
                 int *tags, void **request_p);
int plugin_test(const struct plugin *plugin, void *request, int *is_done_p, int *lens);
void plugin_close_send(const struct plugin *plugin, void *comm);
void plugin_close_recv(const struct plugin *plugin, void *comm);
void plugin_close_listen(const struct plugin *plugin, void *listener);

/* What the logger was told so far, newest last, at most 64 KiB; warnings only unless PLUGIN_INFO is set: "info", or anything for all there is. */
const char *plugin_said(void);
void plugin_forget_said(void);

/* Two ends of one connection in this process, by polling both from one thread. */
struct pair {
    void *sender, *receiver;
};
void pair_open(const struct plugin *plugin, struct pair *pair_p);
void pair_close(const struct plugin *plugin, const struct pair *pair);
/* Posts, again while the plugin asks for it. */
void *pair_send(const struct plugin *plugin, const struct pair *pair, void *data, size_t len);
void *pair_recv(const struct plugin *plugin, const struct pair *pair, void *data, size_t len);
/* Until it is done; others: requests that are tested in between, NULL-ended list or NULL. Returns its length. */
int pair_wait(const struct plugin *plugin, void *request);
/* The same for two that need each other. */
void pair_wait_both(const struct plugin *plugin, void *send, void *recv, int *len_p);
/* Until it fails: returns the result. */
int pair_wait_failed(const struct plugin *plugin, void *request);
/* One message, checked byte by byte. */
void pair_move(const struct plugin *plugin, const struct pair *pair, size_t len);

/* Two processes and what they must tell each other. */
struct board {
    _Atomic int is_listening, is_connected, count;
    char handle[NCCL_HANDLE_LEN];
};
struct board *board_open(void); /* before the fork */
void board_close(struct board *board);
void meet_peer(const struct plugin *plugin, struct board *board, bool is_sender, void **comm_p);

/* Calls for each TCP connection of this process, and says for how many it was true. */
int for_connections(bool (*call)(int fd), int most);
/* Ends at most so many as the network would: with a reset, and what was on its way is lost. Waits until there is one,
 * since those that ended before may be coming back. */
void reset_lanes(int most);

double now_s(void);
/* Bytes that differ from message to message, and a check that says where they are wrong. */
void pattern_fill(void *data, size_t len, unsigned seed);
bool pattern_is(const void *data, size_t len, unsigned seed);
unsigned count_fds(void);
unsigned count_threads(void);
/* No more than so many are left. The kernel lists one that was joined a moment longer. */
void await_threads(unsigned most);

#endif
