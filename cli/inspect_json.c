/* SPDX-License-Identifier: Apache-2.0 */
/* What weft inspect found, as one object. */
#include "inspect.h"

#include <stdlib.h>

static const char *const kind_names[] = {
    [INSPECT_MISMATCH] = "mismatch",   [INSPECT_HISTORY] = "mismatch_before",
    [INSPECT_MISSING] = "not_entered", [INSPECT_STUCK] = "stuck",
    [INSPECT_MESSAGE] = "message",     [INSPECT_BLAMED] = "failed",
};
static const char *const state_names[] = {
    [INSPECT_ABSENT] = "not_entered",
    [INSPECT_INSIDE] = "inside",
    [INSPECT_FAILED] = "failed",
    [INSPECT_ENDED] = "ended",
};

static void print_ranks(struct weft_cli_json *json, const char *key,
                        const struct inspect_list *list, const bool *chosen)
{
    weft_cli_json_array(json, key);
    for (size_t at = 0; at < list->count; at++) {
        if (chosen[at]) {
            weft_cli_json_int(json, NULL, list->parts[at].rank);
        }
    }
    weft_cli_json_end(json);
}

/* The same ranks in the same order, as the job counts. */
static void print_job_ranks(struct weft_cli_json *json, const char *key,
                            const struct inspect_list *list, const bool *chosen)
{
    weft_cli_json_array(json, key);
    for (size_t at = 0; at < list->count; at++) {
        if (chosen[at]) {
            weft_cli_json_int(json, NULL, list->parts[at].source->dump.rank);
        }
    }
    weft_cli_json_end(json);
}

/* The job knows the rank that a verdict names, also where there is no recording of it. */
static void print_accused(struct weft_cli_json *json, const struct inspect_finding *finding)
{
    print_ranks(json, "ranks", finding->list, finding->ranks);
    if (finding->kind == INSPECT_BLAMED) {
        weft_cli_json_array(json, "job_ranks");
        weft_cli_json_int(json, NULL, finding->blame->dump->blamed);
        weft_cli_json_end(json);
    } else {
        print_job_ranks(json, "job_ranks", finding->list, finding->ranks);
    }
}

/* Of whom there is no recording. */
static void print_missing(struct weft_cli_json *json, const struct inspect_input *input)
{
    uint32_t total;
    size_t count, at = 0;
    uint32_t *recorded = weft_inspect_recorded(input, &count, &total);
    weft_cli_json_array(json, "missing");
    for (uint32_t rank = 0; rank < total; rank++) {
        if (at < count && recorded[at] == rank) {
            at++;
        } else {
            weft_cli_json_int(json, NULL, rank);
        }
    }
    weft_cli_json_end(json);
    free(recorded);
}

static void print_id(struct weft_cli_json *json, const char *key, uint64_t id)
{
    char text[24];
    snprintf(text, sizeof(text), "%016llx", (unsigned long long)id);
    weft_cli_json_text(json, key, text);
}

static void print_seconds(struct weft_cli_json *json, const char *key, int64_t ns)
{
    weft_cli_json_real(json, key, (double)ns / 1e9);
}

/* Nine digits are not enough for one since 1970. */
static void print_time(struct weft_cli_json *json, const char *key, int64_t ns)
{
    char text[40];
    snprintf(text, sizeof(text), "%lld.%06lld", (long long)(ns / 1000000000),
             (long long)(ns % 1000000000 / 1000));
    weft_cli_json_text(json, key, text);
}

static void print_finding(struct weft_cli_json *json, const struct inspect_finding *finding)
{
    char call[INSPECT_WORDS_LEN];
    bool is_numbered = finding->kind != INSPECT_MESSAGE;
    weft_cli_json_object(json, NULL);
    weft_cli_json_text(json, "kind", kind_names[finding->kind]);
    weft_cli_json_text(json, "text", finding->text);
    print_id(json, "communicator", finding->list->comm);
    if (is_numbered) {
        weft_cli_json_int(json, "operation", finding->number);
    }
    weft_cli_json_text(json, "call",
                       weft_inspect_call(finding->list, &finding->call, is_numbered, call));
    print_accused(json, finding);
    if (finding->kind <= INSPECT_HISTORY) {
        weft_cli_json_text(json, "other_call",
                           weft_inspect_call(finding->list, &finding->other, true, call));
    }
    print_ranks(json, "others", finding->list, finding->others);
    print_job_ranks(json, "job_others", finding->list, finding->others);
    print_time(json, "since", finding->since_ns);
    print_seconds(json, "waited_s", finding->waited_ns);
    weft_cli_json_end(json);
}

static void print_part(struct weft_cli_json *json, const struct inspect_list *list,
                       const struct inspect_part *part, uint32_t number)
{
    const struct weft_dump_entry *entry;
    enum inspect_state state = weft_inspect_state(part, number, &entry);
    char words[INSPECT_WORDS_LEN];
    weft_cli_json_object(json, NULL);
    weft_cli_json_int(json, "rank", part->rank);
    weft_cli_json_int(json, "job_rank", part->source->dump.rank);
    weft_cli_json_text(json, "state", state_names[state]);
    if (entry != NULL) {
        weft_cli_json_text(json, "call", weft_inspect_call(NULL, entry, false, words));
        weft_cli_json_text(json, "plan",
                           weft_wire_dump_name(&part->source->dump, entry->name, words));
        print_time(json, "began", entry->began_ns);
        if (entry->state == WEFT_DUMP_ENDED) {
            print_time(json, "ended", entry->ended_ns);
            weft_cli_json_text(json, "status", weft_status_name(entry->status));
        } else if (entry->waits_for < list->ranks) {
            weft_cli_json_int(json, "waits_for", entry->waits_for);
            weft_cli_json_int(json, "percent", entry->percent);
        }
    }
    weft_cli_json_end(json);
}

static void print_list(const struct inspect_view *view, struct weft_cli_json *json,
                       const struct inspect_list *list)
{
    uint32_t first, end;
    weft_inspect_window(view, list, &first, &end);
    weft_cli_json_object(json, NULL);
    print_id(json, "id", list->comm);
    weft_cli_json_text(json, "calls", list->is_control ? "control" : "collectives");
    weft_cli_json_int(json, "ranks", list->ranks);
    weft_cli_json_int(json, "completed", weft_inspect_completed(list));
    weft_cli_json_array(json, "operations");
    for (uint32_t number = first; number < end; number++) {
        weft_cli_json_object(json, NULL);
        weft_cli_json_int(json, "number", number);
        weft_cli_json_array(json, "ranks");
        for (size_t at = 0; at < list->count; at++) {
            print_part(json, list, &list->parts[at], number);
        }
        weft_cli_json_end(json);
        weft_cli_json_end(json);
    }
    weft_cli_json_end(json);
    weft_cli_json_end(json);
}

static void print_source(struct weft_cli_json *json, const struct inspect_source *source)
{
    static const char *const reasons[] = {[WEFT_RECORD_LIVE] = "live",
                                          [WEFT_RECORD_ASKED] = "asked",
                                          [WEFT_RECORD_FAILED] = "failed"};
    const struct weft_dump *dump = &source->dump;
    weft_cli_json_object(json, NULL);
    weft_cli_json_text(json, "source", source->name);
    weft_cli_json_int(json, "rank", dump->rank);
    weft_cli_json_int(json, "ranks", dump->ranks);
    weft_cli_json_text(json, "host", dump->host);
    weft_cli_json_int(json, "pid", dump->pid);
    weft_cli_json_text(json, "reason", reasons[dump->reason]);
    if (dump->reason == WEFT_RECORD_FAILED) {
        weft_cli_json_text(json, "status", weft_status_name(dump->status));
        weft_cli_json_text(json, "error", dump->text);
    }
    if (source->is_live) {
        weft_cli_json_bool(json, "stopped", source->is_stopped);
    }
    print_time(json, "taken", (int64_t)dump->taken.real_ns);
    weft_cli_json_int(json, "operations", (int64_t)(dump->next & INT64_MAX));
    weft_cli_json_end(json);
}

bool weft_inspect_print_json(const struct inspect_view *view, FILE *out)
{
    struct weft_cli_json json;
    char *well = weft_inspect_all_is_well(view->job);
    weft_cli_json_open(&json, out);
    weft_cli_json_text(&json, "verdict",
                       view->verdict->count > 0 ? view->verdict->findings[0].text : well);
    weft_cli_json_array(&json, "findings");
    for (size_t i = 0; i < view->verdict->count; i++) {
        print_finding(&json, &view->verdict->findings[i]);
    }
    weft_cli_json_end(&json);
    weft_cli_json_array(&json, "communicators");
    for (size_t i = 0; i < view->job->list_count; i++) {
        print_list(view, &json, &view->job->lists[i]);
    }
    weft_cli_json_end(&json);
    weft_cli_json_array(&json, "recordings");
    for (size_t i = 0; i < view->input->count; i++) {
        print_source(&json, &view->input->sources[i]);
    }
    weft_cli_json_end(&json);
    print_missing(&json, view->input);
    weft_cli_json_int(&json, "unreadable", (int64_t)view->job->torn);
    weft_cli_json_array(&json, "notes");
    for (size_t i = 0; i < view->input->note_count; i++) {
        weft_cli_json_text(&json, NULL, view->input->notes[i]);
    }
    weft_cli_json_end(&json);
    free(well);
    return weft_cli_json_close(&json);
}
