/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The flight recorder: a ring of a rank's latest operations, in memory that others can read while the rank
 * runs, hangs or is stopped (a memfd that `weft inspect --pid` finds among its descriptors). The same bytes,
 * with a checksum, are a dump; wire/dump.c reads both.
 *
 *   | head 4096 | communicators 4096 | operations, 64 bytes each … |
 *
 * Many threads write without a lock. Whoever begins an operation takes an index and writes one line; whoever
 * ends it stores one word. `stamp` is odd while a line is written, so that a reader knows one that is not
 * whole; and it holds a check of the others, for a writer may sleep until the ring has gone around and then
 * write into another's line. The end carries the low bits of how often the ring had gone around: the end of an
 * operation whose line was taken over meanwhile is no end of the new one.
 */
#ifndef WEFT_WATCH_RECORDER_H
#define WEFT_WATCH_RECORDER_H

#include "base/base.h"

#define WEFT_RECORD_MAGIC "WEFTREC"
#define WEFT_RECORD_VERSION 1
#define WEFT_RECORD_MEMFD "weft recorder rank " /* … 3 */
#define WEFT_RECORD_COMMS 128
#define WEFT_RECORD_NAMES 64
#define WEFT_RECORD_NAME_LEN 24
#define WEFT_RECORD_HOST_LEN 64
#define WEFT_RECORD_TEXT_LEN 512
#define WEFT_RECORD_ENTRIES_MIN 16
#define WEFT_RECORD_ENTRIES_MAX (1 << 20)
#define WEFT_RECORD_ANY UINT32_MAX /* a peer or tag that is any */

/* The collectives are 0 … WEFT_COLLS-1. X(NAME, number, "text") */
#define WEFT_RECORD_KINDS(X)                                                                       \
    X(CONTROL_BARRIER, 16, "control_barrier")                                                      \
    X(CONTROL_ALLGATHER, 17, "control_allgather")                                                  \
    X(CONTROL_BROADCAST, 18, "control_broadcast")                                                  \
    X(SPLIT, 19, "comm_split")                                                                     \
    X(DUPLICATE, 20, "comm_duplicate")                                                             \
    X(SHRINK, 23, "comm_shrink")                                                                   \
    X(CONTROL_SEND, 24, "control_send")                                                            \
    X(CONTROL_RECV, 25, "control_recv")                                                            \
    X(CLOSE, 26, "comm_close")                                                                     \
    X(DUMP, 27, "dump")                                                                            \
    X(SEND, 32, "send")                                                                            \
    X(RECV, 33, "recv")                                                                            \
    X(PROBE, 34, "probe")                                                                          \
    X(PUT, 35, "put")                                                                              \
    X(GET, 36, "get")                                                                              \
    X(WAIT_SIGNAL, 37, "wait_signal")                                                              \
    X(QUIET, 38, "quiet")                                                                          \
    X(FENCE, 39, "fence")

enum weft_record_kind {
#define WEFT_RECORD_KIND_ENUM(id, number, text) WEFT_RECORD_##id = (number),
    WEFT_RECORD_KINDS(WEFT_RECORD_KIND_ENUM)
#undef WEFT_RECORD_KIND_ENUM
};
/* "allreduce", "send"; NULL: there is none. */
const char *weft_record_kind_name(uint8_t kind);

/* Those that all ranks of a communicator call in one order; each list has numbers of its own. */
static inline bool weft_record_is_collective(uint8_t kind)
{
    return kind < WEFT_COLLS;
}
static inline bool weft_record_is_control(uint8_t kind)
{
    return kind >= WEFT_RECORD_CONTROL_BARRIER && kind <= WEFT_RECORD_DUPLICATE;
}

/* ---- the bytes ---- */

struct weft_record {
    /* Low 32 bits: 2·index + 1: it is being written, + 2: whole; high ones: check; 0: never used. */
    _Atomic uint64_t stamp;
    _Atomic uint64_t began; /* ticks since the recorder was opened */
    _Atomic uint64_t end;   /* ticks / 16 << 12 | status << 7 | rounds & 127; ticks 0: it goes on */
    _Atomic uint64_t comm;
    _Atomic uint64_t call; /* number | signature << 32 */
    _Atomic uint64_t count;
    _Atomic uint64_t what; /* kind | dtype << 8 | op << 16 | name << 24 | root or peer << 32 */
    _Atomic uint64_t more; /* chain or tag | (who is waited for) + 1 << 32 | percent << 56 */
};
_Static_assert(sizeof(struct weft_record) == 64, "one line of the cache");

/* Of all words that do not change until the line is another's. */
static inline uint64_t weft_record_stamp(uint64_t index, uint64_t words)
{
    return words * UINT64_C(0x9e3779b97f4a7c15) >> 32 << 32 | (uint32_t)(2 * index + 2);
}

struct weft_record_comm {
    _Atomic uint64_t id; /* 0: none; written last */
    uint32_t rank, ranks;
    uint64_t opened; /* ticks */
    uint32_t is_closed;
    _Atomic uint32_t control_calls; /* made so far: their lines may be overwritten, or never were */
};

enum weft_record_reason {
    WEFT_RECORD_LIVE, /* no dump */
    WEFT_RECORD_ASKED,
    WEFT_RECORD_FAILED,
};

struct weft_record_head {
    char magic[8];
    uint32_t version;
    uint32_t head_len; /* where the operations begin */
    uint32_t entry_len;
    uint32_t entries; /* a power of two */
    uint32_t crc;     /* of a dump: of all its bytes, with 0 here */
    uint32_t reason;
    uint8_t job[16]; /* equal on its ranks; not its id, which strangers must not learn */
    uint32_t epoch, rank, ranks, pid;
    uint64_t opened_ticks, opened_ns, opened_real_ns;
    uint64_t taken_ticks, taken_ns, taken_real_ns; /* of a dump */
    uint32_t status;                               /* FAILED: how, and the words for it */
    uint32_t blamed; /* FAILED: the rank that the verdict names, + 1; 0: none */
    char host[WEFT_RECORD_HOST_LEN];
    char text[WEFT_RECORD_TEXT_LEN];
    _Alignas(64) _Atomic uint64_t next; /* index */
    _Alignas(64) uint32_t name_count;
    char names[WEFT_RECORD_NAMES][WEFT_RECORD_NAME_LEN]; /* of algorithms; 0: none */
};

struct weft_recording {
    struct weft_record_head head;
    _Alignas(4096) struct weft_record_comm comms[WEFT_RECORD_COMMS];
    _Alignas(4096) struct weft_record entry[];
};
_Static_assert(offsetof(struct weft_recording, comms) == 4096 &&
                   offsetof(struct weft_recording, entry) == 8192,
               "as drawn above");

static inline size_t weft_recording_len(uint32_t entries)
{
    return sizeof(struct weft_recording) + (size_t)entries * sizeof(struct weft_record);
}

/* ---- writing ---- */

struct weft_recorder {
    struct weft_recording *image; /* owned; NULL: off */
    uint64_t opened_ticks;
    uint64_t mask;
    uint32_t shift; /* mask + 1 == 1 << shift */
    int fd;         /* of the image; -1: private memory, which only dumps can show */
};

/* Three clocks, read at the same time. */
struct weft_recorder_time {
    uint64_t ticks, ns, real_ns;
};
struct weft_recorder_time weft_recorder_now(void);

struct weft_recorder_spec {
    uint32_t entries; /* rounded up to a power of two; 0: off */
    uint8_t job[16];
    uint32_t epoch, rank, ranks;
    const char *host;
    const struct weft_recorder_time *since; /* what is recorded began then; NULL: now */
};
/* Without memory it is off, and says so in the log: nothing fails for the lack of it. */
void weft_recorder_open(const struct weft_recorder_spec *spec, struct weft_recorder *recorder_p);
void weft_recorder_close(struct weft_recorder *recorder);

/* Any thread; they lock, and are rare. */
void weft_recorder_comm_open(struct weft_recorder *recorder, uint64_t id, uint32_t rank,
                             uint32_t ranks);
void weft_recorder_comm_close(struct weft_recorder *recorder, uint64_t id);
/* So many control calls were made on it, that all its ranks make; after the line of the last one. */
void weft_recorder_comm_calls(struct weft_recorder *recorder, uint64_t id, uint32_t calls);
/* The number to record for this name; 0: no room. */
uint8_t weft_recorder_name(struct weft_recorder *recorder, const char *name);
/* Copies everything as it is now, whole lines only, into weft_recorder_len() bytes. No crc. */
size_t weft_recorder_len(const struct weft_recorder *recorder); /* 0: off */
void weft_recorder_copy(struct weft_recorder *recorder, struct weft_recording *copy);

struct weft_record_call {
    uint64_t comm, count, what;
    uint32_t number, signature;
    uint32_t chain; /* or tag */
};
static inline uint64_t weft_record_what(uint32_t kind, uint32_t dtype, uint32_t op, uint32_t name,
                                        uint32_t peer)
{
    return kind | dtype << 8 | op << 16 | name << 24 | (uint64_t)peer << 32;
}

/* Writes the line of `index`, of an operation that began so many ticks after the opening. */
static inline uint64_t weft_recorder_write(struct weft_recorder *it,
                                           const struct weft_record_call *call, uint64_t index,
                                           uint64_t began)
{
    uint64_t number;
    struct weft_record *line;
    number = call->number | (uint64_t)call->signature << 32;
    line = &it->image->entry[index & it->mask];
    /* Each is a release: whoever sees one of them sees that the line is being written. */
    atomic_store_explicit(&line->stamp, (uint32_t)(2 * index + 1), memory_order_relaxed);
    atomic_store_explicit(&line->began, began, memory_order_release);
    atomic_store_explicit(&line->end, index >> it->shift & 127, memory_order_release);
    atomic_store_explicit(&line->comm, call->comm, memory_order_release);
    atomic_store_explicit(&line->call, number, memory_order_release);
    atomic_store_explicit(&line->count, call->count, memory_order_release);
    atomic_store_explicit(&line->what, call->what, memory_order_release);
    atomic_store_explicit(&line->more, call->chain, memory_order_release);
    atomic_store_explicit(&line->stamp,
                          weft_record_stamp(index, began ^ call->comm ^ number ^ call->count ^
                                                       call->what ^ call->chain),
                          memory_order_release);
    return index + 1;
}

static inline uint64_t weft_recorder_take(struct weft_recorder *it)
{
    return atomic_fetch_add_explicit(&it->image->head.next, 1, memory_order_relaxed);
}

/* The operation's record, for its end; 0: it is off. Any thread; no lock, no allocation, no system call. */
static inline uint64_t weft_recorder_begin(struct weft_recorder *it,
                                           const struct weft_record_call *call)
{
    uint64_t index;
    if (it->image == NULL) {
        return 0;
    }
    index = weft_recorder_take(it);
    return weft_recorder_write(it, call, index, weft_clock_ticks() - it->opened_ticks);
}

/* The same of one that began earlier, at `ticks`. */
static inline uint64_t weft_recorder_begun(struct weft_recorder *it,
                                           const struct weft_record_call *call, uint64_t ticks)
{
    uint64_t since = ticks > it->opened_ticks ? ticks - it->opened_ticks : 0;
    return it->image != NULL ? weft_recorder_write(it, call, weft_recorder_take(it), since) : 0;
}

static inline void weft_recorder_end(struct weft_recorder *it, uint64_t record,
                                     weft_status_t status)
{
    if (record != 0) {
        uint64_t index = record - 1;
        uint64_t ticks = (weft_clock_ticks() - it->opened_ticks) >> 4 | 1;
        atomic_store_explicit(&it->image->entry[index & it->mask].end,
                              ticks << 12 | (uint64_t)status << 7 | (index >> it->shift & 127),
                              memory_order_release);
    }
}

/* The same of one that went well, and ended so soon after it began that nobody asks for the time. */
static inline void weft_recorder_end_briefly(struct weft_recorder *it, uint64_t record)
{
    if (record != 0) {
        uint64_t index = record - 1;
        struct weft_record *line = &it->image->entry[index & it->mask];
        uint64_t ticks = atomic_load_explicit(&line->began, memory_order_relaxed) >> 4 | 1;
        atomic_store_explicit(&line->end, ticks << 12 | (index >> it->shift & 127),
                              memory_order_release);
    }
}

/* What a long wait knows of itself: for whom (of the communicator; WEFT_RECORD_ANY: nobody), how far. */
void weft_recorder_note(struct weft_recorder *recorder, uint64_t record, uint32_t waits_for,
                        unsigned percent);

#endif
