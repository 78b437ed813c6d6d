/* SPDX-License-Identifier: Apache-2.0 */
/* Calls, ranks and times in words: the parts of sentences. */
#include "inspect.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NS_PER_S INT64_C(1000000000)

/* false: there is no more room, and the text says so. */
static bool add_run(char text[INSPECT_WORDS_LEN], size_t *used, uint32_t first, uint32_t last)
{
    size_t room = INSPECT_WORDS_LEN - *used;
    if (room < 32) { /* for two numbers and this */
        snprintf(text + *used, room, ",...");
        return false;
    }
    *used += (size_t)snprintf(text + *used, room, first == last ? "%s%u" : "%s%u-%u",
                              *used > 0 ? "," : "", first, last);
    return true;
}

const char *weft_inspect_ranks(const uint32_t *ranks, size_t count, char text[INSPECT_WORDS_LEN])
{
    size_t used = 0;
    bool has_room = true;
    text[0] = '\0';
    for (size_t i = 0; i < count && has_room; i++) {
        uint32_t first = ranks[i];
        while (i + 1 < count && ranks[i + 1] == ranks[i] + 1) {
            i++;
        }
        has_room = add_run(text, &used, first, ranks[i]);
    }
    return text;
}

const char *weft_inspect_gaps(const uint32_t *ranks, size_t count, uint32_t total,
                              char text[INSPECT_WORDS_LEN])
{
    size_t used = 0;
    uint32_t next = 0; /* the lowest of whom nothing was said */
    bool has_room = true;
    text[0] = '\0';
    for (size_t i = 0; i <= count && has_room; i++) {
        uint32_t end = i < count ? ranks[i] : total;
        if (end > next) {
            has_room = add_run(text, &used, next, end - 1);
        }
        next = end + 1;
    }
    return text;
}

static int by_rank(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return a < b ? -1 : a > b;
}

size_t weft_inspect_sort(uint32_t *ranks, size_t count)
{
    size_t kept = 0;
    qsort(ranks, count, sizeof(*ranks), by_rank);
    for (size_t i = 0; i < count; i++) {
        if (kept == 0 || ranks[kept - 1] != ranks[i]) {
            ranks[kept++] = ranks[i];
        }
    }
    return kept;
}

uint32_t *weft_inspect_pick(const struct inspect_list *list, const bool *chosen, size_t *count_p)
{
    uint32_t *ranks = weft_cli_alloc(list->count, sizeof(*ranks));
    *count_p = 0;
    for (size_t at = 0; at < list->count; at++) {
        if (chosen == NULL || chosen[at]) {
            ranks[(*count_p)++] = list->parts[at].rank;
        }
    }
    return ranks;
}

const char *weft_inspect_chosen(const struct inspect_list *list, const bool *chosen,
                                char text[INSPECT_WORDS_LEN])
{
    size_t count;
    uint32_t *ranks = weft_inspect_pick(list, chosen, &count);
    weft_inspect_ranks(ranks, count, text);
    free(ranks);
    return text;
}

/* " (4,6 of the job)"; "" where the job has the same numbers, or not all of them are known. */
static const char *name_in_job(const struct inspect_list *list, const uint32_t *ranks, size_t count,
                               char text[INSPECT_WORDS_LEN + 16])
{
    uint32_t *in_job = weft_cli_alloc(count, sizeof(*in_job));
    char words[INSPECT_WORDS_LEN];
    bool is_known = true, is_other = false;
    for (size_t i = 0; i < count && is_known; i++) {
        const struct inspect_part *part = weft_inspect_part(list, ranks[i]);
        is_known = part != NULL;
        in_job[i] = is_known ? part->source->dump.rank : 0;
        is_other |= in_job[i] != ranks[i];
    }
    text[0] = '\0';
    if (is_known && is_other) {
        snprintf(text, INSPECT_WORDS_LEN + 16, " (%s of the job)",
                 weft_inspect_ranks(in_job, count, words));
    }
    free(in_job);
    return text;
}

char *weft_inspect_name(const struct inspect_list *list, const uint32_t *ranks, size_t count)
{
    char words[INSPECT_WORDS_LEN], in_job[INSPECT_WORDS_LEN + 16];
    name_in_job(list, ranks, count, in_job);
    if (count == list->ranks && count > 1) {
        return weft_cli_format("all %zu ranks%s", count, in_job);
    }
    return weft_cli_format("rank%s %s%s", count == 1 ? "" : "s",
                           weft_inspect_ranks(ranks, count, words), in_job);
}

bool weft_inspect_is_renumbered(const struct inspect_list *list)
{
    for (size_t at = 0; at < list->count; at++) {
        const struct weft_dump *dump = &list->parts[at].source->dump;
        if (list->parts[at].rank != dump->rank || list->ranks < dump->ranks) {
            return true;
        }
    }
    return false;
}

static void name_message(const struct inspect_list *list, const struct weft_dump_entry *entry,
                         char *text, size_t room)
{
    char peer[48] = "any rank", tag[32] = "";
    const struct inspect_part *part = list != NULL ? weft_inspect_part(list, entry->peer) : NULL;
    bool is_from = entry->kind == WEFT_RECORD_RECV || entry->kind == WEFT_RECORD_CONTROL_RECV ||
                   entry->kind == WEFT_RECORD_GET || entry->kind == WEFT_RECORD_PROBE;
    bool is_tagged = entry->kind == WEFT_RECORD_SEND || entry->kind == WEFT_RECORD_RECV ||
                     entry->kind == WEFT_RECORD_CONTROL_SEND ||
                     entry->kind == WEFT_RECORD_CONTROL_RECV || entry->kind == WEFT_RECORD_PROBE;
    if (entry->peer != WEFT_RECORD_ANY) {
        snprintf(peer, sizeof(peer), "rank %u", entry->peer);
    }
    if (part != NULL && part->source->dump.rank != entry->peer) {
        snprintf(peer, sizeof(peer), "rank %u (%u of the job)", entry->peer,
                 part->source->dump.rank);
    }
    if (is_tagged && entry->tag != WEFT_RECORD_ANY) {
        snprintf(tag, sizeof(tag), ", tag %u", entry->tag);
    }
    if (entry->kind == WEFT_RECORD_WAIT_SIGNAL || entry->kind == WEFT_RECORD_SHRINK ||
        entry->kind == WEFT_RECORD_CLOSE || entry->kind == WEFT_RECORD_DUMP) {
        snprintf(text, room, "%s", weft_record_kind_name(entry->kind));
    } else if (entry->kind == WEFT_RECORD_QUIET || entry->kind == WEFT_RECORD_FENCE) {
        snprintf(text, room, "%s (%s)", weft_record_kind_name(entry->kind), peer);
    } else if (entry->kind == WEFT_RECORD_PROBE) {
        snprintf(text, room, "probe (from %s%s)", peer, tag);
    } else {
        snprintf(text, room, "%s (%llu bytes %s %s%s)", weft_record_kind_name(entry->kind),
                 (unsigned long long)entry->count, is_from ? "from" : "to", peer, tag);
    }
}

static void name_collective(const struct weft_dump_entry *entry, char *text, size_t room)
{
    weft_coll_t coll = (weft_coll_t)entry->kind;
    bool is_summed = coll == WEFT_ALLREDUCE || coll == WEFT_REDUCE || coll == WEFT_REDUCE_SCATTER;
    bool is_rooted = coll == WEFT_BROADCAST || coll == WEFT_REDUCE || coll == WEFT_GATHER ||
                     coll == WEFT_SCATTER;
    char root[32] = "";
    if (is_rooted) {
        snprintf(root, sizeof(root), ", root %u", entry->peer);
    }
    if (coll == WEFT_BARRIER) {
        text[0] = '\0';
        return;
    }
    snprintf(text, room, " (%s x %llu%s%s%s)", weft_dtype_name((weft_dtype_t)entry->dtype),
             (unsigned long long)entry->count, is_summed ? ", " : "",
             is_summed ? weft_redop_name((weft_redop_t)entry->op) : "", root);
}

const char *weft_inspect_call(const struct inspect_list *list, const struct weft_dump_entry *entry,
                              bool is_numbered, char text[INSPECT_WORDS_LEN])
{
    char number[32] = "", rest[96] = "";
    if (entry->state == WEFT_DUMP_TORN) {
        snprintf(text, INSPECT_WORDS_LEN, "a call");
        return text;
    }
    if (is_numbered) {
        snprintf(number, sizeof(number), " #%u", entry->number);
    }
    if (weft_record_is_collective(entry->kind)) {
        name_collective(entry, rest, sizeof(rest));
    } else if (entry->kind == WEFT_RECORD_CONTROL_BROADCAST) {
        snprintf(rest, sizeof(rest), " (%llu bytes, root %u)", (unsigned long long)entry->count,
                 entry->peer);
    } else if (entry->kind == WEFT_RECORD_CONTROL_ALLGATHER) {
        snprintf(rest, sizeof(rest), " (%llu bytes)", (unsigned long long)entry->count);
    } else if (!weft_record_is_control(entry->kind)) {
        name_message(list, entry, text, INSPECT_WORDS_LEN);
        return text;
    }
    snprintf(text, INSPECT_WORDS_LEN, "%s%s%s", weft_record_kind_name(entry->kind), number, rest);
    return text;
}

const char *weft_inspect_clock(int64_t real_ns, char text[INSPECT_WORDS_LEN])
{
    time_t seconds = (time_t)(real_ns / NS_PER_S);
    struct tm parts;
    size_t used = 0;
    if (localtime_r(&seconds, &parts) != NULL) {
        used = strftime(text, INSPECT_WORDS_LEN, "%H:%M:%S", &parts);
    }
    snprintf(text + used, INSPECT_WORDS_LEN - used, ".%03d", (int)(real_ns % NS_PER_S / 1000000));
    return text;
}

const char *weft_inspect_span(int64_t ns, char text[INSPECT_WORDS_LEN])
{
    double seconds = (double)ns / 1e9;
    if (seconds >= 600) {
        snprintf(text, INSPECT_WORDS_LEN, "%.0f min", seconds / 60);
    } else if (seconds >= 1) {
        snprintf(text, INSPECT_WORDS_LEN, "%.1f s", seconds);
    } else if (seconds >= 1e-3) {
        snprintf(text, INSPECT_WORDS_LEN, "%.1f ms", seconds * 1e3);
    } else {
        snprintf(text, INSPECT_WORDS_LEN, "%.1f us", seconds * 1e6);
    }
    return text;
}
