/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A failure has a verdict, and recordings that were made by one tell it. The rank that it names comes before any guess
 * from who is behind: when a rank dies the others stand where they happen to be, and the dead one may have left no
 * recording. Only what is known better than the verdict stays before it: calls that differ, where the verdict itself is
 * of a deadline; a rank that has not come, where the verdict names the same.
 */
#include "inspect.h"

#include <stdlib.h>
#include <string.h>

static bool is_telling(const struct weft_dump *dump)
{
    return dump->reason == WEFT_RECORD_FAILED && dump->blamed != WEFT_RECORD_ANY;
}

void weft_inspect_find_blame(const struct inspect_input *input, struct inspect_blame *blame)
{
    *blame = (struct inspect_blame){0};
    for (size_t i = 0; i < input->count; i++) {
        const struct weft_dump *dump = &input->sources[i].dump;
        size_t same = 0;
        blame->all += dump->reason == WEFT_RECORD_FAILED;
        if (!is_telling(dump) || (blame->dump != NULL && blame->dump->blamed == dump->blamed)) {
            continue;
        }
        for (size_t j = 0; j < input->count; j++) {
            const struct weft_dump *other = &input->sources[j].dump;
            same += is_telling(other) && other->blamed == dump->blamed;
        }
        if (same > blame->same) {
            blame->same = same;
            blame->dump = dump;
        }
    }
}

static bool is_wait(const struct inspect_finding *finding)
{
    return finding->kind == INSPECT_MISSING || finding->kind == INSPECT_STUCK;
}

/* The list's part of the rank that is blamed; list->count: none. */
static size_t find_part(const struct inspect_list *list, const struct weft_dump *blame)
{
    size_t at = 0;
    while (at < list->count && list->parts[at].source->dump.rank != blame->blamed) {
        at++;
    }
    return at;
}

/* Does it say of the same rank more than the verdict does? */
static bool says_more(const struct inspect_finding *finding, const struct weft_dump *blame)
{
    bool is_guess = blame->status == WEFT_ERR_TIMEOUT || blame->status == WEFT_ERR_MISMATCH;
    size_t at = find_part(finding->list, blame);
    if (!is_guess) {
        return false;
    }
    return finding->kind <= INSPECT_HISTORY ||
           (finding->kind == INSPECT_MISSING && at < finding->list->count && finding->ranks[at]);
}

static void move_first(struct inspect_verdict *verdict, size_t at)
{
    struct inspect_finding first = verdict->findings[at];
    memmove(&verdict->findings[1], &verdict->findings[0], at * sizeof(first));
    verdict->findings[0] = first;
}

/* A wait in which the rank that is blamed may have a part; else any; NULL: nobody waits. */
static const struct inspect_finding *find_wait(const struct inspect_verdict *verdict,
                                               const struct weft_dump *blame)
{
    const struct inspect_finding *any = NULL;
    for (size_t i = 0; i < verdict->count; i++) {
        const struct inspect_finding *finding = &verdict->findings[i];
        const struct inspect_list *list = finding->list;
        if (is_wait(finding) &&
            (find_part(list, blame) < list->count || list->count < list->ranks)) {
            return finding;
        }
        any = any == NULL && is_wait(finding) ? finding : any;
    }
    return any;
}

static const struct inspect_list *longest_list(const struct inspect_case *it)
{
    const struct inspect_list *longest = &it->lists[0];
    for (size_t i = 1; i < it->list_count; i++) {
        if (weft_inspect_reached(&it->lists[i]) > weft_inspect_reached(longest)) {
            longest = &it->lists[i];
        }
    }
    return longest;
}

/* Whoever dies leaves others waiting a little: that is said with the verdict, and no finding of its own. */
static void drop_short_waits(struct inspect_verdict *verdict, const struct inspect_list *told)
{
    size_t kept = 0;
    for (size_t i = 0; i < verdict->count; i++) {
        struct inspect_finding *finding = &verdict->findings[i];
        bool is_told = finding->kind == INSPECT_STUCK && finding->list == told;
        if (finding->kind > INSPECT_HISTORY &&
            (is_told || finding->waited_ns < INSPECT_AT_WORK_NS)) {
            free(finding->ranks);
            free(finding->others);
            continue;
        }
        verdict->findings[kept++] = *finding;
    }
    verdict->count = kept;
}

/* Where everybody was. */
static void fill(struct inspect_finding *finding, const struct weft_dump *blame)
{
    const struct inspect_list *list = finding->list;
    for (size_t at = 0; at < list->count; at++) {
        const struct weft_dump_entry *entry;
        enum inspect_state state = weft_inspect_state(&list->parts[at], finding->number, &entry);
        finding->ranks[at] = list->parts[at].source->dump.rank == blame->blamed;
        finding->others[at] =
            !finding->ranks[at] && (state == INSPECT_INSIDE || state == INSPECT_FAILED);
        if (finding->others[at] && finding->call.state == WEFT_DUMP_TORN) {
            finding->call = *entry;
        }
    }
}

void weft_inspect_blame(const struct inspect_case *it, struct inspect_verdict *verdict)
{
    const struct weft_dump *blame = it->blame.dump;
    const struct inspect_finding *wait;
    for (size_t i = 0; blame != NULL && i < verdict->count; i++) {
        if (says_more(&verdict->findings[i], blame)) {
            move_first(verdict, i);
            return;
        }
    }
    if (blame == NULL || it->list_count == 0) {
        return;
    }
    wait = find_wait(verdict, blame);
    const struct inspect_list *list = wait != NULL ? wait->list : longest_list(it);
    int64_t since_ns = wait != NULL ? wait->since_ns : (int64_t)blame->taken.real_ns;
    int64_t waited_ns = wait != NULL ? wait->waited_ns : 0;
    if (blame->status == WEFT_ERR_PEER || blame->status == WEFT_ERR_NETWORK) {
        drop_short_waits(verdict, list);
    }
    struct inspect_finding *finding = weft_inspect_add(
        verdict, INSPECT_BLAMED, list, (uint32_t)(weft_inspect_completed(list) + 1));
    finding->blame = &it->blame;
    finding->since_ns = since_ns;
    finding->waited_ns = waited_ns;
    fill(finding, blame);
    move_first(verdict, verdict->count - 1);
}
