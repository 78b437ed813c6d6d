/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What weft inspect makes of recordings that hold together and lie: they are merged, judged, put into words and
 * printed. Input: recordings one after the other, as next_source() reads them. Nothing may crash, and memory is
 * taken for recordings, not for the ranks that they speak of.
 */
#include "fuzz.h"

#include "arena.h"
#include "cli/inspect.h"

#define SOURCES_MAX 4
#define ENTRIES 16
#define LEN (sizeof(struct weft_recording) + ENTRIES * sizeof(struct weft_record))
#define COMMS_MAX 6
#define TICKS 4000000000 /* of the CPU's counter: each is a nanosecond */
#define BEGAN_NS UINT64_C(1700000000000000000)

uint32_t __wrap_weft_wire_crc32c(uint32_t crc, const void *bytes, size_t len);

/* Recordings hold together here: their checksum is fuzz_dump.c's affair, and would take a sixth of the time. */
uint32_t __wrap_weft_wire_crc32c(uint32_t crc, const void *bytes, size_t len)
{
    (void)crc;
    (void)bytes;
    return (uint32_t)len;
}

struct bytes {
    const uint8_t *at;
    size_t len;
};

static uint8_t next_byte(struct bytes *from)
{
    if (from->len == 0) {
        return 0;
    }
    from->len--;
    return *from->at++;
}

/* Small, or one of those that overflow. */
static uint32_t next_number(struct bytes *from)
{
    static const uint32_t large[] = {UINT32_MAX, UINT32_MAX - 1, WEFT_RANKS_MAX - 1,
                                     WEFT_RANKS_MAX};
    uint8_t byte = next_byte(from);
    return byte < 252 ? byte : large[byte - 252];
}

/* As much of its time as one byte can say. */
static uint64_t next_ticks(struct bytes *from)
{
    return (uint64_t)next_byte(from) * (TICKS / 255);
}

static void fill_head(struct bytes *from, struct weft_record_head *head)
{
    memcpy(head->magic, WEFT_RECORD_MAGIC, sizeof(head->magic));
    head->version = WEFT_RECORD_VERSION;
    head->head_len = sizeof(struct weft_recording);
    head->entry_len = sizeof(struct weft_record);
    head->entries = ENTRIES;
    head->reason = next_byte(from) % 3;
    head->job[0] = next_byte(from) % 2;
    head->rank = next_number(from);
    head->ranks = next_number(from);
    head->opened_real_ns = BEGAN_NS;
    head->taken_ticks = head->taken_ns = TICKS;
    head->taken_real_ns = BEGAN_NS + TICKS;
    head->status = WEFT_ERR_PEER;
    head->blamed =
        head->rank % 5 <= head->ranks ? head->rank % 5 : 0; /* takes no byte of its own */
    head->name_count = 1;
    memcpy(head->names[0], "ring", 5);
    memcpy(head->text, "why", 4);
}

static void fill_comms(struct bytes *from, struct weft_recording *image)
{
    unsigned count = next_byte(from) % COMMS_MAX;
    for (unsigned i = 0; i < count; i++) {
        atomic_store(&image->comms[i].id, next_byte(from) % 4);
        image->comms[i].rank = next_number(from);
        image->comms[i].ranks = next_number(from);
        atomic_store(&image->comms[i].control_calls, next_number(from));
    }
}

/* Its bytes: kind, communicator, number, signature, peer, tag, how it goes on, when it began and ended. */
static void fill_line(struct bytes *from, uint64_t index, struct weft_record *line)
{
    uint64_t what = weft_record_what(next_byte(from) % 40, WEFT_F32, WEFT_SUM, 0, 0);
    uint64_t comm = next_byte(from) % 4, count = 100;
    uint64_t call = next_number(from) | (uint64_t)(next_byte(from) % 3) << 32;
    uint64_t more, began, end;
    what |= (uint64_t)next_number(from) << 32;
    more = next_number(from);
    uint8_t how = next_byte(from);
    began = next_ticks(from);
    end = next_ticks(from) >> 4 | 1;
    atomic_store(&line->began, began);
    atomic_store(&line->comm, comm);
    atomic_store(&line->call, call);
    atomic_store(&line->count, count);
    atomic_store(&line->what, what);
    atomic_store(&line->more, more | (uint64_t)(how >> 4) << 32);
    atomic_store(&line->end, (how & 1) != 0 ? end << 12 | (uint64_t)(how >> 1 & 7) << 7 : 0);
    atomic_store(&line->stamp, weft_record_stamp(index, began ^ comm ^ call ^ count ^ what ^ more));
}

static void next_source(struct bytes *from, struct inspect_input *input)
{
    static const struct weft_recorder_time now = {TICKS, TICKS, BEGAN_NS + TICKS};
    struct weft_recording *image = aligned_alloc(4096, (LEN + 4095) / 4096 * 4096);
    struct inspect_source source = {.name = weft_cli_format("%zu", input->count),
                                    .bytes = (uint8_t *)image};
    unsigned lines;
    FUZZ_CHECK(image != NULL);
    memset(image, 0, LEN);
    fill_head(from, &image->head);
    fill_comms(from, image);
    lines = next_byte(from) % (ENTRIES + 1);
    for (unsigned i = 0; i < lines; i++) {
        fill_line(from, i, &image->entry[i]);
    }
    atomic_store(&image->head.next, lines);
    source.is_live = image->head.reason == WEFT_RECORD_LIVE;
    source.is_stopped = source.is_live && (next_byte(from) & 1) != 0;
    source.seen_ns = (int64_t)(BEGAN_NS + next_ticks(from));
    weft_wire_dump_seal(image, LEN);
    if (weft_wire_dump_open(image, LEN, source.is_live ? &now : NULL, &source.dump) != WEFT_OK) {
        free(source.name);
        free(image);
        return;
    }
    input->sources = weft_cli_grow(input->sources, input->count + 1, sizeof(*input->sources));
    input->sources[input->count++] = source;
}

static void check_lists(const struct inspect_input *input, const struct inspect_case *it)
{
    FUZZ_CHECK(it->list_count <= (size_t)2 * COMMS_MAX * input->count);
    for (size_t i = 0; i < it->list_count; i++) {
        const struct inspect_list *list = &it->lists[i];
        FUZZ_CHECK(list->count <= COMMS_MAX * input->count && list->count <= list->ranks);
        for (size_t at = 0; at < list->count; at++) {
            const struct inspect_part *part = &list->parts[at];
            FUZZ_CHECK(part->rank < list->ranks && part->source != NULL);
            FUZZ_CHECK(at == 0 || list->parts[at - 1].rank < part->rank);
            FUZZ_CHECK(part->count <= ENTRIES);
            FUZZ_CHECK(part->count == 0 || part->entries[part->count - 1].number < part->next);
        }
    }
}

/* JSON lists each rank that is missing: that takes its time when a file speaks of a million. */
static bool is_quick(const struct inspect_input *input)
{
    bool is_small = true;
    for (size_t i = 0; i < input->count; i++) {
        is_small &= input->sources[i].dump.ranks < 256;
    }
    return is_small;
}

static FILE *nowhere;

int LLVMFuzzerInitialize(int *argc, char ***argv);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    nowhere = fopen("/dev/null", "we");
    FUZZ_CHECK(nowhere != NULL && setvbuf(nowhere, NULL, _IOFBF, 1 << 20) == 0);
    arena_open(); /* it is quicker than malloc() */
    arena_keep(); /* nothing */
    return 0;
}

static void print(const struct inspect_view *view)
{
    weft_inspect_print(view, nowhere);
    if (is_quick(view->input)) {
        weft_inspect_print_json(view, nowhere);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes from = {.at = data, .len = size};
    struct inspect_input input = {0};
    struct inspect_case job;
    struct inspect_verdict verdict;
    arena_restore();
    for (unsigned count = 1 + next_byte(&from) % SOURCES_MAX; count > 0; count--) {
        next_source(&from, &input);
    }
    weft_inspect_settle(&input);
    weft_inspect_merge(&input, &job);
    check_lists(&input, &job);
    weft_inspect_judge(&job, &verdict);
    for (size_t i = 0; i < verdict.count; i++) {
        const char *text = verdict.findings[i].text;
        FUZZ_CHECK(fuzz_is_printable(text, strlen(text) + 1));
    }
    print(&(struct inspect_view){.input = &input, .job = &job, .verdict = &verdict, .last = 8});
    weft_inspect_verdict_close(&verdict);
    weft_inspect_case_close(&job);
    weft_inspect_close(&input);
    FUZZ_CHECK(arena_live() == 0);
    return 0;
}
