/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank of the nemesis (nemesis.py): works without end on operations that follow from a seed, checks every result and
 * the time of every call, and tells what happens in lines of JSON on stdout. Times are of the monotonic clock.
 *
 *     NEMESIS_SEED=7 NEMESIS_TIMEOUT_MS=8000 net.nemesis_program       and what a launcher says
 *
 *   started, works   the job is there; so is a team of so many ranks, whose numbers in the job are told
 *   beat             four times a second: operations and calls so far, the call it is in and since when
 *   wrong, late      a result was; a call took longer than its deadline and a margin
 *   failed           a call did: its status and words, and what ended the communicator
 *   shrunk           it goes on with those who are left: works follows
 *   closed           with what this process holds now beside what it held before the start
 *
 * NEMESIS_PLANT plants a mistake. NEMESIS_LEASH is a pipe: a child that this rank forks sleeps until its other end is closed. Words on stdin: `stop` ends the work, on all ranks after the same operation; `other` makes this rank's next collective one that
 * nobody else makes; `abort` aborts, from a thread of its own; `leave` closes without a word; `timeout MS` is
 * for the next operations. After a failure: `shrink` or `end`.
 */
#include "nemesis.h"

#include <malloc.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "harness/harness.h"

#define BEAT_MS 250
#define MARGIN_NS UINT64_C(2000000000) /* for a verdict, and for machines that others use too */
#define VERDICT_NS UINT64_C(1500000000)
#define SETTLE_NS UINT64_C(500000000)
#define AGREE_EVERY 16
#define PATIENCE_NS UINT64_C(200000000)
#define SHRINKS_MAX 16
#define CHILD_S 30 /* of the one that is planted: longer than a job */

/* Written by the thread that reads stdin. */
static struct {
    _Atomic bool wants_stop, wants_other, wants_leave, wants_shrink, wants_end;
    _Atomic uint32_t timeout_ms;
    pthread_mutex_t lock; /* of comm: it is not closed while it is aborted */
    weft_comm_t comm;     /* lent; NULL: there is none to abort */
} orders = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct rank self;

/* The leak sanitizer's own check, in builds that have it: we end by _exit(). */
extern int __lsan_do_recoverable_leak_check(void) __attribute__((weak));

/* ---- words ---- */

uint64_t nemesis_now_ns(void)
{
    return harness_now_ns();
}

void nemesis_pause_us(unsigned us)
{
    const struct timespec pause = {.tv_nsec = (long)us * 1000};
    nanosleep(&pause, NULL);
}

void nemesis_tell(const char *event, const char *text, const char *fmt, ...)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    va_list list;
    pthread_mutex_lock(&lock);
    printf("{\"event\": \"%s\", \"time\": %.6f, ", event, (double)nemesis_now_ns() / 1e9);
    va_start(list, fmt);
    vprintf(fmt, list);
    va_end(list);
    printf("%s\"text\": \"", fmt[0] != '\0' ? ", " : "");
    for (const char *at = text; *at != '\0'; at++) {
        putchar((unsigned char)*at < 0x20 || *at == '"' || *at == '\\' ? '?' : *at);
    }
    printf("\"}\n");
    fflush(stdout);
    pthread_mutex_unlock(&lock);
}

void nemesis_calls(struct rank *rank, const char *call)
{
    atomic_store(&rank->doing.since_ns, nemesis_now_ns());
    atomic_store(&rank->doing.call, call);
}

weft_status_t nemesis_returned(struct rank *rank, weft_status_t status)
{
    const char *call = atomic_exchange(&rank->doing.call, NULL);
    uint64_t begin_ns = atomic_load(&rank->doing.since_ns), took_ns = nemesis_now_ns() - begin_ns;
    atomic_fetch_add(&rank->doing.calls, 1);
    if (took_ns > rank->limit_ns + MARGIN_NS) {
        nemesis_tell("late", call, "\"op\": %llu, \"began\": %.6f, \"took\": %.6f",
                     (unsigned long long)rank->next, (double)begin_ns / 1e9, (double)took_ns / 1e9);
    }
    if (status != WEFT_OK && rank->failed == NULL) {
        rank->failed = call;
        rank->took_ns = took_ns;
        snprintf(rank->text, sizeof(rank->text), "%s", weft_error_text());
    }
    return status;
}

/* ---- orders ---- */

static void beat(void)
{
    const char *call = atomic_load(&self.doing.call);
    nemesis_tell("beat", call != NULL ? call : "",
                 "\"ops\": %llu, \"calls\": %llu, \"since\": %.6f",
                 (unsigned long long)atomic_load(&self.doing.ops),
                 (unsigned long long)atomic_load(&self.doing.calls),
                 (double)atomic_load(&self.doing.since_ns) / 1e9);
}

static void abort_comm(void)
{
    pthread_mutex_lock(&orders.lock);
    if (orders.comm != NULL) {
        weft_abort(orders.comm, "the nemesis says so");
    }
    pthread_mutex_unlock(&orders.lock);
}

static void obey(char *word)
{
    static const struct {
        const char *word;
        _Atomic bool *flag;
    } flags[] = {{"stop", &orders.wants_stop},
                 {"other", &orders.wants_other},
                 {"leave", &orders.wants_leave},
                 {"shrink", &orders.wants_shrink},
                 {"end", &orders.wants_end}};
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
        if (strcmp(word, flags[i].word) == 0) {
            atomic_store(flags[i].flag, true);
        }
    }
    if (strcmp(word, "abort") == 0) {
        abort_comm();
    } else if (strncmp(word, "timeout ", 8) == 0) {
        atomic_store(&orders.timeout_ms, (uint32_t)strtoul(word + 8, NULL, 10));
    }
}

static void *read_orders(void *arg)
{
    char line[256];
    size_t used = 0;
    ssize_t got;
    (void)arg;
    for (;;) {
        struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
        if (poll(&input, 1, BEAT_MS) == 0) {
            beat();
            continue;
        }
        got = read(STDIN_FILENO, line + used, 1);
        if (got <= 0) {
            exit(3); /* whoever conducts is gone */
        }
        if (line[used] == '\n' || used + 2 == sizeof(line)) {
            line[used] = '\0';
            obey(line);
            used = 0;
        } else {
            used++;
        }
    }
    return NULL;
}

static void set_comm(weft_comm_t comm)
{
    pthread_mutex_lock(&orders.lock);
    orders.comm = comm;
    pthread_mutex_unlock(&orders.lock);
}

/* ---- work ---- */

/* Until a call fails, a result is wrong, or it is over: WEFT_OK. */
static weft_status_t work(struct team *team, bool *is_over_p)
{
    weft_status_t status = WEFT_OK;
    *is_over_p = false;
    while (status == WEFT_OK && !self.is_wrong && !*is_over_p) {
        uint32_t timeout_ms = atomic_exchange(&orders.timeout_ms, 0);
        if (timeout_ms != 0) {
            weft_comm_set_timeout(team->comm, timeout_ms);
            self.limit_ns = timeout_ms * UINT64_C(1000000);
            nemesis_tell("timeout", "", "\"ms\": %u", timeout_ms);
        }
        if (self.plant == PLANT_LIE && self.next == 40) {
            weft_abort(team->comm, "without a reason");
        }
        if (self.next % AGREE_EVERY == 0 && atomic_load(&orders.wants_leave)) {
            *is_over_p =
                true; /* where everybody comes by: a receive from any rank waits for nobody */
        } else if (self.next % AGREE_EVERY == 0) {
            status = atomic_exchange(&orders.wants_other, false)
                         ? nemesis_differ(&self, team)
                         : nemesis_agree(&self, team, atomic_load(&orders.wants_stop), is_over_p);
            self.next += status == WEFT_OK;
        } else {
            status = nemesis_operate(&self, team);
        }
    }
    if (status == WEFT_OK && *is_over_p && !atomic_load(&orders.wants_leave)) {
        status = NEMESIS_CALL(&self, "barrier", weft_barrier(team->comm, NULL));
    }
    return status;
}

static bool is_ended(const struct team *team, weft_error_t *error_p)
{
    return weft_comm_get_error(team->comm, error_p) == WEFT_OK && error_p->status != WEFT_OK;
}

/* The verdict may come a little after the call has failed. Some failures are of a call only (a rank that has closed, a
 * part of the communicator that timed out): then nobody else may need what this rank cannot do, and waits for it. So it
 * does what a program must that cannot go on. */
static void await_end(const struct team *team, weft_error_t *error_p)
{
    uint64_t now_ns = nemesis_now_ns(), end_ns = now_ns + VERDICT_NS,
             abort_ns = now_ns + PATIENCE_NS;
    bool has_aborted = false;
    while (!is_ended(team, error_p) && now_ns < end_ns) {
        if (now_ns > abort_ns && !has_aborted) {
            has_aborted = true;
            weft_abort(team->comm, self.text);
        }
        nemesis_pause_us(1000);
        now_ns = nemesis_now_ns();
    }
}

static void tell_failure(const struct team *team, weft_status_t status)
{
    weft_error_t error = {.status = WEFT_OK};
    await_end(team, &error);
    nemesis_tell(
        "verdict", self.plant == PLANT_VERDICT ? "somebody did something" : error.text,
        "\"status\": \"%s\", \"blamed\": %d, \"number\": %u", weft_status_name(error.status),
        error.rank >= 0 && error.rank < team->ranks ? team->member[error.rank] : -1, error.verdict);
    nemesis_tell("failed", self.text,
                 "\"call\": \"%s\", \"op\": %llu, \"status\": \"%s\", \"took\": %.6f",
                 self.failed != NULL ? self.failed : "?", (unsigned long long)self.next,
                 weft_status_name(status), (double)self.took_ns / 1e9);
    self.failed = NULL;
}

static void tell_works(const struct team *team)
{
    char list[512] = "";
    size_t used = 0;
    for (int k = 0; k < team->ranks; k++) {
        used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%d", k > 0 ? "," : "",
                                 team->member[k]);
    }
    nemesis_tell("works", list, "\"left\": %d, \"me\": %d", team->ranks, team->me);
}

static bool await_word(void)
{
    while (!atomic_load(&orders.wants_shrink) && !atomic_load(&orders.wants_end)) {
        nemesis_pause_us(1000);
    }
    return atomic_exchange(&orders.wants_shrink, false);
}

static weft_status_t start_team(struct team *team)
{
    weft_status_t status;
    set_comm(team->comm);
    weft_comm_set_timeout(team->comm, (uint32_t)(self.limit_ns / 1000000));
    status = nemesis_team_open(&self, team);
    if (status == WEFT_OK) {
        tell_works(team);
    }
    return status;
}

/* Teams follow each other, each made by shrinking the one before; returns how many there are. */
static int go_on(struct team *teams, uint64_t limit_ns)
{
    int made = 1;
    for (;;) {
        struct team *team = &teams[made - 1];
        bool is_over = false;
        self.limit_ns = limit_ns;
        weft_status_t status = start_team(team);
        status = status == WEFT_OK ? work(team, &is_over) : status;
        if (status == WEFT_OK) {
            return made;
        }
        tell_failure(team, status);
        if (!await_word() || made == SHRINKS_MAX) {
            return made;
        }
        self.limit_ns = limit_ns;
        weft_comm_set_timeout(team->comm, (uint32_t)(limit_ns / 1000000));
        status = NEMESIS_CALL(&self, "shrink", weft_comm_shrink(team->comm, &teams[made].comm));
        if (status != WEFT_OK) {
            tell_failure(team, status);
            return made;
        }
        nemesis_tell("shrunk", "", "\"took\": %.6f",
                     (double)(nemesis_now_ns() - atomic_load(&self.doing.since_ns)) / 1e9);
        made++;
    }
}

/* ---- the process ---- */

/* A worker of a data loader: holds what a fork leaves it, and sleeps until the conductor lets go of the leash. */
static void fork_worker(int leash)
{
    if (leash >= 0 && fork() == 0) {
        struct pollfd end = {.fd = leash, .events = POLLIN};
        close(STDIN_FILENO);
        close(STDOUT_FILENO);
        close(STDERR_FILENO);
        alarm(600);
        while (poll(&end, 1, -1) < 0) {
        }
        _exit(0);
    }
}

/* A port on which a child listens for a while after this rank has ended; -1: it was not planted. */
static int plant_socket(void)
{
    const struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    const struct sockaddr_in old = {.sin_family = AF_INET,
                                    .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    if (fd < 0 || bind(fd, (const struct sockaddr *)&any, sizeof(any)) != 0) { /* without IPv6 */
        close(fd);
        fd = socket(AF_INET, SOCK_STREAM, 0);
        if (fd < 0 || bind(fd, (const struct sockaddr *)&old, sizeof(old)) != 0) {
            return -1;
        }
    }
    if (listen(fd, 1) == 0 && fork() == 0) {
        close(STDIN_FILENO);
        close(STDOUT_FILENO);
        close(STDERR_FILENO);
        alarm(CHILD_S);
        pause();
        _exit(0);
    }
    return fd;
}

static uint64_t number_of(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}

static enum plant find_plant(void)
{
    static const char *const names[] = {"", "wrong", "leak", "lie", "verdict", "socket"};
    const char *name = getenv("NEMESIS_PLANT");
    for (unsigned i = 1; name != NULL && self.number == 3 && i < sizeof(names) / sizeof(names[0]);
         i++) {
        if (strcmp(name, names[i]) == 0) {
            return (enum plant)i;
        }
    }
    return PLANT_NOTHING;
}

static weft_status_t close_all(struct team *teams, int made)
{
    weft_status_t status = WEFT_OK;
    set_comm(NULL);
    while (made > 0) {
        nemesis_team_close(&teams[--made]);
        weft_status_t end = NEMESIS_CALL(&self, "close", weft_comm_close(teams[made].comm));
        status = status != WEFT_OK ? status : end;
    }
    return status;
}

/* The kernel shows a thread that was joined a little longer. */
static void count_after(const struct harness_holdings *before, struct harness_holdings *after_p)
{
    uint64_t end_ns = nemesis_now_ns() + SETTLE_NS;
    harness_count(after_p);
    while (after_p->threads > before->threads && nemesis_now_ns() < end_ns) {
        nemesis_pause_us(1000);
        harness_count(after_p);
    }
}

static void tell_closed(weft_status_t status, const struct harness_holdings *before, size_t heap)
{
    struct harness_holdings after;
    bool is_lost =
        __lsan_do_recoverable_leak_check != NULL && __lsan_do_recoverable_leak_check() != 0;
    count_after(before, &after);
    nemesis_tell("closed", status == WEFT_OK ? "" : weft_error_text(),
                 "\"status\": \"%s\", \"fds\": %d, \"threads\": %d, \"maps\": %d, \"heap\": %lld, "
                 "\"lost\": %d, \"calls\": %llu",
                 weft_status_name(status), (int)after.fds - (int)before->fds,
                 (int)after.threads - (int)before->threads,
                 (int)after.shared_maps - (int)before->shared_maps,
                 (long long)mallinfo2().uordblks - (long long)heap, is_lost,
                 (unsigned long long)atomic_load(&self.doing.calls));
}

static int run(void)
{
    static struct team teams[SHRINKS_MAX];
    uint64_t limit_ns = number_of("NEMESIS_TIMEOUT_MS", 8000) * UINT64_C(1000000);
    struct harness_holdings before;
    size_t heap = mallinfo2().uordblks;
    harness_count(&before);
    weft_status_t status = weft_init(NULL, &teams[0].comm);
    if (status != WEFT_OK || weft_comm_rank(teams[0].comm, &self.number) != WEFT_OK) {
        nemesis_tell("failed", weft_error_text(), "\"call\": \"start\", \"status\": \"%s\"",
                     weft_status_name(status));
        return 1;
    }
    nemesis_tell("started", "", "\"pid\": %d", (int)getpid());
    fork_worker((int)number_of("NEMESIS_LEASH", UINT64_MAX));
    self.seed = number_of("NEMESIS_SEED", 1);
    self.plant = find_plant();
    if (self.plant == PLANT_LEAK && dup(STDERR_FILENO) < 0) {
        return 1;
    }
    int planted = self.plant == PLANT_SOCKET ? plant_socket() : -1;
    status = close_all(teams, go_on(teams, limit_ns));
    if (planted >= 0) {
        close(planted);
    }
    tell_closed(status, &before, heap);
    return self.is_wrong ? 1 : 0;
}

int main(void)
{
    pthread_t reader;
    self.in = calloc(1, BUFFER_LEN);
    self.out = calloc(1, BUFFER_LEN);
    if (self.in == NULL || self.out == NULL ||
        pthread_create(&reader, NULL, read_orders, NULL) != 0) {
        return 1;
    }
    int code = run();
    fflush(stdout);
    _exit(code); /* the reader still reads */
}
