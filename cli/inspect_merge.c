/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recordings become lists: per communicator, what each rank did, by number. Memory of running ranks was read
 * one after another, and they went on meanwhile; so of those only counts what happened before the first of
 * them was read.
 */
#include "inspect.h"

#include <stdlib.h>
#include <string.h>

static int by_index(const void *left, const void *right)
{
    const struct weft_dump_entry *a = left, *b = right;
    return a->index < b->index ? -1 : a->index > b->index;
}

/* In the order they were begun; *count_p of them. Owned by the caller. */
static struct weft_dump_entry *read_entries(const struct weft_dump *dump, size_t *count_p,
                                            size_t *torn_p)
{
    struct weft_dump_entry *entries = weft_cli_alloc(dump->entries, sizeof(*entries));
    size_t count = 0;
    for (uint32_t slot = 0; slot < dump->entries; slot++) {
        if (weft_wire_dump_entry(dump, slot, &entries[count])) {
            *torn_p += entries[count].state == WEFT_DUMP_TORN;
            count += entries[count].state != WEFT_DUMP_TORN;
        }
    }
    qsort(entries, count, sizeof(*entries), by_index);
    *count_p = count;
    return entries;
}

static struct inspect_list *list_of(struct inspect_case *it, uint64_t comm, bool is_control)
{
    for (size_t i = 0; i < it->list_count; i++) {
        if (it->lists[i].comm == comm && it->lists[i].is_control == is_control) {
            return &it->lists[i];
        }
    }
    return NULL;
}

static struct inspect_list *find_list(struct inspect_case *it, uint64_t comm, bool is_control,
                                      uint32_t ranks)
{
    struct inspect_list *list = list_of(it, comm, is_control);
    if (list != NULL) {
        return list->ranks == ranks ? list : NULL; /* no two recordings of one job differ */
    }
    it->lists = weft_cli_grow(it->lists, it->list_count + 1, sizeof(*it->lists));
    it->lists[it->list_count] =
        (struct inspect_list){.comm = comm, .is_control = is_control, .ranks = ranks};
    return &it->lists[it->list_count++];
}

/* The first part that is not of a lower rank; list->count: none. */
static size_t find_place(const struct inspect_list *list, uint32_t rank)
{
    size_t low = 0, high = list->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (list->parts[middle].rank < rank) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Of two recordings that say they are of one rank the first one counts. Memory is taken for recordings that are
 * there, not for ranks that a file speaks of. */
static void add_part(struct inspect_list *list, uint32_t rank, const struct inspect_source *source)
{
    size_t place = find_place(list, rank);
    if (place < list->count && list->parts[place].rank == rank) {
        return;
    }
    list->parts = weft_cli_grow(list->parts, list->count + 1, sizeof(*list->parts));
    memmove(&list->parts[place + 1], &list->parts[place],
            (list->count - place) * sizeof(*list->parts));
    list->parts[place] = (struct inspect_part){.rank = rank, .source = source};
    list->count++;
}

/* A call may be there twice, the first time before its plan was known: the later one says more. */
static void append(struct inspect_part *part, const struct weft_dump_entry *entry)
{
    const struct weft_dump_entry *latest = part->count > 0 ? &part->entries[part->count - 1] : NULL;
    if (latest != NULL && entry->number <= latest->number) {
        if (entry->number == latest->number) {
            part->entries[part->count - 1] = *entry;
        }
        return;
    }
    if (part->entries == NULL || part->count == part->room) {
        part->room = 2 * part->room + 16;
        part->entries = weft_cli_grow(part->entries, part->room, sizeof(*part->entries));
    }
    part->entries[part->count++] = *entry;
    if (entry->number >= part->next) { /* the last number has no next one */
        part->next = entry->number + (entry->number < UINT32_MAX);
    }
}

/* As it was at that time; false: it had not begun. */
static bool cut(struct weft_dump_entry *entry, int64_t at_ns)
{
    if (entry->began_ns > at_ns) {
        return false;
    }
    if (entry->state == WEFT_DUMP_ENDED && entry->ended_ns > at_ns) {
        entry->state = WEFT_DUMP_GOING;
        entry->ended_ns = 0;
    }
    return true;
}

struct reading {
    struct inspect_case *job;
    const struct inspect_source *source;
    struct weft_dump_entry *entries;
    size_t count;
    int64_t at_ns; /* nothing counts after that; INT64_MAX: everything does */
};

static bool is_of_list(const struct weft_dump_entry *entry)
{
    return weft_record_is_collective(entry->kind) || weft_record_is_control(entry->kind);
}

static bool has_kind(const struct reading *reading, uint64_t comm, bool is_control)
{
    for (size_t i = 0; i < reading->count; i++) {
        const struct weft_dump_entry *entry = &reading->entries[i];
        if (entry->comm == comm && is_of_list(entry) &&
            weft_record_is_control(entry->kind) == is_control) {
            return true;
        }
    }
    return false;
}

/* Its communicators, also those that it never used: then it is a rank that has not come. */
static void take_comms(const struct reading *reading)
{
    for (uint32_t slot = 0; slot < WEFT_RECORD_COMMS; slot++) {
        struct weft_dump_comm comm;
        if (!weft_wire_dump_comm(&reading->source->dump, slot, &comm)) {
            continue;
        }
        for (int is_control = 0; is_control < 2; is_control++) {
            struct inspect_list *list =
                is_control == 0 || has_kind(reading, comm.id, true)
                    ? find_list(reading->job, comm.id, is_control != 0, comm.ranks)
                    : NULL;
            if (list != NULL) {
                add_part(list, comm.rank, reading->source);
            }
        }
    }
}

static struct inspect_part *part_of(struct inspect_list *list, const struct inspect_source *source)
{
    for (size_t i = 0; i < list->count; i++) {
        if (list->parts[i].source == source) {
            return &list->parts[i];
        }
    }
    return NULL;
}

/* Lines of control calls may be overwritten, or never were written: how many there were is known. */
static void take_counts(const struct reading *reading)
{
    for (uint32_t slot = 0; slot < WEFT_RECORD_COMMS; slot++) {
        struct weft_dump_comm comm;
        if (!weft_wire_dump_comm(&reading->source->dump, slot, &comm)) {
            continue;
        }
        struct inspect_list *list = list_of(reading->job, comm.id, true);
        struct inspect_part *part = list != NULL ? part_of(list, reading->source) : NULL;
        if (part != NULL) {
            part->next = comm.control_calls;
        }
    }
}

static void take_entries(const struct reading *reading)
{
    const struct weft_dump_entry *before = NULL; /* mostly of the same list */
    struct inspect_part *part = NULL;
    for (size_t i = 0; i < reading->count; i++) {
        struct weft_dump_entry *entry = &reading->entries[i];
        if (!is_of_list(entry) || entry->number == UINT32_MAX) { /* nobody made so many calls */
            continue;
        }
        if (before == NULL || before->comm != entry->comm ||
            weft_record_is_control(before->kind) != weft_record_is_control(entry->kind)) {
            struct inspect_list *list =
                list_of(reading->job, entry->comm, weft_record_is_control(entry->kind));
            part = list != NULL ? part_of(list, reading->source) : NULL;
        }
        before = entry;
        if (part == NULL) {
            continue;
        }
        if (cut(entry, reading->at_ns)) {
            append(part, entry);
        } else if (!part->is_cut) { /* it had done all before */
            part->next =
                part->count > 0 ? part->entries[part->count - 1].number + 1 : entry->number;
            part->is_cut = true;
        }
    }
}

/* The latest call that goes on is what its rank does, whatever the list. */
static void take_doing(const struct reading *reading)
{
    struct weft_dump_entry doing = {.state = WEFT_DUMP_TORN};
    for (size_t i = 0; i < reading->count; i++) {
        struct weft_dump_entry entry = reading->entries[i];
        if (cut(&entry, reading->at_ns) && entry.state == WEFT_DUMP_GOING) {
            doing = entry;
        }
    }
    for (size_t i = 0; i < reading->job->list_count; i++) {
        struct inspect_part *part = part_of(&reading->job->lists[i], reading->source);
        if (part != NULL) {
            part->doing = doing;
            part->doing_list = list_of(reading->job, doing.comm, false);
        }
    }
}

/* All lists first: a rank belongs to those of others too. */
static void share_lists(struct inspect_case *it)
{
    for (size_t i = 0; i < it->list_count; i++) {
        for (size_t j = 0; j < it->list_count; j++) {
            const struct inspect_list *from = &it->lists[i];
            struct inspect_list *to = &it->lists[j];
            for (size_t k = 0;
                 i != j && from->comm == to->comm && from->ranks == to->ranks && k < from->count;
                 k++) {
                add_part(to, from->parts[k].rank, from->parts[k].source);
            }
        }
    }
}

void weft_inspect_merge(const struct inspect_input *input, struct inspect_case *it)
{
    struct reading *readings = weft_cli_alloc(input->count + 1, sizeof(*readings));
    int64_t first_ns = INT64_MAX;
    *it = (struct inspect_case){.threshold_ns = INSPECT_AT_WORK_NS};
    for (size_t i = 0; i < input->count; i++) {
        const struct inspect_source *source = &input->sources[i];
        readings[i] = (struct reading){.job = it, .source = source};
        readings[i].entries = read_entries(&source->dump, &readings[i].count, &it->torn);
        it->is_failed |= source->dump.reason == WEFT_RECORD_FAILED;
        first_ns = source->is_live && source->seen_ns < first_ns ? source->seen_ns : first_ns;
        take_comms(&readings[i]);
    }
    weft_inspect_find_blame(input, &it->blame);
    share_lists(it);
    it->is_only_comm = true;
    for (size_t i = 0; i < it->list_count; i++) {
        it->is_only_comm &= it->lists[i].comm == it->lists[0].comm;
    }
    it->threshold_ns = it->is_failed ? 0 : INSPECT_AT_WORK_NS;
    for (size_t i = 0; i < input->count; i++) {
        readings[i].at_ns = readings[i].source->is_live ? first_ns : INT64_MAX;
        take_counts(&readings[i]);
        take_entries(&readings[i]);
        take_doing(&readings[i]);
        free(readings[i].entries);
    }
    free(readings);
}

void weft_inspect_case_close(struct inspect_case *it)
{
    for (size_t i = 0; i < it->list_count; i++) {
        for (size_t j = 0; j < it->lists[i].count; j++) {
            free(it->lists[i].parts[j].entries);
        }
        free(it->lists[i].parts);
    }
    free(it->lists);
    *it = (struct inspect_case){0};
}

const struct inspect_part *weft_inspect_part(const struct inspect_list *list, uint32_t rank)
{
    size_t place = find_place(list, rank);
    return place < list->count && list->parts[place].rank == rank ? &list->parts[place] : NULL;
}

static const struct weft_dump_entry *find_entry(const struct inspect_part *part, uint32_t number)
{
    size_t low = 0, high = part->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (part->entries[middle].number < number) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < part->count && part->entries[low].number == number ? &part->entries[low] : NULL;
}

enum inspect_state weft_inspect_state(const struct inspect_part *part, uint32_t number,
                                      const struct weft_dump_entry **entry_p)
{
    *entry_p = NULL;
    if (number >= part->next) {
        return INSPECT_ABSENT;
    }
    *entry_p = find_entry(part, number);
    if (*entry_p == NULL || (*entry_p)->state == WEFT_DUMP_UNKNOWN) {
        return INSPECT_ENDED;
    }
    if ((*entry_p)->state == WEFT_DUMP_GOING) {
        return INSPECT_INSIDE;
    }
    return (*entry_p)->status == WEFT_OK ? INSPECT_ENDED : INSPECT_FAILED;
}
