/* SPDX-License-Identifier: Apache-2.0 */
/* Findings in sentences. Ranks are the communicator's, with the job's numbers behind them where those are others. */
#include "inspect.h"

#include <stdlib.h>
#include <string.h>

#define SAID_MAX 3 /* ranks of which more is said */

static size_t count_of(const struct inspect_list *list, const bool *chosen)
{
    size_t sum = 0;
    for (size_t at = 0; at < list->count; at++) {
        sum += chosen[at];
    }
    return sum;
}

static char *name_ranks(const struct inspect_list *list, const bool *chosen)
{
    size_t count;
    uint32_t *ranks = weft_inspect_pick(list, chosen, &count);
    char *text = weft_inspect_name(list, ranks, count);
    free(ranks);
    return text;
}

/* Grows a text that the caller owns. */
static void say(char **text, char *more)
{
    size_t len = *text != NULL ? strlen(*text) : 0, more_len = strlen(more);
    *text = weft_cli_grow(*text, len + more_len + 1, 1);
    memcpy(*text + len, more, more_len + 1);
    free(more);
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
        char *name = weft_inspect_name(list, &part->rank, 1);
        if (doing->state == WEFT_DUMP_GOING) {
            say(text, weft_cli_format(" R%s has been in %s%s for %s.", name + 1,
                                      weft_inspect_call(part->doing_list, doing, true, call),
                                      doing->comm != list->comm ? " of another communicator" : "",
                                      weft_inspect_span((int64_t)part->source->dump.taken.real_ns -
                                                            doing->began_ns,
                                                        span)));
        } else {
            say(text, weft_cli_format(" R%s is in no call of Weft.", name + 1));
        }
        free(name);
    }
}

static void say_stopped(char **text, const struct inspect_list *list)
{
    uint32_t said = 0;
    for (size_t at = 0; at < list->count && said < SAID_MAX; at++) {
        const struct inspect_part *part = &list->parts[at];
        if (part->source->is_stopped) {
            char *name = weft_inspect_name(list, &part->rank, 1);
            say(text,
                weft_cli_format(" R%s (pid %u) is stopped.", name + 1, part->source->dump.pid));
            free(name);
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
    size_t count;
    uint32_t *ranks = find_waited_for(finding, &count);
    if (count > 0) {
        char *names = weft_inspect_name(finding->list, ranks, count);
        say(text, weft_cli_format(" They wait for %s.", names));
        free(names);
    }
    free(ranks);
}

static char *missing_sentence(const struct inspect_finding *finding)
{
    char call[INSPECT_WORDS_LEN], span[INSPECT_WORDS_LEN], clock[INSPECT_WORDS_LEN];
    const struct inspect_list *list = finding->list;
    char *absent = name_ranks(list, finding->ranks), *others = name_ranks(list, finding->others);
    char *text = weft_cli_format("%c%s %s not entered %s since %s; %s %s waited for %s.",
                                 absent[0] - 'a' + 'A', absent + 1,
                                 is_only(finding, finding->ranks) ? "has" : "have",
                                 weft_inspect_call(finding->list, &finding->call, true, call),
                                 weft_inspect_clock(finding->since_ns, clock), others,
                                 is_only(finding, finding->others) ? "has" : "have",
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
    weft_inspect_call(finding->list, &finding->call, true, odd);
    weft_inspect_call(finding->list, &finding->other, true, usual);
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
        weft_inspect_call(finding->list, &finding->call, true, call),
        weft_inspect_span(finding->waited_ns, span), weft_inspect_clock(finding->since_ns, clock),
        has_others ? "; " : "", has_others ? others : "",
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
    char *text = weft_cli_format(
        "%c%s has been in %s for %s, since %s.", rank[0] - 'a' + 'A', rank + 1,
        weft_inspect_call(finding->list, &finding->call, false, call),
        weft_inspect_span(finding->waited_ns, span), weft_inspect_clock(finding->since_ns, clock));
    free(rank);
    return text;
}

/* Those of the list whose state is this one, but not who is blamed; "", else "; rank 3 had ended it". */
static void say_state(char **text, const struct inspect_finding *finding, enum inspect_state wanted,
                      const char *what)
{
    const struct inspect_list *list = finding->list;
    bool *chosen = weft_cli_alloc(list->count, sizeof(bool));
    for (size_t at = 0; at < list->count; at++) {
        const struct weft_dump_entry *entry;
        chosen[at] = !finding->ranks[at] &&
                     weft_inspect_state(&list->parts[at], finding->number, &entry) == wanted;
    }
    if (count_of(list, chosen) > 0) {
        char *names = name_ranks(list, chosen);
        say(text, weft_cli_format("; %s had %s it", names, what));
        free(names);
    }
    free(chosen);
}

static char *blamed_sentence(const struct inspect_finding *finding)
{
    const struct inspect_blame *blame = finding->blame;
    const struct weft_dump *dump = blame->dump;
    char call[INSPECT_WORDS_LEN], share[64] = "";
    if (blame->same < blame->all) {
        snprintf(share, sizeof(share), " in %zu of %zu recordings", blame->same, blame->all);
    }
    char *text = weft_cli_format("The verdict%s names rank %u%s (%s): %s.", share, dump->blamed,
                                 weft_inspect_is_renumbered(finding->list) ? " of the job" : "",
                                 weft_status_name(dump->status), dump->text);
    if (count_of(finding->list, finding->others) > 0) {
        char *inside = name_ranks(finding->list, finding->others);
        say(&text, weft_cli_format(" At that time %s %s inside %s", inside,
                                   is_only(finding, finding->others) ? "was" : "were",
                                   weft_inspect_call(finding->list, &finding->call, true, call)));
        say_state(&text, finding, INSPECT_ENDED, "ended");
        say_state(&text, finding, INSPECT_ABSENT, "not entered");
        say(&text, weft_cli_format("."));
        free(inside);
    }
    return text;
}

static void say_unknown(char **text, const struct inspect_list *list)
{
    char words[INSPECT_WORDS_LEN];
    size_t count;
    uint32_t *ranks = weft_inspect_pick(list, NULL, &count);
    if (count < list->ranks) {
        say(text, weft_cli_format(" There is no recording of rank%s %s%s.",
                                  list->ranks - count == 1 ? "" : "s",
                                  weft_inspect_gaps(ranks, count, list->ranks, words),
                                  weft_inspect_is_renumbered(list) ? " of the communicator" : ""));
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
    case INSPECT_BLAMED:
        text = blamed_sentence(finding);
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

static const struct weft_dump_entry *latest_of(const struct inspect_part *part)
{
    const struct weft_dump_entry *entry = part->count > 0 ? &part->entries[part->count - 1] : NULL;
    return entry != NULL && entry->state == WEFT_DUMP_ENDED ? entry : NULL;
}

/* The list whose latest call ended last of all, if that failed; NULL: it did not. */
static const struct inspect_list *failed_last(const struct inspect_case *it,
                                              const struct weft_dump_entry **failed_p)
{
    const struct inspect_list *found = NULL;
    const struct weft_dump_entry *last = NULL;
    for (size_t i = 0; i < it->list_count; i++) {
        for (size_t at = 0; at < it->lists[i].count; at++) {
            const struct weft_dump_entry *entry = latest_of(&it->lists[i].parts[at]);
            if (entry != NULL && (last == NULL || entry->ended_ns > last->ended_ns)) {
                last = entry;
                found = &it->lists[i];
            }
        }
    }
    *failed_p = last;
    return last != NULL && last->status != WEFT_OK ? found : NULL;
}

/* Nobody waits, but a call has failed. Recordings of ranks that run hold no verdict, so why is not known here. */
static char *failed_sentence(const struct inspect_list *list, const struct weft_dump_entry *failed)
{
    bool *chosen = weft_cli_grow(NULL, list->count, sizeof(*chosen));
    char *ranks, *text;
    for (size_t at = 0; at < list->count; at++) {
        const struct weft_dump_entry *entry = latest_of(&list->parts[at]);
        chosen[at] = entry != NULL && entry->status != WEFT_OK;
    }
    ranks = name_ranks(list, chosen);
    text = weft_cli_format("Nobody waits, but %s #%u has failed (%s) on %s: their output, or their "
                           "dumps (WEFT_DUMP), say why.",
                           weft_record_kind_name(failed->kind), failed->number,
                           weft_status_name(failed->status), ranks);
    free(ranks);
    free(chosen);
    return text;
}

char *weft_inspect_all_is_well(const struct inspect_case *it)
{
    const struct weft_dump_entry *failed;
    const struct inspect_list *list = failed_last(it, &failed);
    const struct inspect_list *longest = NULL;
    for (size_t i = 0; i < it->list_count; i++) {
        if (longest == NULL ||
            weft_inspect_reached(&it->lists[i]) > weft_inspect_reached(longest)) {
            longest = &it->lists[i];
        }
    }
    int64_t completed = longest != NULL ? weft_inspect_completed(longest) : -1;
    if (list != NULL) {
        return failed_sentence(list, failed);
    }
    if (completed < 0) {
        return weft_cli_format("No divergence: nobody waits%s.",
                               it->is_failed ? "" : " for more than a second");
    }
    return weft_cli_format(
        "No divergence: all recorded ranks have ended #%lld, and nobody waits%s.",
        (long long)completed, it->is_failed ? "" : " for more than a second");
}
