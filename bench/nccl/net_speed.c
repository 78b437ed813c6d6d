/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast a network plugin of NCCL moves messages between two processes, without NCCL and without a GPU, beside a
 * bare copy over as many sockets. Each process has one thread that posts and tests, as NCCL's proxy does.
 *
 *   net_speed [--plugin PATH] [--version 8|9|10|11|12] [--bytes N] [--flight N] [--comms N] [--total N] [--both]
 *   net_speed --bare STREAMS [--bytes N] [--total N] [--both]
 *   net_speed --latency …       half round trips instead
 *
 * --both: both directions at once. Prints one line: GB/s each way, CPU seconds per GB (both processes, both ends).
 */
#include "abi.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define COMMS_MAX 16
#define FLIGHT_MAX 32

static struct {
    const char *plugin;
    int version, comms, flight, bare;
    size_t bytes, total;
    bool is_both, is_latency;
} options = {.plugin = "libnccl-net-weft.so", .version = 11, .comms = 1, .flight = 4, .bytes = 1 << 20,
             .total = (size_t)4 << 30};

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static double cpu_s(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

static void logger(int level, unsigned long subsystems, const char *file, int line, const char *fmt, ...)
{
    va_list args;
    (void)subsystems;
    (void)file;
    (void)line;
    if (level > (getenv("NET_SPEED_INFO") != NULL ? NCCL_LOG_INFO : NCCL_LOG_WARN)) {
        return;
    }
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputc('\n', stderr);
}

/* ---- one set of calls for all versions ---- */

static union {
    void *symbol;
    struct nccl_net_v8 *v8;
    struct nccl_net_v9 *v9;
    struct nccl_net_v10 *v10;
    struct nccl_net_v11 *v11;
} net;
static void *context;

static void check(int result, const char *what)
{
    if (result != 0) {
        fprintf(stderr, "%s: result %d\n", what, result);
        exit(1);
    }
}

static void net_open(void)
{
    char name[32];
    void *library = dlopen(options.plugin, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    snprintf(name, sizeof(name), "ncclNetPlugin_v%d", options.version);
    net.symbol = dlsym(library, name);
    if (net.symbol == NULL) {
        fprintf(stderr, "no %s\n", name);
        exit(1);
    }
    check(options.version < 10    ? net.v8->init(logger)
          : options.version == 10 ? net.v10->init(logger, NULL)
                                  : net.v11->init(&context, 1, NULL, logger, NULL),
          "init");
}

static void net_listen(void *handle, void **listener)
{
    check(options.version < 11 ? net.v8->listen(0, handle, listener)
                               : net.v11->listen(context, 0, handle, listener),
          "listen");
}

static void net_connect(void *handle, void **comm)
{
    struct nccl_device_handle *none = NULL;
    check(options.version < 10    ? net.v8->connect(0, handle, comm, &none)
          : options.version == 10 ? net.v10->connect(0, NULL, handle, comm, &none)
                                  : net.v11->connect(context, 0, handle, comm, &none),
          "connect");
}

static void net_isend(void *comm, void *data, size_t len, void **request)
{
    check(options.version == 8   ? net.v8->isend(comm, data, (int)len, 0, NULL, request)
          : options.version == 9 ? net.v9->isend(comm, data, len, 0, NULL, request)
                                 : net.v10->isend(comm, data, len, 0, NULL, NULL, request),
          "isend");
}

static void net_irecv(void *comm, void *data, size_t len, void **request)
{
    int tag = 0, small = (int)len;
    void *profile = NULL, *region = NULL;
    check(options.version == 8   ? net.v8->irecv(comm, 1, &data, &small, &tag, &region, request)
          : options.version == 9 ? net.v9->irecv(comm, 1, &data, &len, &tag, &region, request)
                                 : net.v10->irecv(comm, 1, &data, &len, &tag, &region, &profile, request),
          "irecv");
}

static bool net_test(void *request, int *len)
{
    int is_done = 0;
    check(net.v8->test(request, &is_done, len), "test");
    return is_done != 0;
}

/* ---- two processes ---- */

struct shared {
    _Atomic int arrived;
    char handles[2][COMMS_MAX][NCCL_HANDLE_LEN]; /* of each process's listeners */
    double cpu[2];
};
static struct shared *shared;
static int me;

static void meet(int times)
{
    __atomic_fetch_add(&shared->arrived, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&shared->arrived, __ATOMIC_SEQ_CST) < 2 * times) {
        usleep(100);
    }
}

struct stream {
    void *comm;
    bool is_send;
    char *memory;
    size_t left_post, left_done;
    void *requests[FLIGHT_MAX];
    unsigned head, count;
};

/* true: something happened */
static bool step(struct stream *stream)
{
    bool is_any = false;
    if (stream->left_post > 0 && stream->count < (unsigned)options.flight) {
        unsigned at = (stream->head + stream->count) % (unsigned)options.flight;
        char *data = stream->memory + at * options.bytes;
        if (stream->is_send) {
            net_isend(stream->comm, data, options.bytes, &stream->requests[at]);
        } else {
            net_irecv(stream->comm, data, options.bytes, &stream->requests[at]);
        }
        if (stream->requests[at] != NULL) {
            stream->count++;
            stream->left_post--;
            is_any = true;
        }
    }
    if (stream->count > 0 && net_test(stream->requests[stream->head], NULL)) {
        stream->head = (stream->head + 1) % (unsigned)options.flight;
        stream->count--;
        stream->left_done--;
        is_any = true;
    }
    return is_any;
}

static void run(struct stream *streams, int count, size_t messages)
{
    bool is_busy = true, is_moving;
    for (int i = 0; i < count; i++) {
        streams[i].left_post = streams[i].left_done = messages;
        streams[i].head = streams[i].count = 0;
    }
    while (is_busy) {
        is_busy = is_moving = false;
        for (int i = 0; i < count; i++) {
            is_moving |= step(&streams[i]);
            is_busy |= streams[i].left_done > 0;
        }
        if (!is_moving) {
            sched_yield(); /* as NCCL's proxy does */
        }
    }
}

static void ping_pong(struct stream *out, struct stream *in, size_t times)
{
    for (size_t i = 0; i < times; i++) {
        for (int half = 0; half < 2; half++) {
            run(half == me ? out : in, 1, 1);
        }
    }
}

static int make_streams(struct stream *streams)
{
    void *listeners[COMMS_MAX], *comm;
    int count = 0;
    for (int i = 0; i < options.comms; i++) {
        net_listen(shared->handles[me][i], &listeners[i]);
    }
    meet(1);
    for (int i = 0; i < options.comms; i++) {
        void *sender = NULL, *receiver = NULL;
        struct nccl_device_handle *none = NULL;
        bool wants_send = options.is_both || me == 0, wants_recv = options.is_both || me == 1;
        while ((wants_send && sender == NULL) || (wants_recv && receiver == NULL)) {
            if (wants_send && sender == NULL) {
                net_connect(shared->handles[1 - me][i], &sender);
            }
            if (wants_recv && receiver == NULL) {
                check(net.v8->accept(listeners[i], &receiver, &none), "accept");
            }
        }
        for (int half = 0; half < 2; half++) {
            comm = half == 0 ? sender : receiver;
            if (comm != NULL) {
                streams[count] = (struct stream){.comm = comm, .is_send = half == 0};
                streams[count].memory = aligned_alloc(4096, (options.bytes * (size_t)options.flight + 4095) & ~(size_t)4095);
                memset(streams[count++].memory, me + 1, options.bytes * (size_t)options.flight);
            }
        }
    }
    return count;
}

static double run_plugin(void)
{
    struct stream streams[2 * COMMS_MAX];
    size_t messages = options.total / options.bytes / (size_t)options.comms;
    double start, seconds, cpu;
    int count;
    net_open();
    count = make_streams(streams);
    if (options.is_latency) {
        messages = options.total;
        ping_pong(&streams[0], &streams[1], messages / 10);
        meet(2);
        start = now_s();
        ping_pong(&streams[0], &streams[1], messages);
        return (now_s() - start) / (double)messages / 2;
    }
    run(streams, count, messages / 8 + 1);
    meet(2);
    cpu = cpu_s();
    start = now_s();
    run(streams, count, messages);
    seconds = now_s() - start;
    shared->cpu[me] = cpu_s() - cpu;
    return seconds;
}

/* ---- the bare copy ---- */

struct bare {
    int fd;
    bool is_send;
    size_t len;
    char *memory;
};

static void *bare_main(void *argument)
{
    struct bare *bare = argument;
    for (size_t done = 0; done < bare->len;) {
        size_t at = done % options.bytes;
        size_t len = options.bytes - at < bare->len - done ? options.bytes - at : bare->len - done;
        ssize_t moved = bare->is_send ? send(bare->fd, bare->memory + at, len, 0)
                                      : recv(bare->fd, bare->memory + at, len, 0);
        if (moved <= 0) {
            die("bare copy");
        }
        done += (size_t)moved;
    }
    return NULL;
}

static double run_bare(int pairs[][2])
{
    struct bare bare[2 * COMMS_MAX];
    pthread_t threads[2 * COMMS_MAX];
    int count = options.bare * (options.is_both ? 2 : 1);
    double start, seconds, cpu;
    for (int i = 0; i < count; i++) {
        bare[i] = (struct bare){.fd = pairs[i][me], .is_send = (i % 2 == 0 || !options.is_both) == (me == 0),
                                .len = options.total / (size_t)options.bare,
                                .memory = malloc(options.bytes)};
        memset(bare[i].memory, 1, options.bytes);
    }
    meet(1);
    cpu = cpu_s();
    start = now_s();
    for (int i = 0; i < count; i++) {
        pthread_create(&threads[i], NULL, bare_main, &bare[i]);
    }
    for (int i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
    }
    seconds = now_s() - start;
    shared->cpu[me] = cpu_s() - cpu;
    return seconds;
}

static void make_pair(int pair[2])
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(addr);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    const int on = 1;
    if (bind(listener, (struct sockaddr *)&addr, len) != 0 || listen(listener, 1) != 0 ||
        getsockname(listener, (struct sockaddr *)&addr, &len) != 0) {
        die("listen");
    }
    pair[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(pair[0], (struct sockaddr *)&addr, len) != 0) {
        die("connect");
    }
    pair[1] = accept(listener, NULL, NULL);
    close(listener);
    for (int i = 0; i < 2; i++) {
        setsockopt(pair[i], IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        if (setsockopt(pair[i], IPPROTO_TCP, TCP_CONGESTION, "cubic", 5) != 0) {
            setsockopt(pair[i], IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
        }
    }
}

/* ---- main ---- */

static size_t size_of(const char *text)
{
    char *end;
    size_t value = strtoull(text, &end, 10);
    return value << (*end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0);
}

static void read_options(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        bool has_value = true;
        if (strcmp(argv[i], "--both") == 0 || strcmp(argv[i], "--latency") == 0) {
            options.is_both = true;
            options.is_latency |= argv[i][2] == 'l';
            has_value = false;
        } else if (strcmp(argv[i], "--plugin") == 0) {
            options.plugin = value;
        } else if (strcmp(argv[i], "--version") == 0) {
            options.version = atoi(value);
        } else if (strcmp(argv[i], "--bytes") == 0) {
            options.bytes = size_of(value);
        } else if (strcmp(argv[i], "--flight") == 0) {
            options.flight = atoi(value);
        } else if (strcmp(argv[i], "--comms") == 0) {
            options.comms = atoi(value);
        } else if (strcmp(argv[i], "--total") == 0) {
            options.total = size_of(value);
        } else if (strcmp(argv[i], "--bare") == 0) {
            options.bare = atoi(value);
        } else {
            fprintf(stderr, "what is %s?\n", argv[i]);
            exit(2);
        }
        i += has_value;
    }
    if (options.comms > COMMS_MAX || options.flight > FLIGHT_MAX || options.bare > COMMS_MAX) {
        fprintf(stderr, "too many\n");
        exit(2);
    }
}

int main(int argc, char **argv)
{
    int pairs[2 * COMMS_MAX][2];
    double seconds, moved;
    int status = 0;
    pid_t child;
    read_options(argc, argv);
    for (int i = 0; i < 2 * options.bare; i++) {
        make_pair(pairs[i]);
    }
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    child = fork();
    me = child == 0;
    seconds = options.bare > 0 ? run_bare(pairs) : run_plugin();
    if (me == 1) {
        _exit(0);
    }
    waitpid(child, &status, 0);
    if (options.is_latency) {
        printf("%zu bytes: %.2f us\n", options.bytes, 1e6 * seconds);
        return status;
    }
    moved = (double)options.total * 1e-9;
    printf("%-8s %zu bytes x %d in flight, %d comms: %.2f GB/s each way, %.3f CPU s/GB\n",
           options.bare > 0 ? "bare" : "plugin", options.bytes, options.flight,
           options.bare > 0 ? options.bare : options.comms, moved / seconds,
           (shared->cpu[0] + shared->cpu[1]) / moved / (options.is_both ? 2 : 1));
    return status;
}
