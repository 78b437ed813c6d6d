/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* ---- the logger ---- */

static pthread_mutex_t said_lock = PTHREAD_MUTEX_INITIALIZER;
static char said[65536];

static int heard_level(void)
{
    const char *wanted = getenv("PLUGIN_INFO");
    return wanted == NULL                ? NCCL_LOG_WARN
           : strcmp(wanted, "info") == 0 ? NCCL_LOG_INFO
                                         : NCCL_LOG_TRACE;
}

static void logger(int level, unsigned long subsystems, const char *file, int line, const char *fmt,
                   ...)
{
    size_t len;
    va_list args;
    (void)subsystems;
    (void)file;
    (void)line;
    if (level > heard_level()) {
        return;
    }
    pthread_mutex_lock(&said_lock);
    len = strlen(said);
    len = len < sizeof(said) / 2 ? len : 0;
    va_start(args, fmt);
    vsnprintf(said + len, sizeof(said) - len - 1, fmt, args);
    va_end(args);
    if (getenv("PLUGIN_INFO") != NULL) {
        fprintf(stderr, "%s\n", said + len);
    }
    len = strlen(said);
    memcpy(said + len, "\n", 2);
    pthread_mutex_unlock(&said_lock);
}

const char *plugin_said(void)
{
    static _Thread_local char copy[sizeof(said)];
    pthread_mutex_lock(&said_lock);
    memcpy(copy, said, sizeof(said));
    pthread_mutex_unlock(&said_lock);
    return copy;
}

void plugin_forget_said(void)
{
    pthread_mutex_lock(&said_lock);
    said[0] = '\0';
    pthread_mutex_unlock(&said_lock);
}

/* ---- all versions by one set of calls ---- */

void plugin_open(int version, struct plugin *plugin_p)
{
    char name[32];
    void *library = dlopen(WEFT_NCCL_PATH, RTLD_NOW | RTLD_LOCAL);
    *plugin_p = (struct plugin){.version = version};
    if (library == NULL) {
        fail_msg("%s", dlerror());
    }
    snprintf(name, sizeof(name), "ncclNetPlugin_v%d", version);
    plugin_p->net.symbol = dlsym(library, name);
    assert_non_null(plugin_p->net.symbol);
    assert_int_equal(0, version < 10 ? plugin_p->net.v8->init(logger)
                        : version == 10
                            ? plugin_p->net.v10->init(logger, NULL)
                            : plugin_p->net.v11->init(&plugin_p->context, 7, NULL, logger, NULL));
}

int plugin_listen(const struct plugin *plugin, void *handle, void **listener_p)
{
    return plugin->version < 11 ? plugin->net.v8->listen(0, handle, listener_p)
                                : plugin->net.v11->listen(plugin->context, 0, handle, listener_p);
}

int plugin_connect(const struct plugin *plugin, void *handle, void **comm_p)
{
    struct nccl_device_handle *none = NULL;
    return plugin->version < 10 ? plugin->net.v8->connect(0, handle, comm_p, &none)
           : plugin->version == 10
               ? plugin->net.v10->connect(0, NULL, handle, comm_p, &none)
               : plugin->net.v11->connect(plugin->context, 0, handle, comm_p, &none);
}

int plugin_accept(const struct plugin *plugin, void *listener, void **comm_p)
{
    struct nccl_device_handle *none = NULL;
    return plugin->net.v8->accept(listener, comm_p, &none);
}

int plugin_isend(const struct plugin *plugin, void *comm, void *data, size_t len, int tag,
                 void **request_p)
{
    return plugin->version == 8 ? plugin->net.v8->isend(comm, data, (int)len, tag, NULL, request_p)
           : plugin->version == 9
               ? plugin->net.v9->isend(comm, data, len, tag, NULL, request_p)
               : plugin->net.v10->isend(comm, data, len, tag, NULL, NULL, request_p);
}

int plugin_irecv(const struct plugin *plugin, void *comm, int count, void **data, size_t *lens,
                 int *tags, void **request_p)
{
    void *none[16] = {NULL};
    int small[16];
    for (int i = 0; i < count && i < 16; i++) {
        small[i] = (int)lens[i]; /* cppcheck-suppress objectIndex ; count is 1 then */
    }
    return plugin->version == 8
               ? plugin->net.v8->irecv(comm, count, data, small, tags, none, request_p)
           : plugin->version == 9
               ? plugin->net.v9->irecv(comm, count, data, lens, tags, none, request_p)
               : plugin->net.v10->irecv(comm, count, data, lens, tags, none, none, request_p);
}

int plugin_test(const struct plugin *plugin, void *request, int *is_done_p, int *lens)
{
    return plugin->net.v8->test(request, is_done_p, lens);
}

void plugin_close_send(const struct plugin *plugin, void *comm)
{
    assert_int_equal(0, plugin->net.v8->close_send(comm));
}

void plugin_close_recv(const struct plugin *plugin, void *comm)
{
    assert_int_equal(0, plugin->net.v8->close_recv(comm));
}

void plugin_close_listen(const struct plugin *plugin, void *listener)
{
    assert_int_equal(0, plugin->net.v8->close_listen(listener));
}

/* ---- pairs ---- */

static void check_deadline(double start, const char *what)
{
    if (now_s() - start > PLUGIN_DEADLINE_S) {
        fail_msg("%s took too long; the plugin said: %s", what, plugin_said());
    }
    sched_yield();
}

void pair_open(const struct plugin *plugin, struct pair *pair_p)
{
    char handle[NCCL_HANDLE_LEN], copy[NCCL_HANDLE_LEN];
    void *listener = NULL;
    double start = now_s();
    *pair_p = (struct pair){0};
    assert_int_equal(0, plugin_listen(plugin, handle, &listener));
    memcpy(copy, handle, sizeof(copy)); /* as it would come from another host */
    while (pair_p->sender == NULL || pair_p->receiver == NULL) {
        if (pair_p->sender == NULL) {
            assert_int_equal(0, plugin_connect(plugin, copy, &pair_p->sender));
        }
        if (pair_p->receiver == NULL) {
            assert_int_equal(0, plugin_accept(plugin, listener, &pair_p->receiver));
        }
        check_deadline(start, "connecting");
    }
    plugin_close_listen(plugin, listener);
}

void pair_close(const struct plugin *plugin, const struct pair *pair)
{
    plugin_close_send(plugin, pair->sender);
    plugin_close_recv(plugin, pair->receiver);
}

void *pair_send(const struct plugin *plugin, const struct pair *pair, void *data, size_t len)
{
    void *request = NULL;
    double start = now_s();
    while (request == NULL) {
        assert_int_equal(0, plugin_isend(plugin, pair->sender, data, len, 5, &request));
        check_deadline(start, "isend");
    }
    return request;
}

void *pair_recv(const struct plugin *plugin, const struct pair *pair, void *data, size_t len)
{
    void *request = plugin->version > 8 ? NCCL_OPTIONAL_COMPLETION : NULL;
    int tag = 5;
    assert_int_equal(0, plugin_irecv(plugin, pair->receiver, 1, &data, &len, &tag, &request));
    assert_non_null(request);
    return request;
}

int pair_wait(const struct plugin *plugin, void *request)
{
    int is_done = 0, len = -1;
    double start = now_s();
    while (is_done == 0) {
        assert_int_equal(0, plugin_test(plugin, request, &is_done, &len));
        check_deadline(start, "a request");
    }
    return len;
}

void pair_wait_both(const struct plugin *plugin, void *send, void *recv, int *len_p)
{
    int is_sent = 0, is_received = 0;
    double start = now_s();
    while (is_sent == 0 || is_received == 0) {
        if (is_sent == 0) {
            assert_int_equal(0, plugin_test(plugin, send, &is_sent, NULL));
        }
        if (is_received == 0) {
            assert_int_equal(0, plugin_test(plugin, recv, &is_received, len_p));
        }
        check_deadline(start, "a message");
    }
}

int pair_wait_failed(const struct plugin *plugin, void *request)
{
    int is_done = 0, result = 0;
    double start = now_s();
    while (result == 0) {
        result = plugin_test(plugin, request, &is_done, NULL);
        assert_int_equal(0, is_done);
        check_deadline(start, "failing");
    }
    return result;
}

void pair_move(const struct plugin *plugin, const struct pair *pair, size_t len)
{
    char *out = malloc(len + 1), *in = malloc(len + 2);
    int got = -1;
    if (out == NULL || in == NULL) {
        abort();
    }
    pattern_fill(out, len, (unsigned)len);
    memset(in, 0x55, len + 2);
    void *recv = pair_recv(plugin, pair, in + 1, len);
    void *send = pair_send(plugin, pair, out, len);
    pair_wait_both(plugin, send, recv, &got);
    assert_int_equal(len, got);
    assert_true(pattern_is(in + 1, len, (unsigned)len));
    assert_true(in[0] == 0x55 && in[len + 1] == 0x55);
    free(out);
    free(in);
}

/* ---- two processes ---- */

struct board *board_open(void)
{
    struct board *board =
        mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(MAP_FAILED, board);
    return board;
}

void board_close(struct board *board)
{
    munmap(board, sizeof(*board));
}

void meet_peer(const struct plugin *plugin, struct board *board, bool is_sender, void **comm_p)
{
    void *listener = NULL;
    double start = now_s();
    *comm_p = NULL;
    if (!is_sender) {
        assert_int_equal(0, plugin_listen(plugin, board->handle, &listener));
        board->is_listening = 1;
    }
    while (*comm_p == NULL) {
        if (!is_sender) {
            assert_int_equal(0, plugin_accept(plugin, listener, comm_p));
        } else if (board->is_listening) {
            assert_int_equal(0, plugin_connect(plugin, board->handle, comm_p));
        }
        assert_true(now_s() - start < PLUGIN_DEADLINE_S);
        sched_yield();
    }
    if (listener != NULL) {
        plugin_close_listen(plugin, listener);
    }
    board->is_connected++;
}

/* ---- connections ---- */

/* The latest first: that end of a connection which was accepted, with what it has not read. */
int for_connections(bool (*call)(int fd), int most)
{
    int count = 0;
    for (int fd = 1023; fd >= 0 && count < most; fd--) {
        struct sockaddr_storage addr = {0};
        socklen_t len = sizeof(addr);
        if (getpeername(fd, (struct sockaddr *)&addr, &len) == 0 && addr.ss_family == AF_INET) {
            count += call(fd);
        }
    }
    return count;
}

static bool reset(int fd)
{
    const struct sockaddr nowhere = {.sa_family = AF_UNSPEC};
    return syscall(SYS_connect, fd, &nowhere, sizeof(nowhere)) == 0; /* unseen by sanitizers */
}

void reset_lanes(int most)
{
    double start = now_s();
    while (for_connections(reset, most) == 0) {
        check_deadline(start, "resetting a lane");
    }
}

/* ---- bytes and counts ---- */

static uint64_t mix(uint64_t at, unsigned seed)
{
    uint64_t value = (at + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ (uint64_t)seed << 32;
    return value ^ value >> 29;
}

void pattern_fill(void *data, size_t len, unsigned seed)
{
    char *bytes = data;
    for (size_t i = 0; i < len; i += 8) {
        uint64_t value = mix(i / 8, seed);
        memcpy(bytes + i, &value, len - i < 8 ? len - i : 8);
    }
}

bool pattern_is(const void *data, size_t len, unsigned seed)
{
    const char *bytes = data;
    for (size_t i = 0; i < len; i += 8) {
        uint64_t value = mix(i / 8, seed);
        if (memcmp(bytes + i, &value, len - i < 8 ? len - i : 8) != 0) {
            print_message("wrong at byte %zu of %zu\n", i, len);
            return false;
        }
    }
    return true;
}

static unsigned count_entries(const char *path)
{
    DIR *folder = opendir(path);
    unsigned count = 0;
    while (folder != NULL && readdir(folder) != NULL) {
        count++;
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return count;
}

unsigned count_fds(void)
{
    return count_entries("/proc/self/fd");
}

unsigned count_threads(void)
{
    return count_entries("/proc/self/task");
}

void await_threads(unsigned most)
{
    double start = now_s();
    while (count_threads() > most) {
        check_deadline(start, "a thread's end");
    }
}
