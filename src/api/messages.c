/* SPDX-License-Identifier: Apache-2.0 */
/* The public functions for messages and one-sided operations: arguments checked, then one call down. */
#include "api/check.h"

#define LEN_MAX (SIZE_MAX >> 8) /* no process has more addresses */

static struct weft_p2p_comm *enter_first(weft_comm_t comm, const char *call,
                                         weft_status_t *status_p)
{
    *status_p = weft_api_check_comm(comm, call);
    return *status_p == WEFT_OK ? weft_comm_messages(comm, status_p) : NULL;
}

/* The communicator's messages: what all of them begin with. NULL: *status_p says why. */
static inline struct weft_p2p_comm *enter(weft_comm_t comm, const char *call,
                                          weft_status_t *status_p)
{
    struct weft_p2p_comm *messages =
        weft_api_is_usable(comm) ? atomic_load_explicit(&comm->messages, memory_order_acquire)
                                 : NULL;
    *status_p = WEFT_OK;
    return messages != NULL ? messages : enter_first(comm, call, status_p);
}

static weft_status_t check_buffer(const void *data, size_t len, const char *call)
{
    if (len > LEN_MAX) {
        return weft_fail(WEFT_ERR_INVALID, "%s: %zu bytes are more than memory can hold", call,
                         len);
    }
    return data != NULL || len == 0
               ? WEFT_OK
               : weft_fail(WEFT_ERR_INVALID, "%s: the buffer of %zu bytes is NULL", call, len);
}

static weft_status_t check_tag(int tag, bool may_be_any, const char *call)
{
    return tag >= 0 || (may_be_any && tag == WEFT_ANY_TAG)
               ? WEFT_OK
               : weft_fail(WEFT_ERR_INVALID, "%s: tag %d; tags are 0 to %d%s", call, tag, INT32_MAX,
                           may_be_any ? ", or WEFT_ANY_TAG" : "");
}

static uint32_t or_any(int value)
{
    return value < 0 ? WEFT_MATCH_ANY : (uint32_t)value;
}

weft_status_t weft_send(weft_comm_t comm, const void *data, size_t len, int to, int tag,
                        weft_request_t *request_p)
{
    weft_status_t status;
    struct weft_p2p_comm *messages = enter(comm, __func__, &status);
    if (messages == NULL) {
        return status;
    }
    status = weft_api_check_rank(comm, to, __func__);
    status = status == WEFT_OK ? check_tag(tag, false, __func__) : status;
    status = status == WEFT_OK ? check_buffer(data, len, __func__) : status;
    if (status == WEFT_OK) {
        status = weft_p2p_send(messages, data, len, (uint32_t)to, (uint32_t)tag, request_p);
    }
    return weft_api_settle(comm, status);
}

static weft_status_t check_source(weft_comm_t comm, int from, int tag, const char *call)
{
    weft_status_t status =
        from == WEFT_ANY_SOURCE ? WEFT_OK : weft_api_check_rank(comm, from, call);
    return status == WEFT_OK ? check_tag(tag, true, call) : status;
}

weft_status_t weft_recv(weft_comm_t comm, void *data, size_t room, int from, int tag,
                        weft_message_t *message_p, weft_request_t *request_p)
{
    const struct weft_slice slice = {.data = data, .len = room};
    weft_status_t status;
    struct weft_p2p_comm *messages = enter(comm, __func__, &status);
    if (messages == NULL) {
        return status;
    }
    status = check_source(comm, from, tag, __func__);
    status = status == WEFT_OK ? check_buffer(data, room, __func__) : status;
    if (status == WEFT_OK) {
        status = weft_p2p_recv(messages, &slice, or_any(from), or_any(tag), message_p, request_p);
    }
    return weft_api_settle(comm, status);
}

weft_status_t weft_probe(weft_comm_t comm, int from, int tag, uint32_t timeout_ms,
                         weft_message_t *message_p)
{
    weft_status_t status;
    struct weft_p2p_comm *messages = enter(comm, __func__, &status);
    if (messages == NULL) {
        return status;
    }
    status = check_source(comm, from, tag, __func__);
    status = status == WEFT_OK ? weft_api_check_pointer(message_p, __func__, "message_p") : status;
    if (status == WEFT_OK) {
        status = weft_p2p_probe(messages, or_any(from), or_any(tag), timeout_ms, message_p);
    }
    return weft_api_settle(comm, status);
}

/* ---- requests ---- */

static weft_status_t check_request(const weft_request_t *request, const char *call)
{
    if (request == NULL) {
        return weft_fail(WEFT_ERR_INVALID, "%s: the pointer to the request is NULL", call);
    }
    if (*request != NULL && !weft_p2p_request_is_valid(*request)) {
        return weft_fail(WEFT_ERR_INVALID, "%s: this request is over, or never was one", call);
    }
    if (*request != NULL && !weft_p2p_request_is_ours(*request)) {
        return weft_fail(WEFT_ERR_FORKED,
                         "%s: this request was begun by the parent process; a forked child cannot "
                         "use it",
                         call);
    }
    return WEFT_OK;
}

weft_status_t weft_test(weft_request_t *request, int *is_done_p)
{
    weft_status_t status = check_request(request, __func__);
    status = status == WEFT_OK ? weft_api_check_pointer(is_done_p, __func__, "is_done_p") : status;
    if (status != WEFT_OK) {
        return status;
    }
    if (*request == NULL) {
        *is_done_p = 1;
        return WEFT_OK;
    }
    return weft_p2p_test(request, is_done_p);
}

weft_status_t weft_wait(weft_request_t *request, uint32_t timeout_ms)
{
    weft_status_t status = check_request(request, __func__);
    if (status != WEFT_OK || *request == NULL) {
        return status;
    }
    struct weft_job *job = weft_p2p_request_context(*request);
    status = weft_p2p_wait(request, timeout_ms);
    return status == WEFT_OK ? WEFT_OK : weft_api_failed(job, status);
}

static weft_status_t check_requests(weft_request_t *requests, int count, const char *call)
{
    weft_status_t status = WEFT_OK;
    if (count < 0 || (requests == NULL && count > 0)) {
        return weft_fail(WEFT_ERR_INVALID, "%s: %d requests at %p", call, count, (void *)requests);
    }
    for (int i = 0; i < count && status == WEFT_OK; i++) {
        status = check_request(&requests[i], call);
    }
    return status;
}

/* Of the first of them; NULL: there is none. (That they are of several jobs is rare.) */
static struct weft_job *job_of(weft_request_t *requests, int count)
{
    for (int i = 0; i < count; i++) {
        if (requests[i] != NULL) {
            return weft_p2p_request_context(requests[i]);
        }
    }
    return NULL;
}

weft_status_t weft_wait_any(weft_request_t *requests, int count, uint32_t timeout_ms, int *index_p)
{
    weft_status_t status = check_requests(requests, count, __func__);
    status = status == WEFT_OK ? weft_api_check_pointer(index_p, __func__, "index_p") : status;
    struct weft_job *job = status == WEFT_OK ? job_of(requests, count) : NULL;
    status = status == WEFT_OK ? weft_p2p_wait_any(requests, count, timeout_ms, index_p) : status;
    return status == WEFT_OK || job == NULL ? status : weft_api_failed(job, status);
}

weft_status_t weft_wait_all(weft_request_t *requests, int count, uint32_t timeout_ms)
{
    weft_status_t status = check_requests(requests, count, __func__);
    struct weft_job *job = status == WEFT_OK ? job_of(requests, count) : NULL;
    status = status == WEFT_OK ? weft_p2p_wait_all(requests, count, timeout_ms) : status;
    return status == WEFT_OK || job == NULL ? status : weft_api_failed(job, status);
}

weft_status_t weft_cancel(weft_request_t *request)
{
    weft_status_t status = check_request(request, __func__);
    return status == WEFT_OK && *request != NULL ? weft_p2p_cancel(request) : status;
}

weft_status_t weft_comm_set_timeout(weft_comm_t comm, uint32_t timeout_ms)
{
    weft_status_t status = weft_api_check_comm(comm, __func__);
    if (status == WEFT_OK) {
        weft_comm_timeout(comm, timeout_ms);
    }
    return status;
}

weft_status_t weft_request_set_timeout(weft_request_t request, uint32_t timeout_ms)
{
    weft_status_t status = check_request(&request, __func__);
    status = status == WEFT_OK ? weft_api_check_pointer(request, __func__, "the request") : status;
    return status == WEFT_OK ? weft_p2p_request_set_timeout(request, timeout_ms) : status;
}

weft_status_t weft_group_begin(weft_comm_t comm)
{
    weft_status_t status;
    struct weft_p2p_comm *messages = enter(comm, __func__, &status);
    return messages != NULL ? weft_p2p_group_begin(messages) : status;
}

weft_status_t weft_group_end(weft_comm_t comm)
{
    weft_status_t status;
    struct weft_p2p_comm *messages = enter(comm, __func__, &status);
    return messages != NULL ? weft_api_settle(comm, weft_p2p_group_end(messages)) : status;
}

/* ---- one-sided ---- */

weft_status_t weft_alloc(size_t len, void **memory_p)
{
    weft_status_t status = weft_api_check_pointer(memory_p, __func__, "memory_p");
    if (status == WEFT_OK && len == 0) {
        return weft_fail(WEFT_ERR_INVALID, "weft_alloc: 0 bytes");
    }
    return status == WEFT_OK ? weft_mem_alloc(len, memory_p) : status;
}

weft_status_t weft_free(void *memory)
{
    return memory == NULL ? WEFT_OK : weft_mem_free(memory);
}

weft_status_t weft_mem_register(weft_comm_t comm, void *memory, size_t len, weft_mem_t *mem_p)
{
    weft_status_t status;
    struct weft_p2p_comm *messages = enter(comm, __func__, &status);
    if (messages == NULL) {
        return status;
    }
    status = weft_api_check_pointer(memory, __func__, "memory");
    status = status == WEFT_OK ? weft_api_check_pointer(mem_p, __func__, "mem_p") : status;
    if (status == WEFT_OK && len > UINTPTR_MAX - (uintptr_t)memory) {
        return weft_fail(WEFT_ERR_INVALID, "weft_mem_register: %zu bytes at %p do not exist", len,
                         memory);
    }
    return status == WEFT_OK ? weft_p2p_register(messages, memory, len, mem_p) : status;
}

weft_status_t weft_mem_deregister(weft_comm_t comm, const weft_mem_t *mem)
{
    weft_status_t status;
    struct weft_p2p_comm *messages = enter(comm, __func__, &status);
    if (messages == NULL) {
        return status;
    }
    status = weft_api_check_pointer(mem, __func__, "mem");
    return status == WEFT_OK ? weft_p2p_deregister(messages, mem) : status;
}

weft_status_t weft_put(weft_comm_t comm, const weft_mem_t *mem, size_t offset, const void *data,
                       size_t len)
{
    const struct weft_p2p_target target = {.mem = mem, .offset = offset};
    weft_status_t status;
    struct weft_p2p_comm *messages = enter(comm, __func__, &status);
    if (messages == NULL) {
        return status;
    }
    status = weft_api_check_pointer(mem, __func__, "mem");
    status = status == WEFT_OK ? check_buffer(data, len, __func__) : status;
    status = status == WEFT_OK ? weft_p2p_put(messages, &target, data, len, NULL, 0) : status;
    return weft_api_settle(comm, status);
}

weft_status_t weft_get(weft_comm_t comm, const weft_mem_t *mem, size_t offset, void *data,
                       size_t len)
{
    const struct weft_p2p_target target = {.mem = mem, .offset = offset};
    weft_status_t status;
    struct weft_p2p_comm *messages = enter(comm, __func__, &status);
    if (messages == NULL) {
        return status;
    }
    status = weft_api_check_pointer(mem, __func__, "mem");
    status = status == WEFT_OK ? check_buffer(data, len, __func__) : status;
    status = status == WEFT_OK ? weft_p2p_get(messages, &target, data, len) : status;
    return weft_api_settle(comm, status);
}

weft_status_t weft_put_signal(weft_comm_t comm, const weft_mem_t *mem, size_t offset,
                              const void *data, size_t len, const weft_mem_t *signal_mem,
                              size_t signal_offset, uint64_t add)
{
    const struct weft_p2p_target target = {.mem = mem, .offset = offset};
    const struct weft_p2p_target signal = {.mem = signal_mem, .offset = signal_offset};
    weft_status_t status;
    struct weft_p2p_comm *messages = enter(comm, __func__, &status);
    if (messages == NULL) {
        return status;
    }
    status = weft_api_check_pointer(mem, __func__, "mem");
    status =
        status == WEFT_OK ? weft_api_check_pointer(signal_mem, __func__, "signal_mem") : status;
    status = status == WEFT_OK ? check_buffer(data, len, __func__) : status;
    status = status == WEFT_OK ? weft_p2p_put(messages, &target, data, len, &signal, add) : status;
    return weft_api_settle(comm, status);
}

weft_status_t weft_wait_signal(weft_comm_t comm, const uint64_t *signal, uint64_t value,
                               uint32_t timeout_ms)
{
    weft_status_t status;
    struct weft_p2p_comm *messages = enter(comm, __func__, &status);
    if (messages == NULL) {
        return status;
    }
    status = weft_api_check_pointer(signal, __func__, "signal");
    if (status == WEFT_OK && (uintptr_t)signal % sizeof(*signal) != 0) {
        return weft_fail(WEFT_ERR_INVALID, "weft_wait_signal: the word is not 8-aligned");
    }
    status = status == WEFT_OK ? weft_p2p_wait_signal(messages, signal, value, timeout_ms) : status;
    return weft_api_settle(comm, status);
}

weft_status_t weft_fence(weft_comm_t comm)
{
    weft_status_t status;
    struct weft_p2p_comm *messages = enter(comm, __func__, &status);
    return messages != NULL ? weft_api_settle(comm, weft_p2p_fence(messages)) : status;
}

weft_status_t weft_quiet(weft_comm_t comm)
{
    weft_status_t status;
    struct weft_p2p_comm *messages = enter(comm, __func__, &status);
    return messages != NULL ? weft_api_settle(comm, weft_p2p_quiet(messages)) : status;
}
