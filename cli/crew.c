/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The crew of a benchmark. Two rules shape it. Nothing but the ranks may use the CPU while a clock
 * runs: ranks that wait sleep on a futex, the parent looks ten times a second. And a benchmark
 * never hangs: the first failure, death or standstill kills the whole crew and is reported with its
 * rank.
 */
#include "crew.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"

#define LOOK_EVERY_MS 100

enum { NOBODY = -1 };

/* One cache line each: ranks write theirs while others are timed. */
struct crew_rank {
    _Alignas(64) _Atomic uint64_t steps;
    _Atomic(const char *) doing; /* a constant of the program, so the parent can read it too */
    _Atomic bool is_waiting;     /* in a barrier: not the one to blame for a standstill */
    _Atomic bool is_finished;    /* its body returned */
    pid_t pid;                   /* the parent's; 0: none, or reaped */
};

struct crew_shared {
    _Alignas(64) _Atomic uint32_t arrived;
    _Alignas(64) _Atomic uint32_t
        generation;                  /* the futex: grows when a barrier opens or a rank fails */
    _Alignas(64) _Atomic int failed; /* first rank that failed, or NOBODY */
    _Atomic bool is_told;            /* text is complete */
    char text[WEFT_CREW_TEXT_LEN];
    struct crew_rank rank[];
};

struct weft_crew {
    struct weft_crew_spec spec;
    size_t map_len;
    struct crew_shared *shared; /* owned mapping */
    void *user;                 /* behind shared, in the same mapping */
    int self;                   /* which rank this process is; NOBODY: the parent */
};

static size_t round_up(size_t value, size_t unit)
{
    return (value + unit - 1) / unit * unit;
}

struct weft_crew *weft_crew_open(const struct weft_crew_spec *spec)
{
    struct weft_crew *crew = calloc(1, sizeof(*crew));
    if (crew == NULL) {
        return NULL;
    }
    size_t head_len =
        round_up(sizeof(struct crew_shared) + (size_t)spec->ranks * sizeof(struct crew_rank), 4096);
    crew->spec = *spec;
    crew->self = NOBODY;
    crew->map_len = head_len + round_up(spec->shared_len, 4096);
    void *map =
        mmap(NULL, crew->map_len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) {
        free(crew);
        return NULL;
    }
    crew->shared = map;
    crew->user = (char *)map + head_len;
    atomic_init(&crew->shared->failed, NOBODY);
    return crew;
}

static void kill_all(struct weft_crew *crew)
{
    for (int rank = 0; rank < crew->spec.ranks; rank++) {
        if (crew->shared->rank[rank].pid > 0) {
            kill(crew->shared->rank[rank].pid, SIGKILL);
        }
    }
    for (int rank = 0; rank < crew->spec.ranks; rank++) {
        struct crew_rank *slot = &crew->shared->rank[rank];
        while (slot->pid > 0 && waitpid(slot->pid, NULL, 0) < 0 && errno == EINTR) {
        }
        slot->pid = 0;
    }
}

void weft_crew_close(struct weft_crew *crew)
{
    if (crew == NULL) {
        return;
    }
    kill_all(crew);
    munmap(crew->shared, crew->map_len);
    free(crew);
}

int weft_crew_ranks(const struct weft_crew *crew)
{
    return crew->spec.ranks;
}

void *weft_crew_shared(struct weft_crew *crew)
{
    return crew->user;
}

/* ---- ranks ---- */

static void open_the_gate(struct crew_shared *shared)
{
    atomic_fetch_add(&shared->generation, 1);
    syscall(SYS_futex, &shared->generation, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

bool weft_crew_barrier(struct weft_crew *crew)
{
    struct crew_shared *shared = crew->shared;
    struct crew_rank *slot = &shared->rank[crew->self];
    uint32_t generation = atomic_load(&shared->generation);
    if (atomic_load(&shared->failed) != NOBODY) {
        return false;
    }
    if (atomic_fetch_add(&shared->arrived, 1) + 1 == (uint32_t)crew->spec.ranks) {
        atomic_store(&shared->arrived, 0);
        open_the_gate(shared);
        return true;
    }
    atomic_store_explicit(&slot->is_waiting, true, memory_order_relaxed);
    while (atomic_load(&shared->generation) == generation) {
        syscall(SYS_futex, &shared->generation, FUTEX_WAIT, generation, NULL, NULL, 0);
    }
    atomic_store_explicit(&slot->is_waiting, false, memory_order_relaxed);
    return atomic_load(&shared->failed) == NOBODY;
}

void weft_crew_step(struct weft_crew *crew, const char *what)
{
    struct crew_rank *slot = &crew->shared->rank[crew->self];
    atomic_store_explicit(&slot->doing, what, memory_order_relaxed);
    atomic_fetch_add_explicit(&slot->steps, 1, memory_order_relaxed);
}

static void fail_rank(struct weft_crew *crew, int rank, const char *text)
{
    struct crew_shared *shared = crew->shared;
    int nobody = NOBODY;
    if (atomic_compare_exchange_strong(&shared->failed, &nobody, rank)) {
        snprintf(shared->text, sizeof(shared->text), "%s", text);
        atomic_store(&shared->is_told, true);
        open_the_gate(shared);
    }
}

bool weft_crew_fail(struct weft_crew *crew, const char *fmt, ...)
{
    char text[WEFT_CREW_TEXT_LEN];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    fail_rank(crew, crew->self, text);
    return false;
}

static _Noreturn void be_rank(struct weft_crew *crew, int rank, pid_t parent, const sigset_t *mask)
{
    crew->self = rank;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(1); /* it died before we could ask to die with it */
    }
    sigprocmask(SIG_SETMASK, mask, NULL);
    bool is_fine = crew->spec.body(crew, rank, crew->spec.context);
    if (!is_fine) {
        weft_crew_fail(crew, "gave up without saying why");
    }
    atomic_store(&crew->shared->rank[rank].is_finished, true);
    fflush(stderr);
    _exit(is_fine ? 0 : 1);
}

/* ---- the parent ---- */

static bool blame(struct weft_crew *crew, int rank, const char *fmt, ...) WEFT_PRINTF(3, 4);
static bool blame(struct weft_crew *crew, int rank, const char *fmt, ...)
{
    char text[WEFT_CREW_TEXT_LEN];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    fail_rank(crew, rank, text);
    return false;
}

static const char *doing_what(const struct weft_crew *crew, int rank)
{
    const char *doing = atomic_load(&crew->shared->rank[rank].doing);
    return doing != NULL ? doing : "its first steps";
}

static bool fork_all(struct weft_crew *crew, const sigset_t *mask)
{
    pid_t parent = getpid();
    fflush(NULL);
    for (int rank = 0; rank < crew->spec.ranks; rank++) {
        pid_t pid = fork();
        if (pid == 0) {
            be_rank(crew, rank, parent, mask);
        }
        if (pid < 0) {
            return blame(crew, rank, "could not be forked: %s", strerror(errno));
        }
        crew->shared->rank[rank].pid = pid;
    }
    return true;
}

/* Collects who has ended; returns how many still run. A bad end is a failure of that rank. */
static int reap(struct weft_crew *crew)
{
    int running = 0;
    for (int rank = 0; rank < crew->spec.ranks; rank++) {
        struct crew_rank *slot = &crew->shared->rank[rank];
        int wait_status = 0;
        if (slot->pid == 0) {
            continue;
        }
        if (waitpid(slot->pid, &wait_status, WNOHANG) != slot->pid) {
            running++;
            continue;
        }
        slot->pid = 0;
        int code = WEXITSTATUS(wait_status);
        if (WIFSIGNALED(wait_status)) {
            int number = WTERMSIG(wait_status);
            blame(crew, rank, "died of signal %d (%s) during %s", number, strsignal(number),
                  doing_what(crew, rank));
        } else if (code != 0 || !atomic_load(&slot->is_finished)) {
            blame(crew, rank, "exited with status %d during %s", code, doing_what(crew, rank));
        }
    }
    return running;
}

static uint64_t total_steps(const struct weft_crew *crew, uint64_t *least_p)
{
    uint64_t total = 0, least = UINT64_MAX;
    for (int rank = 0; rank < crew->spec.ranks; rank++) {
        uint64_t steps = atomic_load(&crew->shared->rank[rank].steps);
        total += steps;
        least = steps < least ? steps : least;
    }
    *least_p = least;
    return total;
}

/* The first rank that the others wait for. */
static bool blame_standstill(struct weft_crew *crew)
{
    int ranks = crew->spec.ranks, late = 0, rank = ranks - 1;
    for (int i = ranks - 1; i >= 0; i--) {
        const struct crew_rank *slot = &crew->shared->rank[i];
        if (slot->pid != 0 && !atomic_load(&slot->is_waiting)) {
            rank = i;
            late++;
        }
    }
    return blame(crew, rank, "stands still in %s, with %d of the other ranks (for %.1f s now)",
                 doing_what(crew, rank), late > 0 ? late - 1 : 0, crew->spec.stall_ms / 1e3);
}

/* Until all have ended, one has failed or nothing moves any more. SIGCHLD is blocked. */
static bool supervise(struct weft_crew *crew, weft_crew_progress_fn progress, void *context)
{
    const struct timespec tick = {.tv_nsec = LOOK_EVERY_MS * 1000000L};
    sigset_t child_ended;
    sigemptyset(&child_ended);
    sigaddset(&child_ended, SIGCHLD);
    uint64_t seen = 0, moved_at_ns = weft_clock_ns();
    while (reap(crew) > 0 && atomic_load(&crew->shared->failed) == NOBODY) {
        uint64_t least = 0;
        uint64_t now = total_steps(crew, &least);
        if (now != seen) {
            seen = now;
            moved_at_ns = weft_clock_ns();
        } else if (weft_clock_ns() - moved_at_ns > crew->spec.stall_ms * WEFT_NS_PER_MS) {
            return blame_standstill(crew);
        }
        if (progress != NULL) {
            progress(least, context);
        }
        sigtimedwait(&child_ended, NULL, &tick);
    }
    return atomic_load(&crew->shared->failed) == NOBODY;
}

/* A rank that claimed the failure may still be writing its sentence. */
static void wait_for_text(const struct weft_crew *crew)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    uint64_t deadline_ns = weft_clock_after_ms(1000);
    while (!atomic_load(&crew->shared->is_told) && weft_clock_ns() < deadline_ns) {
        nanosleep(&pause, NULL);
    }
}

bool weft_crew_run(struct weft_crew *crew, weft_crew_progress_fn progress, void *context, char *why)
{
    sigset_t child_ended, mask;
    sigemptyset(&child_ended);
    sigaddset(&child_ended, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child_ended, &mask);

    bool is_fine = fork_all(crew, &mask) && supervise(crew, progress, context);
    if (!is_fine) {
        wait_for_text(crew);
        snprintf(why, WEFT_CREW_TEXT_LEN, "rank %d of %d: %.*s", atomic_load(&crew->shared->failed),
                 crew->spec.ranks, WEFT_CREW_TEXT_LEN - 48, crew->shared->text);
    }
    kill_all(crew);
    sigprocmask(SIG_SETMASK, &mask, NULL);
    return is_fine;
}
