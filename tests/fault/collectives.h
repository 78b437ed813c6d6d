/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For fault tests of collectives: a call of any kind and size with memory of its own, and how ranks make
 * it over and over until it fails.
 */
#ifndef WEFT_TESTS_FAULT_COLLECTIVES_H
#define WEFT_TESTS_FAULT_COLLECTIVES_H

#include "fault/messages.h"

#include <dirent.h>

#define COLLECTIVES_RANKS 8

/* How a rank makes its call. */
enum manner { MANNER_BLOCKING, MANNER_REQUEST, MANNER_TEST, MANNER_GROUP, MANNER_OP, MANNERS };
static const char *const manner_names[MANNERS] = {"blocking", "request", "test", "group", "op"};

struct deed {
    weft_coll_t coll;
    size_t len; /* bytes of the longest buffer of a rank */
    enum manner manner;
    bool is_shared; /* memory from weft_alloc() */
    int root;
};

struct hands {
    uint8_t *in, *out;
    size_t len;
    bool is_shared;
};

static inline void hands_open(struct hands *hands, const struct deed *deed)
{
    void *in = NULL, *out = NULL;
    *hands = (struct hands){.len = deed->len + 64, .is_shared = deed->is_shared};
    if (!deed->is_shared) {
        in = messages_buffer(hands->len);
        out = messages_buffer(hands->len);
    } else if (weft_alloc(hands->len, &in) != WEFT_OK || weft_alloc(hands->len, &out) != WEFT_OK) {
        abort();
    }
    hands->in = in;
    hands->out = out;
}

static inline void hands_close(struct hands *hands)
{
    if (hands->is_shared) {
        weft_free(hands->in);
        weft_free(hands->out);
    } else {
        free(hands->in);
        free(hands->out);
    }
}

/* i32 sums: `len` is the larger of input and output. */
static inline weft_call_t deed_call(const struct deed *deed, const struct hands *hands, int ranks)
{
    weft_call_t call = WEFT_CALL_INIT;
    bool has_pieces =
        deed->coll != WEFT_ALLREDUCE && deed->coll != WEFT_REDUCE && deed->coll != WEFT_BROADCAST;
    call.coll = deed->coll;
    call.dtype = WEFT_I32;
    call.root = deed->root;
    call.in = hands->in;
    call.out = hands->out;
    call.count = deed->len / sizeof(int32_t) / (has_pieces ? (size_t)ranks : 1);
    call.count = call.count > 0 ? call.count : 1;
    return call;
}

static inline weft_status_t deed_as_request(weft_comm_t comm, const weft_call_t *call, bool is_test)
{
    weft_request_t request = NULL;
    weft_status_t status = weft_collective(comm, call, &request);
    int is_done = request == NULL;
    if (status != WEFT_OK || !is_test) {
        return status == WEFT_OK ? weft_wait(&request, WEFT_NO_LIMIT) : status;
    }
    while (status == WEFT_OK && !is_done) {
        status = weft_test(&request, &is_done);
    }
    return status;
}

static inline weft_status_t deed_in_group(weft_comm_t comm, const weft_call_t *call)
{
    weft_status_t status = weft_group_begin(comm), end;
    status = status == WEFT_OK ? weft_collective(comm, call, NULL) : status;
    status = status == WEFT_OK ? weft_barrier(comm, NULL) : status;
    end = weft_group_end(comm);
    return status != WEFT_OK ? status : end;
}

static inline weft_status_t deed_as_op(weft_comm_t comm, const weft_call_t *call)
{
    weft_op_t op = NULL;
    weft_status_t status = weft_op_create(comm, call, &op), end;
    if (status != WEFT_OK) {
        return status;
    }
    status = weft_op_start(op);
    status = status == WEFT_OK ? weft_op_wait(op, WEFT_NO_LIMIT) : status;
    end = weft_op_destroy(op); /* nothing runs any more, whatever the end was */
    return status != WEFT_OK ? status : end;
}

static inline weft_status_t deed_do(weft_comm_t comm, const struct deed *deed,
                                    const struct hands *hands, int ranks)
{
    weft_call_t call = deed_call(deed, hands, ranks);
    switch (deed->manner) {
    case MANNER_REQUEST:
    case MANNER_TEST:
        return deed_as_request(comm, &call, deed->manner == MANNER_TEST);
    case MANNER_GROUP:
        return deed_in_group(comm, &call);
    case MANNER_OP:
        return deed_as_op(comm, &call);
    default:
        return weft_collective(comm, &call, NULL);
    }
}

static inline void deed_describe(const struct deed *deed, const char *path, char *text, size_t room)
{
    snprintf(text, room, "%s of %zu bytes (%s%s) over %s", weft_coll_name(deed->coll), deed->len,
             manner_names[deed->manner], deed->is_shared ? ", shared memory" : "", path);
}

#ifdef CMOCKA_H_
/* Until the ranks have got so far; else the test ends with what they said. */
static inline void collectives_await(struct harness *harness, const _Atomic uint32_t *word,
                                     uint32_t value, const char *what)
{
    char said[1024] = "";
    if (harness_wait_reach(word, value, MESSAGES_WAIT_MS)) {
        return;
    }
    harness_wait(harness, 0);
    for (int rank = 0; rank < harness_shared(harness)->ranks; rank++) {
        size_t used = strlen(said);
        snprintf(said + used, sizeof(said) - used, " rank %d: %s;", rank,
                 harness_result(harness, rank)->text);
    }
    fail_msg("%s: the ranks do not get to %u:%s", what, value, said);
}
#endif

/* How many files of ours are in /dev/shm: none, ever. */
static inline unsigned count_dev_shm(void)
{
    const struct dirent *entry;
    unsigned count = 0;
    DIR *dir = opendir("/dev/shm");
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        count += strstr(entry->d_name, "weft") != NULL && strstr(entry->d_name, ".dump") == NULL;
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return count;
}

#endif
