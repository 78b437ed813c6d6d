/* SPDX-License-Identifier: Apache-2.0 */
/* The verdict, then the operations around it: one row per call, columns for who has done what of it. */
#include "inspect.h"

#include <stdlib.h>
#include <string.h>

/* ---- what to show ---- */

uint32_t *weft_inspect_recorded(const struct inspect_input *input, size_t *count_p,
                                uint32_t *total_p)
{
    uint32_t *ranks = weft_cli_alloc(input->count, sizeof(*ranks));
    *total_p = 0;
    for (size_t i = 0; i < input->count; i++) {
        const struct weft_dump *dump = &input->sources[i].dump;
        *total_p = dump->ranks > *total_p ? dump->ranks : *total_p;
        ranks[i] = dump->rank;
    }
    *count_p = weft_inspect_sort(ranks, input->count);
    return ranks;
}

/* Up to the finding and one beyond it; without one, the latest. */
void weft_inspect_window(const struct inspect_view *view, const struct inspect_list *list,
                         uint32_t *first_p, uint32_t *end_p)
{
    uint32_t end = weft_inspect_reached(list);
    for (size_t i = 0; i < view->verdict->count; i++) {
        const struct inspect_finding *finding = &view->verdict->findings[i];
        if (finding->list == list && finding->kind != INSPECT_MESSAGE && end > 2 &&
            finding->number < end - 2) {
            end = finding->number + 2;
        }
    }
    *end_p = end;
    *first_p = end > view->last ? end - view->last : 0;
}

static bool is_shown(const struct inspect_view *view, const struct inspect_list *list)
{
    bool has_finding = view->verdict->count == 0;
    for (size_t i = 0; i < view->verdict->count; i++) {
        has_finding |= view->verdict->findings[i].list == list;
    }
    return has_finding && weft_inspect_reached(list) > 0;
}

/* ---- a row ---- */

struct row {
    const struct weft_dump_entry *call;
    const struct weft_dump *dump;                /* whose names of algorithms it has */
    bool *ended, *inside, *failed, *not_entered; /* [list->count] */
    int64_t first_ns, last_ns;                   /* it began, it ended */
};

static bool is_row_of(const struct weft_dump_entry *entry, const struct weft_dump_entry *call)
{
    return entry->signature == 0 || call->signature == 0 || entry->signature == call->signature;
}

/* Who is in this row; the first row of a number also has those of whom only the number is known. */
static void fill_row(const struct inspect_list *list, uint32_t number, bool is_first,
                     struct row *row)
{
    for (size_t at = 0; at < list->count; at++) {
        const struct weft_dump_entry *entry;
        enum inspect_state state = weft_inspect_state(&list->parts[at], number, &entry);
        bool is_mine = entry != NULL ? is_row_of(entry, row->call) : is_first;
        row->ended[at] = is_mine && state == INSPECT_ENDED;
        row->inside[at] = is_mine && state == INSPECT_INSIDE;
        row->failed[at] = is_mine && state == INSPECT_FAILED;
        row->not_entered[at] = is_mine && state == INSPECT_ABSENT;
        if (entry == NULL || !is_mine) {
            continue;
        }
        int64_t until = entry->state == WEFT_DUMP_ENDED
                            ? entry->ended_ns
                            : (int64_t)list->parts[at].source->dump.taken.real_ns;
        row->first_ns =
            row->first_ns == 0 || entry->began_ns < row->first_ns ? entry->began_ns : row->first_ns;
        row->last_ns = until > row->last_ns ? until : row->last_ns;
    }
}

/* The columns that have something in them. */
struct shape {
    bool has_inside, has_failed, has_absent;
};

static struct shape measure(const struct inspect_list *list, uint32_t first, uint32_t end)
{
    struct shape shape = {0};
    for (uint32_t number = first; number < end; number++) {
        for (size_t at = 0; at < list->count; at++) {
            const struct weft_dump_entry *entry;
            enum inspect_state state = weft_inspect_state(&list->parts[at], number, &entry);
            shape.has_inside |= state == INSPECT_INSIDE;
            shape.has_failed |= state == INSPECT_FAILED;
            shape.has_absent |= state == INSPECT_ABSENT;
        }
    }
    return shape;
}

static struct weft_cli_table *open_table(const struct shape *shape,
                                         struct weft_cli_column columns[9])
{
    unsigned count = 0;
    columns[count++] = (struct weft_cli_column){"#", true};
    columns[count++] = (struct weft_cli_column){"call", false};
    columns[count++] = (struct weft_cli_column){"plan", false};
    columns[count++] = (struct weft_cli_column){"ended", false};
    if (shape->has_inside) {
        columns[count++] = (struct weft_cli_column){"inside", false};
    }
    if (shape->has_failed) {
        columns[count++] = (struct weft_cli_column){"failed", false};
    }
    if (shape->has_absent) {
        columns[count++] = (struct weft_cli_column){"not entered", false};
    }
    columns[count++] = (struct weft_cli_column){"began", false};
    columns[count++] = (struct weft_cli_column){"took", true};
    return weft_cli_table_open(columns, count);
}

struct sheet {
    struct weft_cli_table *table;
    const struct inspect_list *list;
    struct shape shape;
};

static void print_row(const struct sheet *sheet, uint32_t number, const struct row *row)
{
    struct weft_cli_table *table = sheet->table;
    const struct inspect_list *list = sheet->list;
    char words[INSPECT_WORDS_LEN], name[WEFT_RECORD_NAME_LEN];
    weft_cli_table_cell(table, "%u", number);
    weft_cli_table_cell(table, "%s", weft_inspect_call(NULL, row->call, false, words));
    weft_cli_table_cell(table, "%s", weft_wire_dump_name(row->dump, row->call->name, name));
    weft_cli_table_cell(table, "%s", weft_inspect_chosen(list, row->ended, words));
    if (sheet->shape.has_inside) {
        weft_cli_table_cell(table, "%s", weft_inspect_chosen(list, row->inside, words));
    }
    if (sheet->shape.has_failed) {
        weft_cli_table_cell(table, "%s", weft_inspect_chosen(list, row->failed, words));
    }
    if (sheet->shape.has_absent) {
        weft_cli_table_cell(table, "%s", weft_inspect_chosen(list, row->not_entered, words));
    }
    weft_cli_table_cell(table, "%s", weft_inspect_clock(row->first_ns, words));
    weft_cli_table_cell(table, "%s", weft_inspect_span(row->last_ns - row->first_ns, words));
}

/* Is it the first of its kind at this number? */
static bool is_new_call(const struct inspect_list *list, uint32_t number, size_t at,
                        const struct weft_dump_entry *call)
{
    for (size_t i = 0; i < at; i++) {
        const struct weft_dump_entry *entry;
        weft_inspect_state(&list->parts[i], number, &entry);
        if (entry != NULL && is_row_of(entry, call)) {
            return false;
        }
    }
    return true;
}

static void print_number(const struct sheet *sheet, uint32_t number)
{
    const struct inspect_list *list = sheet->list;
    bool *sets = weft_cli_alloc(4 * list->count, sizeof(bool));
    struct row row = {.ended = sets,
                      .inside = sets + list->count,
                      .failed = sets + 2 * list->count,
                      .not_entered = sets + 3 * list->count};
    bool is_first = true;
    for (size_t at = 0; at < list->count; at++) {
        const struct weft_dump_entry *entry;
        weft_inspect_state(&list->parts[at], number, &entry);
        if (entry != NULL && is_new_call(list, number, at, entry)) {
            row.call = entry;
            row.dump = &list->parts[at].source->dump;
            row.first_ns = row.last_ns = 0;
            fill_row(list, number, is_first, &row);
            print_row(sheet, number, &row);
            is_first = false;
        }
    }
    free(sets);
}

static void print_wrapped(const char *text, FILE *out)
{
    unsigned column = 0;
    while (*text != '\0') {
        size_t len = strcspn(text, " ");
        if (column > 0 && column + 1 + len > WEFT_CLI_WIDTH) {
            fputc('\n', out);
            column = 0;
        }
        if (column > 0) {
            fputc(' ', out);
        }
        fwrite(text, 1, len, out);
        column += (unsigned)len + (column > 0);
        text += len;
        text += strspn(text, " ");
    }
    fputc('\n', out);
}

/* "; its ranks 0-1 are 4,6 of the job"; owned by the caller. */
static char *name_members(const struct inspect_list *list)
{
    char ranks[INSPECT_WORDS_LEN], in_job[INSPECT_WORDS_LEN];
    size_t count;
    uint32_t *numbers = weft_cli_alloc(list->count, sizeof(*numbers));
    for (size_t at = 0; at < list->count; at++) {
        numbers[at] = list->parts[at].source->dump.rank;
    }
    weft_inspect_ranks(numbers, list->count, in_job);
    free(numbers);
    numbers = weft_inspect_pick(list, NULL, &count);
    weft_inspect_ranks(numbers, list->count, ranks);
    free(numbers);
    return weft_cli_format("; its rank%s %s %s %s of the job", list->count == 1 ? "" : "s", ranks,
                           list->count == 1 ? "is" : "are", in_job);
}

static void print_heading(const struct inspect_list *list, FILE *out)
{
    char *members =
        weft_inspect_is_renumbered(list) ? name_members(list) : weft_cli_format("%s", "");
    char *text =
        weft_cli_format("communicator %016llx of %u ranks%s%s:", (unsigned long long)list->comm,
                        list->ranks, list->is_control ? ", control plane" : "", members);
    print_wrapped(text, out);
    free(members);
    free(text);
}

static void print_list(const struct inspect_view *view, const struct inspect_list *list, FILE *out)
{
    struct weft_cli_column columns[9];
    struct sheet sheet = {.list = list};
    uint32_t first, end;
    weft_inspect_window(view, list, &first, &end);
    sheet.shape = measure(list, first, end);
    sheet.table = open_table(&sheet.shape, columns);
    for (uint32_t number = first; number < end; number++) {
        print_number(&sheet, number);
    }
    fputc('\n', out);
    if (!view->job->is_only_comm || list->is_control || weft_inspect_is_renumbered(list)) {
        print_heading(list, out);
    }
    weft_cli_table_print(sheet.table, out);
    weft_cli_table_close(sheet.table);
}

/* ---- all ---- */

/* The failure's words are in the first finding. */
static bool is_said(const struct inspect_verdict *verdict)
{
    return verdict->count > 0 && verdict->findings[0].kind == INSPECT_BLAMED;
}

/* Where findings may count otherwise, what counts as the job does says so. */
static bool has_renumbered(const struct inspect_case *it)
{
    bool is = false;
    for (size_t i = 0; i < it->list_count; i++) {
        is |= weft_inspect_is_renumbered(&it->lists[i]);
    }
    return is;
}

/* "ranks 0-1,3 of 4" with what made the dumps, and whose is not here. */
static void print_sources(const struct inspect_view *view, FILE *out)
{
    const struct inspect_input *input = view->input;
    char words[INSPECT_WORDS_LEN];
    uint32_t total;
    size_t count;
    uint32_t *recorded = weft_inspect_recorded(input, &count, &total);
    const char *names = weft_inspect_gaps(recorded, count, total, words);
    bool is_split = has_renumbered(view->job);
    fprintf(out, "\n%zu recording%s", input->count, input->count == 1 ? "" : "s");
    if (names[0] != '\0') {
        fprintf(out, ", none of rank%s %s%s", strpbrk(names, ",-") != NULL ? "s" : "", names,
                is_split ? " of the job" : "");
    }
    fprintf(out, ".\n");
    free(recorded);
    for (size_t i = 0; i < input->count && !is_said(view->verdict); i++) {
        const struct weft_dump *dump = &input->sources[i].dump;
        if (dump->reason == WEFT_RECORD_FAILED) {
            char *text = weft_cli_format("Rank %u%s (pid %u on %s) failed with %s: %s", dump->rank,
                                         is_split ? " of the job" : "", dump->pid, dump->host,
                                         weft_status_name(dump->status), dump->text);
            print_wrapped(text, out);
            free(text);
            break; /* the others say the same */
        }
    }
    if (view->job->torn > 0) {
        fprintf(out, "%zu operation%s could not be read: a rank was writing there.\n",
                view->job->torn, view->job->torn == 1 ? "" : "s");
    }
    for (size_t i = 0; i < input->note_count; i++) {
        print_wrapped(input->notes[i], out);
    }
}

void weft_inspect_print(const struct inspect_view *view, FILE *out)
{
    if (view->verdict->count == 0) {
        char *text = weft_inspect_all_is_well(view->job);
        print_wrapped(text, out);
        free(text);
    }
    for (size_t i = 0; i < view->verdict->count; i++) {
        print_wrapped(view->verdict->findings[i].text, out);
    }
    for (size_t i = 0; i < view->job->list_count; i++) {
        if (is_shown(view, &view->job->lists[i])) {
            print_list(view, &view->job->lists[i], out);
        }
    }
    print_sources(view, out);
}
