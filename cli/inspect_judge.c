/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who diverged. In each list: the first call in which ranks differ, else the first that not all have ended
 * while somebody waits. A rank that waits in one list and is waited for in another explains both; the one that
 * has waited longest comes first, calls that differ before that, and the rank that a failure's verdict names before
 * everything (inspect_blame.c).
 */
#include "inspect.h"

#include <stdlib.h>

static int64_t taken_ns(const struct inspect_part *part)
{
    return (int64_t)part->source->dump.taken.real_ns;
}

int64_t weft_inspect_completed(const struct inspect_list *list)
{
    int64_t first = INT64_MAX;
    for (size_t at = 0; at < list->count; at++) {
        const struct inspect_part *part = &list->parts[at];
        int64_t open = part->next;
        for (size_t i = part->count; i > 0; i--) {
            const struct weft_dump_entry *entry;
            enum inspect_state state =
                weft_inspect_state(part, part->entries[i - 1].number, &entry);
            open = state != INSPECT_ENDED ? part->entries[i - 1].number : open;
        }
        first = open < first ? open : first;
    }
    return first == INT64_MAX ? -1 : first - 1;
}

uint32_t weft_inspect_reached(const struct inspect_list *list)
{
    uint32_t reached = 0;
    for (size_t at = 0; at < list->count; at++) {
        const struct inspect_part *part = &list->parts[at];
        reached = part->next > reached ? part->next : reached;
    }
    return reached;
}

struct inspect_finding *weft_inspect_add(struct inspect_verdict *verdict, enum inspect_kind kind,
                                         const struct inspect_list *list, uint32_t number)
{
    verdict->findings =
        weft_cli_grow(verdict->findings, verdict->count + 1, sizeof(*verdict->findings));
    verdict->findings[verdict->count] =
        (struct inspect_finding){.kind = kind,
                                 .list = list,
                                 .number = number,
                                 .call = {.state = WEFT_DUMP_TORN},
                                 .other = {.state = WEFT_DUMP_TORN},
                                 .ranks = weft_cli_alloc(list->count, sizeof(bool)),
                                 .others = weft_cli_alloc(list->count, sizeof(bool))};
    return &verdict->findings[verdict->count++];
}

/* How long whoever waits longest in this list does, and since when; 0: nobody waits. */
static int64_t longest_wait(const struct inspect_list *list, int64_t *since_p)
{
    int64_t longest = 0;
    for (size_t at = 0; at < list->count; at++) {
        const struct inspect_part *part = &list->parts[at];
        for (size_t i = 0; i < part->count; i++) {
            const struct weft_dump_entry *entry = &part->entries[i];
            bool is_failed = entry->state == WEFT_DUMP_ENDED && entry->status != WEFT_OK;
            int64_t until = is_failed ? entry->ended_ns : taken_ns(part);
            int64_t waited = until - entry->began_ns + 1;
            if ((is_failed || entry->state == WEFT_DUMP_GOING) && waited > longest) {
                longest = waited;
                *since_p = entry->began_ns;
            }
        }
    }
    return longest;
}

/* ---- calls that differ ---- */

/* The call that most ranks made; NULL: none is known. */
static const struct weft_dump_entry *usual_call(const struct inspect_list *list, uint32_t number,
                                                bool by_chain)
{
    const struct weft_dump_entry *usual = NULL;
    uint32_t most = 0;
    for (size_t at = 0; at < list->count; at++) {
        const struct weft_dump_entry *entry, *other;
        uint32_t same = 0;
        weft_inspect_state(&list->parts[at], number, &entry);
        if (entry == NULL || entry->signature == 0) {
            continue;
        }
        if (usual != NULL && usual->signature == entry->signature &&
            (!by_chain || usual->tag == entry->tag)) {
            continue;
        }
        for (size_t i = 0; i < list->count; i++) {
            weft_inspect_state(&list->parts[i], number, &other);
            same += other != NULL && other->signature == entry->signature &&
                    (!by_chain || other->tag == entry->tag);
        }
        if (same > most) {
            most = same;
            usual = entry;
        }
    }
    return usual;
}

static int by_number(const void *left, const void *right)
{
    const struct weft_dump_entry *a = *(const struct weft_dump_entry *const *)left;
    const struct weft_dump_entry *b = *(const struct weft_dump_entry *const *)right;
    return a->number < b->number ? -1 : a->number > b->number;
}

/* All that have a signature, by number; owned by the caller. */
static const struct weft_dump_entry **sort_entries(const struct inspect_list *list, size_t *count_p)
{
    size_t room = 0, count = 0;
    for (size_t at = 0; at < list->count; at++) {
        room += list->parts[at].count;
    }
    const struct weft_dump_entry **sorted = weft_cli_alloc(room + 1, sizeof(void *));
    for (size_t at = 0; at < list->count; at++) {
        for (size_t i = 0; i < list->parts[at].count; i++) {
            if (list->parts[at].entries[i].signature != 0) {
                sorted[count++] = &list->parts[at].entries[i];
            }
        }
    }
    qsort(sorted, count, sizeof(void *), by_number);
    *count_p = count;
    return sorted;
}

/* The first number at which signatures differ, or what came before; false: none. */
static bool find_difference(const struct inspect_list *list, uint32_t *number_p, bool *is_other_p)
{
    size_t count;
    const struct weft_dump_entry **sorted = sort_entries(list, &count);
    const struct weft_dump_entry *first = NULL;
    bool is_found = false;
    *is_other_p = false;
    for (size_t i = 0; i < count && !*is_other_p; i++) {
        const struct weft_dump_entry *entry = sorted[i];
        if (first == NULL || first->number != entry->number) {
            if (is_found) {
                break; /* all of that number were looked at */
            }
            first = entry;
        }
        *is_other_p = entry->signature != first->signature;
        if (*is_other_p || (!list->is_control && entry->tag != first->tag)) {
            is_found = true;
            *number_p = entry->number;
        }
    }
    free(sorted);
    return is_found;
}

static void fill_mismatch(struct inspect_finding *finding, bool is_other)
{
    const struct inspect_list *list = finding->list;
    const struct weft_dump_entry *usual = usual_call(list, finding->number, !is_other), *entry;
    finding->other = *usual;
    finding->since_ns = INT64_MAX;
    for (size_t at = 0; at < list->count; at++) {
        weft_inspect_state(&list->parts[at], finding->number, &entry);
        if (entry == NULL || entry->signature == 0) {
            continue;
        }
        bool is_usual =
            entry->signature == usual->signature && (is_other || entry->tag == usual->tag);
        finding->others[at] = is_usual;
        finding->ranks[at] = !is_usual;
        if (!is_usual && finding->call.state == WEFT_DUMP_TORN) {
            finding->call = *entry;
        }
        finding->since_ns =
            entry->began_ns < finding->since_ns ? entry->began_ns : finding->since_ns;
    }
}

static void find_mismatch(struct inspect_verdict *verdict, const struct inspect_list *list)
{
    uint32_t number;
    bool is_other;
    if (find_difference(list, &number, &is_other)) {
        fill_mismatch(
            weft_inspect_add(verdict, is_other ? INSPECT_MISMATCH : INSPECT_HISTORY, list, number),
            is_other);
    }
}

/* ---- ranks that have not come, or do not leave ---- */

static void fill_missing(struct inspect_finding *finding)
{
    const struct inspect_list *list = finding->list;
    int64_t left_ns = INT64_MAX;
    for (size_t at = 0; at < list->count; at++) {
        const struct inspect_part *part = &list->parts[at];
        const struct weft_dump_entry *entry;
        enum inspect_state state = weft_inspect_state(part, finding->number, &entry);
        finding->ranks[at] = state == INSPECT_ABSENT;
        finding->others[at] = state != INSPECT_ABSENT;
        if (entry != NULL && finding->call.state == WEFT_DUMP_TORN) {
            finding->call = *entry;
        }
        if (state == INSPECT_ABSENT) {
            int64_t ended = part->count > 0 ? part->entries[part->count - 1].ended_ns : 0;
            left_ns = ended > 0 && ended < left_ns ? ended : left_ns;
        }
    }
    finding->since_ns = left_ns != INT64_MAX ? left_ns : finding->since_ns;
}

static void fill_stuck(struct inspect_finding *finding)
{
    const struct inspect_list *list = finding->list;
    for (size_t at = 0; at < list->count; at++) {
        const struct weft_dump_entry *entry;
        enum inspect_state state = weft_inspect_state(&list->parts[at], finding->number, &entry);
        finding->ranks[at] = state == INSPECT_INSIDE || state == INSPECT_FAILED;
        finding->others[at] = state == INSPECT_ENDED;
        if (finding->ranks[at] && finding->call.state == WEFT_DUMP_TORN) {
            finding->call = *entry;
        }
    }
}

static void find_wait(const struct inspect_case *it, struct inspect_verdict *verdict,
                      const struct inspect_list *list)
{
    int64_t since_ns = 0, waited_ns = longest_wait(list, &since_ns);
    uint32_t number = (uint32_t)(weft_inspect_completed(list) + 1);
    bool has_absent = false;
    if (waited_ns == 0 || waited_ns < it->threshold_ns) {
        return;
    }
    for (size_t at = 0; at < list->count; at++) {
        const struct weft_dump_entry *entry;
        has_absent |= weft_inspect_state(&list->parts[at], number, &entry) == INSPECT_ABSENT;
    }
    struct inspect_finding *finding =
        weft_inspect_add(verdict, has_absent ? INSPECT_MISSING : INSPECT_STUCK, list, number);
    finding->since_ns = since_ns;
    finding->waited_ns = waited_ns;
    if (has_absent) {
        fill_missing(finding);
    } else {
        fill_stuck(finding);
    }
}

/* ---- what is no collective ---- */

/* What it does instead of coming is said there. */
static bool is_told_of(const struct inspect_verdict *verdict, const struct inspect_part *part)
{
    for (size_t i = 0; i < verdict->count; i++) {
        const struct inspect_finding *finding = &verdict->findings[i];
        for (size_t at = 0; finding->kind == INSPECT_MISSING && at < finding->list->count; at++) {
            if (finding->ranks[at] && finding->list->parts[at].source == part->source) {
                return true;
            }
        }
    }
    return false;
}

static void find_messages(const struct inspect_case *it, struct inspect_verdict *verdict)
{
    for (size_t i = 0; i < it->list_count; i++) {
        const struct inspect_list *list = &it->lists[i];
        for (size_t at = 0; at < list->count && !list->is_control; at++) {
            const struct inspect_part *part = &list->parts[at];
            const struct weft_dump_entry *doing = &part->doing;
            if (doing->state != WEFT_DUMP_GOING || doing->comm != list->comm ||
                weft_record_is_collective(doing->kind) || weft_record_is_control(doing->kind) ||
                taken_ns(part) - doing->began_ns < it->threshold_ns || is_told_of(verdict, part)) {
                continue;
            }
            struct inspect_finding *finding = weft_inspect_add(verdict, INSPECT_MESSAGE, list, 0);
            finding->ranks[at] = true;
            finding->call = *doing;
            finding->since_ns = doing->began_ns;
            finding->waited_ns = taken_ns(part) - doing->began_ns;
        }
    }
}

/* ---- all ---- */

static int by_weight(const void *left, const void *right)
{
    const struct inspect_finding *a = left, *b = right;
    bool is_a_call = a->kind <= INSPECT_HISTORY, is_b_call = b->kind <= INSPECT_HISTORY;
    if (is_a_call != is_b_call) {
        return is_a_call ? -1 : 1;
    }
    if ((a->kind == INSPECT_MESSAGE) != (b->kind == INSPECT_MESSAGE)) {
        return a->kind == INSPECT_MESSAGE ? 1 : -1;
    }
    return a->waited_ns > b->waited_ns ? -1 : a->waited_ns < b->waited_ns;
}

void weft_inspect_judge(const struct inspect_case *it, struct inspect_verdict *verdict)
{
    *verdict = (struct inspect_verdict){0};
    for (size_t i = 0; i < it->list_count; i++) {
        size_t before = verdict->count;
        find_mismatch(verdict, &it->lists[i]);
        if (verdict->count == before) {
            find_wait(it, verdict, &it->lists[i]);
        }
    }
    find_messages(it, verdict);
    if (verdict->count > 0) {
        qsort(verdict->findings, verdict->count, sizeof(*verdict->findings), by_weight);
    }
    weft_inspect_blame(it, verdict);
    for (size_t i = 0; i < verdict->count; i++) {
        verdict->findings[i].text = weft_inspect_sentence(&verdict->findings[i], it->is_only_comm);
    }
}

void weft_inspect_verdict_close(struct inspect_verdict *verdict)
{
    for (size_t i = 0; i < verdict->count; i++) {
        free(verdict->findings[i].ranks);
        free(verdict->findings[i].others);
        free(verdict->findings[i].text);
    }
    free(verdict->findings);
    *verdict = (struct inspect_verdict){0};
}
