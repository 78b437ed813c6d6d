/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base: what every room stands on. Status and error texts, log, params, clock, arenas, queues,
 * histograms, the register of our descriptors, memory for secrets. Knows no other room.
 */
#ifndef WEFT_BASE_H
#define WEFT_BASE_H

#include "weft/weft.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WEFT_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))
#define WEFT_COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define WEFT_CONTAINER_OF(ptr, type, member)                                                       \
    ((type *)(void *)((char *)(ptr)-offsetof(type, member)))
#define WEFT_ERROR_TEXT_LEN 512

/* ---- status (status.c) ---- */

/* Records the calling thread's error text and returns status, so that the place that decides an
 * error is one line: `return weft_fail(WEFT_ERR_PEER, "rank %d …", rank);`. Logged at info. */
#define weft_fail(status, ...)                                                                     \
    __extension__({                                                                                \
        weft_status_t failed_ = (status);                                                          \
        weft_fail_record(failed_, __VA_ARGS__);                                                    \
        failed_; /* seen by the compiler, which then knows that it is not WEFT_OK */               \
    })
void weft_fail_record(weft_status_t status, const char *fmt, ...) WEFT_PRINTF(2, 3);

/* The same for a failed system call: appends strerror(errno), and for EMFILE/ENFILE the limit in
 * force and how to raise it. Returns ERR_MEMORY for ENOMEM, else ERR_SYSTEM. */
weft_status_t weft_fail_errno(const char *fmt, ...) WEFT_PRINTF(1, 2);

/* ---- log (log.c) ---- */

/* clang-format off */
#define WEFT_LOG_ROOMS(X)                                                                          \
    X(base) X(watch) X(mem) X(wire) X(topo) X(engine) X(net) X(control) X(lane) X(link) X(p2p)     \
    X(comm) X(api) X(cli)
/* clang-format on */

enum weft_log_room {
#define WEFT_LOG_ROOM_ENUM(name) WEFT_ROOM_##name,
    WEFT_LOG_ROOMS(WEFT_LOG_ROOM_ENUM)
#undef WEFT_LOG_ROOM_ENUM
        WEFT_ROOM_COUNT
};

enum weft_log_level {
    WEFT_LOG_OFF,
    WEFT_LOG_ERROR,
    WEFT_LOG_WARN,
    WEFT_LOG_INFO,
    WEFT_LOG_DEBUG,
    WEFT_LOG_TRACE,
};

/* "warn", or per room: "net:debug,control:info,error" (a bare level is for the others).
 * ERR_INVALID names the word that is not understood; then nothing changes. */
weft_status_t weft_log_configure(const char *spec);
void weft_log_set_rank(int rank); /* shown in every line once known; -1: unknown; per thread */
bool weft_log_is_on(enum weft_log_room room, enum weft_log_level level);
void weft_log_write(enum weft_log_room room, enum weft_log_level level, const char *fmt, ...)
    WEFT_PRINTF(3, 4);
/* Where lines go instead of stderr, without the newline, by any thread; NULL: stderr. For those who live in
 * somebody else's process and log as it does. */
void weft_log_set_sink(void (*sink)(enum weft_log_level level, const char *line));
/* Control characters become '?': what a stranger sent must not steer a terminal or forge a line.
 * Error texts and log lines pass through it. */
void weft_text_clean(char *text);

/* One line to stderr in one write, "weft net warn [rank 3]: text". */
#define weft_log(room, level, ...)                                                                 \
    do {                                                                                           \
        if (weft_log_is_on(WEFT_ROOM_##room, WEFT_LOG_##level)) {                                  \
            weft_log_write(WEFT_ROOM_##room, WEFT_LOG_##level, __VA_ARGS__);                       \
        }                                                                                          \
    } while (0)

/* For what strangers can provoke: one line per second; says how many were held back since.
 * A limiter is a static, zero-initialised; any thread. */
struct weft_log_limiter {
    _Atomic uint64_t next_ns;
    _Atomic uint32_t held_back;
};
/* true: print now; *held_back_p is how many lines were swallowed before this one */
bool weft_log_limit(struct weft_log_limiter *limiter, uint64_t now_ns, uint32_t *held_back_p);

/* ---- params (params.c, params_compare.c, params_profile.c, values.c, params_table.h) ---- */

enum weft_param_type {
    WEFT_PARAM_INT,
    WEFT_PARAM_SIZE,     /* K, M, G: binary */
    WEFT_PARAM_DURATION, /* kept in ms; "250ms", "5s", "2min"; a bare number is seconds */
    WEFT_PARAM_CHOICE,   /* one of a list */
    WEFT_PARAM_TEXT,
};

/* X(ID, "WEFT_ENV", TYPE, "default", min, max, agreed, "choices", "one sentence")
 * agreed: all ranks must have the same value; compared at create. */
#include "base/params_table.h"

enum weft_param {
#define WEFT_PARAM_ENUM(id, env, type, def, min, max, agreed, choices, sentence) WEFT_PARAM_##id,
    WEFT_PARAMS(WEFT_PARAM_ENUM)
#undef WEFT_PARAM_ENUM
        WEFT_PARAM_COUNT
};

#define WEFT_PARAM_TEXT_LEN 256

enum weft_param_origin {
    WEFT_ORIGIN_DEFAULT,
    WEFT_ORIGIN_PROFILE,
    WEFT_ORIGIN_ENV,
    WEFT_ORIGIN_CONFIG,
};

struct weft_param_info {
    const char *env;
    enum weft_param_type type;
    const char *fallback;
    int64_t min, max; /* of numbers; of TEXT: length */
    bool is_agreed;
    const char *choices; /* "auto|direct|local"; a CHOICE's value is the index into it */
    const char *sentence;
};
const struct weft_param_info *weft_param_info(enum weft_param param);

/* One reading of all settings. A communicator keeps its own: ranks in threads may differ. */
struct weft_params {
    int64_t number[WEFT_PARAM_COUNT]; /* also the index of a CHOICE */
    char text[WEFT_PARAM_COUNT][WEFT_PARAM_TEXT_LEN];
    enum weft_param_origin origin[WEFT_PARAM_COUNT];
};

/* Reads defaults, the profile (params_profile.c) and the environment. ERR_INVALID: "WEFT_HEARTBEAT=abc: expected a duration between
 * 10ms and 60s". Warns once per process about each unknown WEFT_… variable, with the nearest name.
 * Applies WEFT_LOG. */
weft_status_t weft_params_load(struct weft_params *params_p);
/* Overrides one, checked the same way (origin CONFIG). */
weft_status_t weft_params_set(struct weft_params *params, enum weft_param param, const char *value);
/* The value as a person would write it ("250ms", "512K"), into WEFT_PARAM_TEXT_LEN bytes. */
void weft_params_print(const struct weft_params *params, enum weft_param param, char *text);
/* Agreed settings that differ from their defaults, "WEFT_A=1;WEFT_B=2" in table order, usually "".
 * ERR_INVALID if it does not fit. */
weft_status_t weft_params_agreed(const struct weft_params *params, char *text, size_t room);
/* First entry in which two such texts differ, as two printable values ("the default" included):
 * fills name and both values (WEFT_PARAM_TEXT_LEN each); false when equal. */
bool weft_params_differ(const char *mine, const char *theirs, char *name, char *mine_value,
                        char *theirs_value);
/* A number of type INT, SIZE or DURATION as people write it; false: it is none. The command line
 * reads its own sizes and times with it too. */
bool weft_value_parse(enum weft_param_type type, const char *text, int64_t *number_p);
void weft_value_print(enum weft_param_type type, int64_t number, char *text, size_t room);
/* The known name nearest to an unknown one, or NULL when none is near. */
const char *weft_params_nearest(const char *env);

/* What params.c and params_profile.c lend each other. Why a value is refused, "WEFT_HEARTBEAT=abc:
 * expected …"; false: it is fine. Touches no error text. */
#define WEFT_REFUSAL_LEN 512
bool weft_params_refuse(enum weft_param param, const char *value, char text[WEFT_REFUSAL_LEN]);
bool weft_params_keep(struct weft_params *params, enum weft_param param, const char *value,
                      enum weft_param_origin origin); /* false: refused, nothing changed */
/* The setting whose variable is the first len bytes of name, or WEFT_PARAM_COUNT. */
unsigned weft_params_find(const char *name, size_t len);
/* true once per process and text: for warnings that every reading would repeat. */
bool weft_params_is_news(const char *text);
uint64_t weft_params_hash(const char *text);

/* ---- the profile: settings that `weft tune` found for this machine (params_profile.c) ---- */

#define WEFT_PROFILE_PATH_LEN 4096
#define WEFT_PROFILE_MACHINE "# machine:" /* begins the line that says where it fits */
/* Where it is without WEFT_PROFILE: $XDG_CONFIG_HOME/weft/profile, else ~/.config/weft/profile.
 * false: nobody says. */
bool weft_profile_path(char path[WEFT_PROFILE_PATH_LEN]);
/* Takes over what the profile says, all of it or nothing. Never fails: when there is something to say
 * (unreadable, wrong, stale), it is in text, which is else "". */
#define WEFT_PROFILE_TEXT_LEN 1024
void weft_profile_load(struct weft_params *params, char text[WEFT_PROFILE_TEXT_LEN]);

/* ---- this machine in a line (machine.c); root is "" or stands in for / (tests) ---- */

#define WEFT_MACHINE_LEN 2560
/* "AMD EPYC 9R14; 96 CPUs; eth0 25G, eth1 25G" */
void weft_machine_print(const char *root, char text[WEFT_MACHINE_LEN]);
/* Is this another machine than the one of `line`? what: the first difference, in words. */
bool weft_machine_differs(const char *root, const char *line, char *what, size_t room);

/* ---- clock (clock.c) ---- */

#define WEFT_NEVER UINT64_MAX
#define WEFT_NS_PER_MS UINT64_C(1000000)

uint64_t weft_clock_ns(void); /* monotonic */
/* now + ms; WEFT_NEVER stays */
uint64_t weft_clock_after_ms(uint64_t ms);
/* for epoll: ms until then, rounded up; 0 when past, -1 for WEFT_NEVER */
int weft_clock_ms_until(uint64_t deadline_ns);
uint64_t weft_clock_cpu_ns(void);  /* of this process */
uint64_t weft_clock_real_ns(void); /* since 1970: the same on all hosts, as far as they agree */
/* The CPU's own counter, for times on the way of every operation: a few ns, in no unit. Two pairs of it and
 * weft_clock_ns() tell how fast it counts. */
static inline uint64_t weft_clock_ticks(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t ticks;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#else
    return weft_clock_ns();
#endif
}

/* ---- arena (arena.c): many small pieces, freed together ---- */

struct weft_arena {
    struct weft_arena_block *head; /* owned */
    size_t block_len;
};
void weft_arena_open(struct weft_arena *arena, size_t block_len);
/* zeroed, 16-aligned; NULL: no memory */
void *weft_arena_take(struct weft_arena *arena, size_t len);
void weft_arena_close(struct weft_arena *arena);

/* ---- queue (queue.c): many producers, one consumer, lock-free, intrusive ---- */

struct weft_queue_node {
    _Atomic(struct weft_queue_node *) next;
};
struct weft_queue {
    _Atomic(struct weft_queue_node *) tail; /* producers */
    struct weft_queue_node *head;           /* the consumer */
    struct weft_queue_node stub;
};
void weft_queue_open(struct weft_queue *queue);
void weft_queue_push(struct weft_queue *queue, struct weft_queue_node *node);
/* NULL when empty, or while a producer is between its two steps (it will not be long) */
struct weft_queue_node *weft_queue_pop(struct weft_queue *queue);
/* any thread; a hint for going to sleep */
static inline bool weft_queue_is_empty(struct weft_queue *it)
{
    return atomic_load_explicit(&it->tail, memory_order_seq_cst) == &it->stub;
}

/* ---- list (list.h style, intrusive, doubly linked; in base.h because it is ten lines) ---- */

struct weft_list {
    struct weft_list *next, *prev;
};
static inline void weft_list_open(struct weft_list *list)
{
    list->next = list->prev = list;
}
static inline bool weft_list_is_empty(const struct weft_list *list)
{
    return list->next == list;
}
static inline void weft_list_append(struct weft_list *list, struct weft_list *node)
{
    node->prev = list->prev;
    node->next = list;
    list->prev->next = node;
    list->prev = node;
}
/* removes and returns the first; NULL: there is none */
static inline struct weft_list *weft_list_take(struct weft_list *list)
{
    struct weft_list *first = list->next;
    if (first == list) {
        return NULL;
    }
    list->next = first->next;
    first->next->prev = list;
    first->next = first->prev = first;
    return first;
}
/* everything in `from` goes to `to`, which is opened here */
static inline void weft_list_move(struct weft_list *from, struct weft_list *to)
{
    weft_list_open(to);
    if (!weft_list_is_empty(from)) {
        *to = *from;
        to->next->prev = to->prev->next = to;
        weft_list_open(from);
    }
}
/* leaves node as an empty list, so that removing twice is harmless */
static inline void weft_list_remove(struct weft_list *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    weft_list_open(node);
}

/* ---- histogram (histogram.c): log-linear, 1/32 relative error, fixed size ---- */

#define WEFT_HISTOGRAM_BUCKETS 1920
struct weft_histogram {
    uint64_t count, sum, min, max;
    double square_sum;
    uint64_t buckets[WEFT_HISTOGRAM_BUCKETS];
};
void weft_histogram_reset(struct weft_histogram *histogram);
void weft_histogram_add(struct weft_histogram *histogram, uint64_t value);
void weft_histogram_merge(struct weft_histogram *into, const struct weft_histogram *from);
/* the value below which `percent` of the samples lie; min and max are exact; 0 when empty */
uint64_t weft_histogram_percentile(const struct weft_histogram *histogram, double percent);
double weft_histogram_mean(const struct weft_histogram *histogram);
double weft_histogram_stddev(const struct weft_histogram *histogram);

/* ---- threads (thread.c): they take no signals ---- */

struct weft_thread {
    void *(*run)(void *arg);
    void *arg;
    size_t stack_len;      /* 0, or if it cannot be had: the usual one */
    const cpu_set_t *cpus; /* NULL: any */
    bool is_detached;
};

/* Returns an errno value, 0 for success; *thread_p is written then. */
int weft_thread_start(const struct weft_thread *spec, pthread_t *thread_p);

/* ---- descriptors (fds.c): a forked child must close ours and find its handles dead ---- */

/* Registers fd as ours (sets nothing on it; every creating call already passes CLOEXEC). Returns
 * fd. */
int weft_fd_own(int fd);
/* Unregisters and closes; -1 is fine. */
void weft_fd_close(int fd);
/* Hands an fd over to someone who is not us (a user's descriptor): unregisters only. */
int weft_fd_release(int fd);
unsigned weft_fd_count(void); /* registered now */
/* Grows by one in every forked child; a handle that remembers another number is dead. The first
 * call installs the atfork handler. */
uint32_t weft_process_generation(void);
extern _Atomic uint32_t weft_process_number; /* the same, read quickly once that was called */
/* Random, of this process alone: two pids may be equal where containers count their own. Another one in
 * every forked child. ERR_SYSTEM. */
weft_status_t weft_process_id(uint64_t *id_p);

/* Reads the system's small files (files.c): at most room - 1 bytes, ended by a zero; false when there is
 * no such file. */
bool weft_file_read(const char *path, char *text, size_t room);
/* Is this more than a file may have (ulimit -f)? Who goes beyond is killed by a signal, by default. */
bool weft_file_exceeds_limit(size_t len);

/* ---- secrets (secrets.c): memory left out of core dumps, zero in forked children ---- */

#define WEFT_SECRET_LEN 32
/* 64 zeroed bytes in pages marked MADV_DONTDUMP and MADV_WIPEONFORK; NULL: no memory. */
void *weft_secret_take(void);
void weft_secret_give(void *secret); /* wipes; NULL is fine */
/* The same for something larger, in pages of its own; NULL: no memory. */
void *weft_secret_map(size_t len);
void weft_secret_unmap(void *memory, size_t len); /* wipes; NULL is fine */
void weft_secret_wipe(void *memory, size_t len);  /* a memset the compiler keeps */
/* Wipes what calls have left on the stack below: copies of registers, buffers of callees. */
void weft_secret_scrub_stack(void);
weft_status_t weft_random(void *out, size_t len); /* getrandom */

#endif
