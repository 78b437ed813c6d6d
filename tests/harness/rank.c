/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rank's side: runs the function between two countings of what the process holds. It ends by
 * _exit(), because the parent's atexit handlers and cmocka's state are not this process's to run.
 */
#include "harness/private.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

/* How long a joined thread may still be seen in /proc: the kernel wakes the joiner a little before
 * it takes the entry away. Real leaks stay. */
#define SETTLE_MS 500

/* _exit() skips the leak sanitizer's own check; there in sanitizer builds only. */
extern int __lsan_do_recoverable_leak_check(void) __attribute__((weak));

static unsigned count_entries(const char *folder)
{
    unsigned count = 0;
    DIR *dir = opendir(folder);
    if (dir == NULL) {
        return 0;
    }
    while (readdir(dir) != NULL) {
        count++;
    }
    closedir(dir);
    return count - 2; /* "." and ".." */
}

unsigned harness_count_fds(void)
{
    return count_entries("/proc/self/fd") - 1; /* the folder's own */
}

static unsigned count_shared_maps(void)
{
    char line[512], perms[8];
    unsigned count = 0;
    FILE *maps = fopen("/proc/self/maps", "re");
    if (maps == NULL) {
        return 0;
    }
    while (fgets(line, sizeof(line), maps) != NULL) {
        bool is_shared = sscanf(line, "%*s %7s", perms) == 1 && perms[3] == 's';
        if (is_shared || strstr(line, "/memfd:") != NULL || strstr(line, "/dev/shm/") != NULL) {
            count++;
        }
    }
    fclose(maps);
    return count;
}

void harness_count(struct harness_holdings *holdings_p)
{
    holdings_p->fds = harness_count_fds();
    holdings_p->threads = count_entries("/proc/self/task");
    holdings_p->shared_maps = count_shared_maps();
}

int harness_say(struct harness_shared *shared, int rank, int status, const char *fmt, ...)
{
    struct harness_map *map = (struct harness_map *)(void *)shared;
    va_list args;
    va_start(args, fmt);
    vsnprintf(map->result[rank].text, HARNESS_TEXT_LEN, fmt, args);
    va_end(args);
    return status;
}

static void run_rank(struct harness *harness, int rank)
{
    struct harness_result *result = &harness->map->result[rank];
    result->begin_ns = harness_now_ns();
    result->status = harness->fn(rank, &harness->map->shared, harness->arg);
    result->end_ns = harness_now_ns();
    result->is_returned = true;
}

struct thread {
    struct harness *harness;
    int rank;
    pthread_t id;
};

static void *run_thread(void *arg)
{
    struct thread *thread = arg;
    run_rank(thread->harness, thread->rank);
    return NULL;
}

static void run_threads(struct harness *harness)
{
    struct thread *threads = calloc((size_t)harness->ranks, sizeof(threads[0]));
    if (threads == NULL) {
        _exit(1);
    }
    for (int rank = 0; rank < harness->ranks; rank++) {
        threads[rank].harness = harness;
        threads[rank].rank = rank;
        if (pthread_create(&threads[rank].id, NULL, run_thread, &threads[rank]) != 0) {
            _exit(1); /* the ranks before it would wait for it */
        }
    }
    for (int rank = 0; rank < harness->ranks; rank++) {
        pthread_join(threads[rank].id, NULL);
    }
    free(threads);
}

struct settling {
    struct harness_holdings before, after;
};

static bool is_settled(void *arg)
{
    struct settling *settling = arg;
    harness_count(&settling->after);
    return settling->after.fds <= settling->before.fds &&
           settling->after.threads <= settling->before.threads &&
           settling->after.shared_maps <= settling->before.shared_maps;
}

/* Ranks that are threads share one process: each gets its numbers. */
static void keep_holdings(struct harness *harness, int rank, const struct settling *settling,
                          bool has_lost_memory)
{
    int first = rank < 0 ? 0 : rank, end = rank < 0 ? harness->ranks : rank + 1;
    for (int i = first; i < end; i++) {
        harness->map->result[i].before = settling->before;
        harness->map->result[i].after = settling->after;
        harness->map->result[i].has_lost_memory = has_lost_memory;
    }
}

#if defined(__SANITIZE_THREAD__)
#define HAS_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HAS_THREAD_SANITIZER 1
#endif
#endif

#ifdef HAS_THREAD_SANITIZER
static void *tell_tid(void *arg)
{
    *(pid_t *)arg = gettid();
    return NULL;
}

static bool is_thread_gone(void *arg)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/task/%d", (int)*(pid_t *)arg);
    return access(path, F_OK) != 0;
}

/* The sanitizer starts a helper thread of its own with the first thread of a forked process; it
 * must be there before the first counting, or it would pass for a leak. */
static void start_helpers(void)
{
    pthread_t id;
    pid_t tid = 0;
    if (pthread_create(&id, NULL, tell_tid, &tid) == 0) {
        pthread_join(id, NULL);
        harness_wait_until(is_thread_gone, &tid, SETTLE_MS);
    }
}
#else
static void start_helpers(void)
{
}
#endif

/* cmocka's handlers would run the rest of the test again, in the rank. */
static void forget_handlers(void)
{
    static const int deadly[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    for (size_t i = 0; i < sizeof(deadly) / sizeof(deadly[0]); i++) {
        signal(deadly[i], SIG_DFL);
    }
}

_Noreturn void harness_be_rank(struct harness *harness, int rank, pid_t parent)
{
    struct settling settling;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(1); /* it died before we could ask to die with it */
    }
    forget_handlers();
    start_helpers();
    harness_count(&settling.before);
    if (rank < 0) {
        run_threads(harness);
    } else {
        run_rank(harness, rank);
    }
    harness_wait_until(is_settled, &settling, SETTLE_MS);
    bool has_lost_memory =
        __lsan_do_recoverable_leak_check != NULL && __lsan_do_recoverable_leak_check() != 0;
    keep_holdings(harness, rank, &settling, has_lost_memory);
    fflush(stdout);
    fflush(stderr);
    _exit(0);
}
