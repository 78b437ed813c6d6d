/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads flight recorders: dumps, and the memory of a running rank (watch/recorder.h has the layout). They come
 * from files and from other processes, so nothing in them is believed before it was checked.
 */
#ifndef WEFT_WIRE_DUMP_H
#define WEFT_WIRE_DUMP_H

#include "watch/watch.h"
#include "wire/wire.h"

struct weft_dump {
    const uint8_t *bytes; /* lent */
    uint32_t entries;
    uint64_t next; /* index of the next operation: how many there were */
    uint8_t job[16];
    uint32_t epoch, rank, ranks, pid;
    enum weft_record_reason reason;
    weft_status_t status; /* FAILED */
    uint32_t blamed;      /* FAILED: the rank that the verdict names; WEFT_RECORD_ANY: none */
    struct weft_recorder_time opened, taken;
    double ns_per_tick;
    uint32_t name_count;
    char host[WEFT_RECORD_HOST_LEN]; /* these hold no control characters */
    char text[WEFT_RECORD_TEXT_LEN];
};

enum weft_dump_state {
    WEFT_DUMP_TORN, /* it was being written */
    WEFT_DUMP_GOING,
    WEFT_DUMP_ENDED,   /* status says how */
    WEFT_DUMP_UNKNOWN, /* its end was overwritten */
};

struct weft_dump_entry {
    uint64_t index; /* of all operations of the rank */
    enum weft_dump_state state;
    weft_status_t status;
    int64_t began_ns, ended_ns; /* since 1970; ended: 0 while it goes */
    uint64_t comm, count;
    uint32_t number, signature;
    uint32_t tag; /* of messages; of collectives: the chain of signatures */
    uint8_t kind, dtype, op;
    uint8_t name;       /* weft_wire_dump_name() */
    uint32_t peer;      /* or root; WEFT_RECORD_ANY */
    uint32_t waits_for; /* of the communicator; WEFT_RECORD_ANY: not said */
    unsigned percent;
};

struct weft_dump_comm {
    uint64_t id;
    uint32_t rank, ranks;
    uint32_t control_calls; /* that were made when it was read */
};

/* Fills in the checksum of `len` bytes that weft_recorder_copy() made. */
void weft_wire_dump_seal(struct weft_recording *recording, size_t len);
/* now: NULL for a dump; else this is a rank's memory, read at that time. bytes are lent as long as dump_p is
 * used. ERR_PROTOCOL: the text says what is wrong; ERR_VERSION. */
weft_status_t weft_wire_dump_open(const void *bytes, size_t len,
                                  const struct weft_recorder_time *now, struct weft_dump *dump_p);
/* Line `slot` of the ring; false: it was never used. */
bool weft_wire_dump_entry(const struct weft_dump *dump, uint32_t slot,
                          struct weft_dump_entry *entry_p);
/* Communicator `slot` < WEFT_RECORD_COMMS; false: none. */
bool weft_wire_dump_comm(const struct weft_dump *dump, uint32_t slot,
                         struct weft_dump_comm *comm_p);
/* Of an algorithm; "" when there is none. text: WEFT_RECORD_NAME_LEN bytes; returned. */
const char *weft_wire_dump_name(const struct weft_dump *dump, uint8_t name, char *text);

#endif
