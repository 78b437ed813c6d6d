/* SPDX-License-Identifier: Apache-2.0 */
/* Reading flight recorders. Pure: bytes in, facts out; every number that is used as one was checked. */
#include "wire/dump.h"
#include "wire/bytes.h"

#include <string.h>

#define HEAD_AT(field) offsetof(struct weft_record_head, field)
#define COMM_AT(field) offsetof(struct weft_record_comm, field)
#define LINE_AT(field) offsetof(struct weft_record, field)
#define HEAD_LEN sizeof(struct weft_recording)
#define LINE_LEN sizeof(struct weft_record)
#define STATUS_MAX WEFT_ERR_UNSUPPORTED
#define LONGEST_NS 1e18 /* thirty years */

/* ---- the head ---- */

static uint32_t checksum(const uint8_t *bytes, size_t len)
{
    static const uint8_t none[sizeof(uint32_t)];
    uint32_t crc = weft_wire_crc32c(0, bytes, HEAD_AT(crc));
    crc = weft_wire_crc32c(crc, none, sizeof(none));
    return weft_wire_crc32c(crc, bytes + HEAD_AT(reason), len - HEAD_AT(reason));
}

void weft_wire_dump_seal(struct weft_recording *recording, size_t len)
{
    recording->head.crc = checksum((const uint8_t *)recording, len);
}

static weft_status_t check_shape(const uint8_t *bytes, size_t len)
{
    uint32_t version, entries;
    if (len < sizeof(WEFT_RECORD_MAGIC) ||
        memcmp(bytes, WEFT_RECORD_MAGIC, sizeof(WEFT_RECORD_MAGIC)) != 0) {
        return weft_fail(WEFT_ERR_PROTOCOL, "it is not a dump of a flight recorder");
    }
    if (len < HEAD_LEN) {
        return weft_fail(WEFT_ERR_PROTOCOL, "it is cut: %zu bytes are less than its head", len);
    }
    version = get_u32(bytes + HEAD_AT(version));
    if (version != WEFT_RECORD_VERSION) {
        return weft_fail(WEFT_ERR_VERSION, "it has version %u; this weft reads version %d", version,
                         WEFT_RECORD_VERSION);
    }
    entries = get_u32(bytes + HEAD_AT(entries));
    if (get_u32(bytes + HEAD_AT(head_len)) != HEAD_LEN ||
        get_u32(bytes + HEAD_AT(entry_len)) != LINE_LEN || entries < WEFT_RECORD_ENTRIES_MIN ||
        entries > WEFT_RECORD_ENTRIES_MAX || (entries & (entries - 1)) != 0) {
        return weft_fail(WEFT_ERR_PROTOCOL, "its head is damaged");
    }
    if (len != weft_recording_len(entries)) {
        return weft_fail(WEFT_ERR_PROTOCOL, "it has %zu bytes, and %u operations take %zu", len,
                         entries, weft_recording_len(entries));
    }
    return WEFT_OK;
}

static struct weft_recorder_time get_time(const uint8_t *at)
{
    return (struct weft_recorder_time){
        .ticks = get_u64(at), .ns = get_u64(at + 8), .real_ns = get_u64(at + 16)};
}

static void get_text(const uint8_t *from, char *to, size_t room)
{
    memcpy(to, from, room - 1);
    to[room - 1] = '\0';
    weft_text_clean(to);
}

static void read_head(const uint8_t *bytes, const struct weft_recorder_time *now,
                      struct weft_dump *it)
{
    *it = (struct weft_dump){.bytes = bytes,
                             .entries = get_u32(bytes + HEAD_AT(entries)),
                             .next = get_u64(bytes + HEAD_AT(next)),
                             .epoch = get_u32(bytes + HEAD_AT(epoch)),
                             .rank = get_u32(bytes + HEAD_AT(rank)),
                             .ranks = get_u32(bytes + HEAD_AT(ranks)),
                             .pid = get_u32(bytes + HEAD_AT(pid)),
                             .opened = get_time(bytes + HEAD_AT(opened_ticks)),
                             .taken = now != NULL ? *now : get_time(bytes + HEAD_AT(taken_ticks)),
                             .name_count = get_u32(bytes + HEAD_AT(name_count))};
    memcpy(it->job, bytes + HEAD_AT(job), sizeof(it->job));
    get_text(bytes + HEAD_AT(host), it->host, sizeof(it->host));
    get_text(bytes + HEAD_AT(text), it->text, sizeof(it->text));
    if (it->taken.ticks > it->opened.ticks && it->taken.ns > it->opened.ns) {
        it->ns_per_tick =
            (double)(it->taken.ns - it->opened.ns) / (double)(it->taken.ticks - it->opened.ticks);
    }
}

weft_status_t weft_wire_dump_open(const void *bytes, size_t len,
                                  const struct weft_recorder_time *now, struct weft_dump *dump_p)
{
    const uint8_t *at = bytes;
    weft_status_t status = check_shape(at, len);
    struct weft_dump it;
    uint32_t reason, ended, blamed;
    if (status != WEFT_OK) {
        return status;
    }
    if (now == NULL && get_u32(at + HEAD_AT(crc)) != checksum(at, len)) {
        return weft_fail(WEFT_ERR_PROTOCOL, "its checksum is wrong: it was damaged");
    }
    read_head(at, now, &it);
    reason = get_u32(at + HEAD_AT(reason));
    ended = get_u32(at + HEAD_AT(status));
    blamed = get_u32(at + HEAD_AT(blamed));
    if (reason > WEFT_RECORD_FAILED || (reason == WEFT_RECORD_LIVE) != (now != NULL) ||
        ended > STATUS_MAX || it.ranks == 0 || it.ranks > WEFT_RANKS_MAX || it.rank >= it.ranks ||
        blamed > it.ranks || it.name_count > WEFT_RECORD_NAMES || it.taken.real_ns > INT64_MAX ||
        it.opened.real_ns > INT64_MAX) {
        return weft_fail(WEFT_ERR_PROTOCOL, "its head is damaged");
    }
    it.reason = (enum weft_record_reason)reason;
    it.status = (weft_status_t)ended;
    it.blamed = blamed > 0 ? blamed - 1 : WEFT_RECORD_ANY;
    *dump_p = it;
    return WEFT_OK;
}

/* ---- operations ---- */

/* Ticks since the opening as a time; what lies after the taking is as of the taking. */
static int64_t real_time(const struct weft_dump *dump, uint64_t ticks)
{
    uint64_t taken = dump->taken.ticks - dump->opened.ticks;
    double ago_ns = ticks < taken ? (double)(taken - ticks) * dump->ns_per_tick : 0.0;
    int64_t before = (int64_t)(ago_ns < LONGEST_NS ? ago_ns : LONGEST_NS);
    int64_t at_ns = (int64_t)dump->taken.real_ns;
    return at_ns > before ? at_ns - before : 0;
}

static void read_end(const struct weft_dump *dump, uint64_t end, struct weft_dump_entry *it)
{
    unsigned shift = (unsigned)__builtin_ctz(dump->entries);
    uint32_t status = end >> 7 & 31;
    it->state = WEFT_DUMP_GOING;
    if ((end & 127) != (it->index >> shift & 127) || status > STATUS_MAX) {
        it->state = WEFT_DUMP_UNKNOWN;
    } else if (end >> 12 != 0) {
        it->state = WEFT_DUMP_ENDED;
        it->status = (weft_status_t)status;
        it->ended_ns = real_time(dump, end >> 12 << 4);
        it->ended_ns = it->ended_ns > it->began_ns ? it->ended_ns : it->began_ns;
    }
}

static void read_call(const struct weft_dump *dump, const uint8_t *line, struct weft_dump_entry *it)
{
    uint64_t call = get_u64(line + LINE_AT(call));
    uint64_t what = get_u64(line + LINE_AT(what));
    uint64_t more = get_u64(line + LINE_AT(more));
    it->began_ns = real_time(dump, get_u64(line + LINE_AT(began)));
    it->comm = get_u64(line + LINE_AT(comm));
    it->count = get_u64(line + LINE_AT(count));
    it->number = (uint32_t)call;
    it->signature = (uint32_t)(call >> 32);
    it->kind = (uint8_t)what;
    it->dtype = (uint8_t)(what >> 8);
    it->op = (uint8_t)(what >> 16);
    it->name = (uint8_t)(what >> 24);
    it->peer = (uint32_t)(what >> 32);
    it->tag = (uint32_t)more;
    it->waits_for = (uint32_t)(more >> 32) & 0xffffff;
    it->waits_for = it->waits_for == 0 ? WEFT_RECORD_ANY : it->waits_for - 1;
    it->percent = (unsigned)(more >> 56);
}

/* The latest index that has this in its stamp. (A live ring may have gone on a little.) */
static uint64_t whole_index(const struct weft_dump *dump, uint32_t stamp)
{
    uint32_t low = (stamp - 1) / 2 & INT32_MAX;
    uint64_t latest = dump->next + dump->entries;
    uint64_t index = (latest & ~(uint64_t)INT32_MAX) | low;
    return index > latest && index > INT32_MAX ? index - INT32_MAX - 1 : index;
}

static uint64_t fixed_words(const uint8_t *line)
{
    return get_u64(line + LINE_AT(began)) ^ get_u64(line + LINE_AT(comm)) ^
           get_u64(line + LINE_AT(call)) ^ get_u64(line + LINE_AT(count)) ^
           get_u64(line + LINE_AT(what)) ^ get_u32(line + LINE_AT(more));
}

bool weft_wire_dump_entry(const struct weft_dump *dump, uint32_t slot,
                          struct weft_dump_entry *entry_p)
{
    const uint8_t *line = dump->bytes + HEAD_LEN + (size_t)slot * LINE_LEN;
    uint64_t stamp = get_u64(line + LINE_AT(stamp));
    *entry_p = (struct weft_dump_entry){.state = WEFT_DUMP_TORN};
    if (stamp == 0) {
        return false;
    }
    entry_p->index = whole_index(dump, (uint32_t)stamp);
    if (stamp != weft_record_stamp(entry_p->index, fixed_words(line)) ||
        (entry_p->index & (dump->entries - 1)) != slot) {
        return true;
    }
    read_call(dump, line, entry_p);
    if (weft_record_kind_name(entry_p->kind) == NULL || entry_p->dtype >= WEFT_DTYPES ||
        entry_p->op >= WEFT_REDOPS || entry_p->name > dump->name_count || entry_p->percent > 100) {
        *entry_p = (struct weft_dump_entry){.state = WEFT_DUMP_TORN, .index = entry_p->index};
        return true;
    }
    read_end(dump, get_u64(line + LINE_AT(end)), entry_p);
    return true;
}

bool weft_wire_dump_comm(const struct weft_dump *dump, uint32_t slot, struct weft_dump_comm *comm_p)
{
    const uint8_t *at = dump->bytes + offsetof(struct weft_recording, comms) +
                        (size_t)slot * sizeof(struct weft_record_comm);
    *comm_p = (struct weft_dump_comm){.id = get_u64(at + COMM_AT(id)),
                                      .rank = get_u32(at + COMM_AT(rank)),
                                      .ranks = get_u32(at + COMM_AT(ranks)),
                                      .control_calls = get_u32(at + COMM_AT(control_calls))};
    return comm_p->id != 0 && comm_p->rank < comm_p->ranks && comm_p->ranks <= dump->ranks;
}

const char *weft_wire_dump_name(const struct weft_dump *dump, uint8_t name, char *text)
{
    text[0] = '\0';
    if (name > 0 && name <= dump->name_count) {
        get_text(dump->bytes + HEAD_AT(names) + (size_t)(name - 1) * WEFT_RECORD_NAME_LEN, text,
                 WEFT_RECORD_NAME_LEN);
    }
    return text;
}
