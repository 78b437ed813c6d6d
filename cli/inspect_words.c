/* SPDX-License-Identifier: Apache-2.0 */
/* Calls, ranks, times and findings in words. */
#include "inspect.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NS_PER_S INT64_C(1000000000)
#define SAID_MAX 3 /* ranks of which more is said */

/* ---- parts of sentences ---- */

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

static size_t count_of(const struct inspect_list *list, const bool *chosen)
{
    size_t sum = 0;
    for (size_t at = 0; at < list->count; at++) {
        sum += chosen[at];
    }
    return sum;
}

/* "rank 2", "ranks 0-1,3", "all 4 ranks" */
static char *name_ranks(const struct inspect_list *list, const bool *chosen)
{
    char text[INSPECT_WORDS_LEN];
    size_t named = count_of(list, chosen);
    if (named == list->ranks && named > 1) {
        return weft_cli_format("all %zu ranks", named);
    }
    return weft_cli_format("rank%s %s", named == 1 ? "" : "s",
                           weft_inspect_chosen(list, chosen, text));
}

static void name_message(const struct weft_dump_entry *entry, char *text, size_t room)
{
    char peer[32] = "any rank", tag[32] = "";
    bool is_from = entry->kind == WEFT_RECORD_RECV || entry->kind == WEFT_RECORD_CONTROL_RECV ||
                   entry->kind == WEFT_RECORD_GET || entry->kind == WEFT_RECORD_PROBE;
    bool is_tagged = entry->kind == WEFT_RECORD_SEND || entry->kind == WEFT_RECORD_RECV ||
                     entry->kind == WEFT_RECORD_CONTROL_SEND ||
                     entry->kind == WEFT_RECORD_CONTROL_RECV || entry->kind == WEFT_RECORD_PROBE;
    if (entry->peer != WEFT_RECORD_ANY) {
        snprintf(peer, sizeof(peer), "rank %u", entry->peer);
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

const char *weft_inspect_call(const struct weft_dump_entry *entry, bool is_numbered,
                              char text[INSPECT_WORDS_LEN])
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
        name_message(entry, text, INSPECT_WORDS_LEN);
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

/* ---- sentences ---- */

/* Grows a text that the caller owns. */
static void say(char **text, char *more)
{
    char *whole = weft_cli_format("%s%s", *text != NULL ? *text : "", more);
    free(*text);
    free(more);
    *text = whole;
}

static bool is_only(const struct inspect_finding *finding, const bool *ranks)
{
    return count_of(finding->list, ranks) == 1;
}

/* What those who have not come do instead. */
static void say_doing(char **text, const struct inspect_finding *finding)
{
    const struct inspect_list *list = finding->list;
    char call[INSPECT_WORDS_LEN], span[INSPECT_WORDS_LEN];
    uint32_t said = 0;
    for (size_t at = 0; at < list->count && said < SAID_MAX; at++) {
        const struct inspect_part *part = &list->parts[at];
        const struct weft_dump_entry *doing = &part->doing;
        if (finding->kind != INSPECT_MISSING || !finding->ranks[at] || part->source->is_stopped) {
            continue;
        }
        said++;
        if (doing->state == WEFT_DUMP_GOING) {
            say(text, weft_cli_format(" Rank %u has been in %s%s for %s.", part->rank,
                                      weft_inspect_call(doing, true, call),
                                      doing->comm != list->comm ? " of another communicator" : "",
                                      weft_inspect_span((int64_t)part->source->dump.taken.real_ns -
                                                            doing->began_ns,
                                                        span)));
        } else {
            say(text, weft_cli_format(" Rank %u is in no call of Weft.", part->rank));
        }
    }
}

static void say_stopped(char **text, const struct inspect_list *list)
{
    uint32_t said = 0;
    for (size_t at = 0; at < list->count && said < SAID_MAX; at++) {
        const struct inspect_part *part = &list->parts[at];
        if (part->source->is_stopped) {
            say(text, weft_cli_format(" Rank %u (pid %u) is stopped.", part->rank,
                                      part->source->dump.pid));
            said++;
        }
    }
}

/* Whom those inside say that they wait for, ascending; [*count_p], owned by the caller. */
static uint32_t *find_waited_for(const struct inspect_finding *finding, size_t *count_p)
{
    const struct inspect_list *list = finding->list;
    uint32_t *ranks = weft_cli_alloc(list->count, sizeof(*ranks));
    size_t said = 0;
    for (size_t at = 0; at < list->count; at++) {
        const struct weft_dump_entry *entry;
        weft_inspect_state(&list->parts[at], finding->number, &entry);
        if (entry != NULL && finding->ranks[at] && entry->waits_for < list->ranks) {
            ranks[said++] = entry->waits_for;
        }
    }
    *count_p = weft_inspect_sort(ranks, said);
    return ranks;
}

static void say_waits_for(char **text, const struct inspect_finding *finding)
{
    char words[INSPECT_WORDS_LEN];
    size_t count;
    uint32_t *ranks = find_waited_for(finding, &count);
    if (count > 1 && count == finding->list->ranks) {
        say(text, weft_cli_format(" They wait for all %zu ranks.", count));
    } else if (count > 0) {
        say(text, weft_cli_format(" They wait for rank%s %s.", count == 1 ? "" : "s",
                                  weft_inspect_ranks(ranks, count, words)));
    }
    free(ranks);
}

static char *missing_sentence(const struct inspect_finding *finding)
{
    char call[INSPECT_WORDS_LEN], span[INSPECT_WORDS_LEN], clock[INSPECT_WORDS_LEN];
    const struct inspect_list *list = finding->list;
    char *absent = name_ranks(list, finding->ranks), *others = name_ranks(list, finding->others);
    char *text = weft_cli_format(
        "%c%s %s not entered %s since %s; %s %s waited for %s.", absent[0] - 'a' + 'A', absent + 1,
        is_only(finding, finding->ranks) ? "has" : "have",
        weft_inspect_call(&finding->call, true, call), weft_inspect_clock(finding->since_ns, clock),
        others, is_only(finding, finding->others) ? "has" : "have",
        weft_inspect_span(finding->waited_ns, span));
    free(absent);
    free(others);
    return text;
}

static char *mismatch_sentence(const struct inspect_finding *finding)
{
    char odd[INSPECT_WORDS_LEN], usual[INSPECT_WORDS_LEN], clock[INSPECT_WORDS_LEN];
    const struct inspect_list *list = finding->list;
    char *absent = name_ranks(list, finding->ranks), *others = name_ranks(list, finding->others);
    char *text;
    weft_inspect_call(&finding->call, true, odd);
    weft_inspect_call(&finding->other, true, usual);
    weft_inspect_clock(finding->since_ns, clock);
    if (finding->kind == INSPECT_HISTORY) {
        text =
            weft_cli_format("%c%s made other calls than %s before %s, the oldest one recorded; a "
                            "larger WEFT_RECORDER would show which.",
                            absent[0] - 'a' + 'A', absent + 1, others, usual);
    } else {
        text = weft_cli_format(
            "%c%s called %s where %s called %s%s, at %s.", absent[0] - 'a' + 'A', absent + 1, odd,
            others, usual,
            strcmp(odd, usual) == 0 ? " with other pieces, scale, algorithm or settings" : "",
            clock);
    }
    free(absent);
    free(others);
    return text;
}

static char *stuck_sentence(const struct inspect_finding *finding)
{
    char call[INSPECT_WORDS_LEN], span[INSPECT_WORDS_LEN], clock[INSPECT_WORDS_LEN];
    const struct inspect_list *list = finding->list;
    char *inside = name_ranks(list, finding->ranks), *others = name_ranks(list, finding->others);
    bool has_others = count_of(list, finding->others) > 0;
    char *text = weft_cli_format(
        "%c%s %s been inside %s for %s, since %s%s%s%s.", inside[0] - 'a' + 'A', inside + 1,
        is_only(finding, finding->ranks) ? "has" : "have",
        weft_inspect_call(&finding->call, true, call), weft_inspect_span(finding->waited_ns, span),
        weft_inspect_clock(finding->since_ns, clock), has_others ? "; " : "",
        has_others ? others : "",
        !has_others                         ? ""
        : is_only(finding, finding->others) ? " has ended it"
                                            : " have ended it");
    free(inside);
    free(others);
    return text;
}

static char *message_sentence(const struct inspect_finding *finding)
{
    char call[INSPECT_WORDS_LEN], span[INSPECT_WORDS_LEN], clock[INSPECT_WORDS_LEN];
    char *rank = name_ranks(finding->list, finding->ranks);
    char *text = weft_cli_format("%c%s has been in %s for %s, since %s.", rank[0] - 'a' + 'A',
                                 rank + 1, weft_inspect_call(&finding->call, false, call),
                                 weft_inspect_span(finding->waited_ns, span),
                                 weft_inspect_clock(finding->since_ns, clock));
    free(rank);
    return text;
}

static void say_unknown(char **text, const struct inspect_list *list)
{
    char words[INSPECT_WORDS_LEN];
    size_t count;
    uint32_t *ranks = weft_inspect_pick(list, NULL, &count);
    if (count < list->ranks) {
        say(text, weft_cli_format(" There is no recording of rank%s %s.",
                                  list->ranks - count == 1 ? "" : "s",
                                  weft_inspect_gaps(ranks, count, list->ranks, words)));
    }
    free(ranks);
}

static void say_completed(char **text, const struct inspect_list *list)
{
    int64_t completed = weft_inspect_completed(list);
    say(text, completed < 0
                  ? weft_cli_format(" No operation was ended by all recorded ranks.")
                  : weft_cli_format(" The last one that all recorded ranks ended is #%lld.",
                                    (long long)completed));
}

char *weft_inspect_sentence(const struct inspect_finding *finding, bool is_only_comm)
{
    char *text;
    switch (finding->kind) {
    case INSPECT_MISMATCH:
    case INSPECT_HISTORY:
        text = mismatch_sentence(finding);
        break;
    case INSPECT_MISSING:
        text = missing_sentence(finding);
        break;
    case INSPECT_STUCK:
        text = stuck_sentence(finding);
        say_waits_for(&text, finding);
        break;
    default:
        text = message_sentence(finding);
    }
    say_doing(&text, finding);
    say_stopped(&text, finding->list);
    if (finding->kind != INSPECT_MESSAGE) {
        say_unknown(&text, finding->list);
        say_completed(&text, finding->list);
    }
    if (!is_only_comm) {
        say(&text, weft_cli_format(" (Communicator %016llx of %u ranks.)",
                                   (unsigned long long)finding->list->comm, finding->list->ranks));
    }
    return text;
}

char *weft_inspect_all_is_well(const struct inspect_case *it)
{
    const struct inspect_list *longest = NULL;
    for (size_t i = 0; i < it->list_count; i++) {
        if (longest == NULL ||
            weft_inspect_reached(&it->lists[i]) > weft_inspect_reached(longest)) {
            longest = &it->lists[i];
        }
    }
    int64_t completed = longest != NULL ? weft_inspect_completed(longest) : -1;
    if (completed < 0) {
        return weft_cli_format("No divergence: nobody waits%s.",
                               it->is_failed ? "" : " for more than a second");
    }
    return weft_cli_format(
        "No divergence: all recorded ranks have ended #%lld, and nobody waits%s.",
        (long long)completed, it->is_failed ? "" : " for more than a second");
}
