/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `weft bench p2p --mode put_quiet` measures, over UCX: a put and the flush that says it has
 * landed, one after the other, between two processes of this host; ucx_perftest has no such test.
 * Which transports are taken is said by UCX's own variables. For bench/compare_p2p.py.
 *
 *   ucx_put BYTES ITERS WARMUP     prints the median of one put with its flush, in µs
 *
 * The target only drives its worker. A flag in shared memory ends that: asking a socket would take
 * a system call in every turn.
 */
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#define PAGE 4096
#define BYTES_MAX ((size_t)1 << 30)
#define COUNT_MAX 10000000
#define BLOB_MAX 65536 /* a worker's address or a key: some hundred bytes */
#define GIVE_UP_S 60   /* the other side is gone or stuck */

struct run {
    size_t bytes;
    int iters, warmup;
    int fd;                /* to the other process */
    _Atomic bool *is_over; /* shared by both */
    uint8_t *buffer;       /* the origin puts from it, the target gets it there */
    ucp_context_h context;
    ucp_worker_h worker;
};

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

/* ---- whatever fails ends the process; the other one ends with it or at its alarm ---- */

static _Noreturn void fail(const char *what, const char *why)
{
    fprintf(stderr, "ucx_put: %s: %s\n", what, why);
    exit(1);
}

static void need(ucs_status_t status, const char *what)
{
    if (status != UCS_OK) {
        fail(what, ucs_status_string(status));
    }
}

static void *need_memory(void *memory)
{
    if (memory == NULL) {
        fail("memory", "there is none");
    }
    return memory;
}

static void send_all(int fd, const void *data, size_t len)
{
    if (send(fd, data, len, MSG_NOSIGNAL) != (ssize_t)len) { /* blocking: all or an error */
        fail("send", "the other process is gone");
    }
}

static void recv_all(int fd, void *data, size_t len)
{
    if (recv(fd, data, len, MSG_WAITALL) != (ssize_t)len) {
        fail("recv", "the other process is gone");
    }
}

static void send_blob(int fd, const void *data, size_t len)
{
    send_all(fd, &len, sizeof(len));
    send_all(fd, data, len);
}

/* The caller frees it. */
static void *recv_blob(int fd)
{
    size_t len = 0;
    recv_all(fd, &len, sizeof(len));
    if (len < 1 || len > BLOB_MAX) {
        fail("recv", "a length out of range");
    }
    void *data = need_memory(malloc(len));
    recv_all(fd, data, len);
    return data;
}

/* ---- both sides ---- */

static uint8_t byte_at(size_t i)
{
    return (uint8_t)(i * 7 + i / 251);
}

static void open_worker(struct run *run)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_RMA};
    ucp_worker_params_t worker_params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                         .thread_mode = UCS_THREAD_MODE_SINGLE};
    need(ucp_init(&params, NULL, &run->context), "ucp_init");
    need(ucp_worker_create(run->context, &worker_params, &run->worker), "ucp_worker_create");
}

static void close_worker(struct run *run)
{
    ucp_worker_destroy(run->worker);
    ucp_cleanup(run->context);
}

static ucp_mem_h map_buffer(struct run *run)
{
    ucp_mem_map_params_t params = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
        .address = run->buffer,
        .length = run->bytes,
    };
    ucp_mem_h memory;
    need(ucp_mem_map(run->context, &params, &memory), "ucp_mem_map");
    return memory;
}

/* ---- the target ---- */

static void offer_buffer(struct run *run, ucp_mem_h memory)
{
    ucp_address_t *address;
    size_t address_len, key_len;
    void *key;
    uint64_t where = (uintptr_t)run->buffer;
    need(ucp_worker_get_address(run->worker, &address, &address_len), "ucp_worker_get_address");
    need(ucp_rkey_pack(run->context, memory, &key, &key_len), "ucp_rkey_pack");
    send_blob(run->fd, address, address_len);
    send_blob(run->fd, key, key_len);
    send_all(run->fd, &where, sizeof(where));
    ucp_rkey_buffer_release(key);
    ucp_worker_release_address(run->worker, address);
}

static _Noreturn void be_target(struct run *run, pid_t origin)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != origin) {
        _exit(1); /* it died before we could ask to die with it */
    }
    for (size_t i = 0; i < run->bytes; i++) {
        run->buffer[i] = (uint8_t)~byte_at(i); /* so that what is right has come */
    }
    open_worker(run);
    ucp_mem_h memory = map_buffer(run);
    offer_buffer(run, memory);
    while (!atomic_load_explicit(run->is_over, memory_order_acquire)) {
        ucp_worker_progress(run->worker);
    }
    for (size_t i = 0; i < run->bytes; i++) {
        if (run->buffer[i] != byte_at(i)) {
            fail("target", "wrong bytes");
        }
    }
    ucp_mem_unmap(run->context, memory);
    close_worker(run);
    exit(0);
}

/* ---- the origin ---- */

struct peer {
    ucp_ep_h ep;
    ucp_rkey_h key;
    uint64_t where;
};

static void connect_peer(struct run *run, struct peer *peer)
{
    ucp_address_t *address = recv_blob(run->fd);
    void *key = recv_blob(run->fd);
    recv_all(run->fd, &peer->where, sizeof(peer->where));
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, .address = address};
    need(ucp_ep_create(run->worker, &params, &peer->ep), "ucp_ep_create");
    need(ucp_ep_rkey_unpack(peer->ep, key, &peer->key), "ucp_ep_rkey_unpack");
    free(key);
    free(address);
}

static void await_request(struct run *run, ucs_status_ptr_t request, const char *what)
{
    if (!UCS_PTR_IS_PTR(request)) {
        need(UCS_PTR_STATUS(request), what); /* done at once, or refused */
        return;
    }
    ucs_status_t status = ucp_request_check_status(request);
    while (status == UCS_INPROGRESS) {
        ucp_worker_progress(run->worker);
        status = ucp_request_check_status(request);
    }
    ucp_request_free(request);
    need(status, what);
}

/* The put is not waited for on its own: its end says only that the buffer is free again. */
static void put_and_flush(struct run *run, const struct peer *peer)
{
    const ucp_request_param_t plain = {.op_attr_mask = 0};
    ucs_status_ptr_t put =
        ucp_put_nbx(peer->ep, run->buffer, run->bytes, peer->where, peer->key, &plain);
    await_request(run, ucp_ep_flush_nbx(peer->ep, &plain), "ucp_ep_flush_nbx");
    await_request(run, put, "ucp_put_nbx");
}

static int compare(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

/* The median in µs. As at Weft the clock is read once per put, from end to end. */
static double measure(struct run *run, const struct peer *peer)
{
    size_t count = (size_t)run->iters;
    uint64_t *ns = need_memory(calloc(count, sizeof(*ns)));
    for (int i = 0; i < run->warmup; i++) {
        put_and_flush(run, peer);
    }
    uint64_t before = now_ns();
    for (size_t i = 0; i < count; i++) {
        put_and_flush(run, peer);
        uint64_t now = now_ns();
        ns[i] = now - before;
        before = now;
    }
    qsort(ns, count, sizeof(ns[0]), compare);
    uint64_t twice = ns[(count - 1) / 2] + ns[count / 2];
    double median_us = (double)twice / 2e3;
    free(ns);
    return median_us;
}

static double be_origin(struct run *run)
{
    struct peer peer;
    for (size_t i = 0; i < run->bytes; i++) {
        run->buffer[i] = byte_at(i);
    }
    open_worker(run);
    connect_peer(run, &peer);
    double median_us = measure(run, &peer);
    ucp_rkey_destroy(peer.key);
    const ucp_request_param_t plain = {.op_attr_mask = 0};
    await_request(run, ucp_ep_close_nbx(peer.ep, &plain), "ucp_ep_close_nbx");
    atomic_store_explicit(run->is_over, true, memory_order_release);
    close_worker(run);
    return median_us;
}

/* ---- both processes; UCX does not outlive a fork, so it is opened after it ---- */

static void read_arguments(int argc, char **argv, struct run *run)
{
    if (argc != 4) {
        fprintf(stderr, "usage: ucx_put BYTES ITERS WARMUP\n");
        exit(2);
    }
    run->bytes = strtoull(argv[1], NULL, 10);
    long iters = strtol(argv[2], NULL, 10), warmup = strtol(argv[3], NULL, 10);
    if (run->bytes < 1 || run->bytes > BYTES_MAX || iters < 1 || iters > COUNT_MAX || warmup < 0 ||
        warmup > COUNT_MAX) {
        fprintf(stderr, "ucx_put: numbers out of range\n");
        exit(2);
    }
    run->iters = (int)iters;
    run->warmup = (int)warmup;
}

int main(int argc, char **argv)
{
    struct run run = {0};
    int fds[2], status = 0;
    read_arguments(argc, argv, &run);
    run.is_over = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (run.is_over == MAP_FAILED || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) {
        perror("ucx_put");
        return 1;
    }
    run.buffer = need_memory(aligned_alloc(PAGE, (run.bytes + PAGE - 1) / PAGE * PAGE));
    pid_t origin = getpid(), target = fork();
    if (target < 0) {
        perror("ucx_put");
        return 1;
    }
    run.fd = fds[target == 0];
    close(fds[target != 0]);
    if (target == 0) {
        be_target(&run, origin);
    }
    alarm(GIVE_UP_S); /* ends us, and with us the target */
    double median_us = be_origin(&run);
    if (waitpid(target, &status, 0) != target || !WIFEXITED(status)) {
        fail("target", "killed");
    }
    if (WEXITSTATUS(status) != 0) {
        return 1; /* it has said why */
    }
    printf("%.3f\n", median_us);
    return 0;
}
