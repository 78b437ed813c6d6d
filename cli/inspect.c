/* SPDX-License-Identifier: Apache-2.0 */
/* weft inspect: reads flight recorders and says which rank diverged, at which operation, since when. */
#include "inspect.h"

#include <stdlib.h>

static bool as_json;
static struct weft_cli_list pids;
static int64_t last = 8;

static const struct weft_cli_option options[] = {
    {"pid", 'p', WEFT_CLI_SERIES, "PID",
     "a running, hung or stopped rank, or who started the ranks", &pids, 1, INT32_MAX},
    {"last", 0, WEFT_CLI_INT, "N", "operations to show (8)", &last, 1, 100000},
    {"json", 0, WEFT_CLI_FLAG, NULL, "one JSON object on stdout", &as_json, 0, 0},
    {0},
};

static const struct weft_cli_command command = {
    .name = "inspect",
    .summary =
        "Read the flight recorders of a job's ranks and say which rank diverged, at which "
        "operation\n"
        "and since when: who called something else, who has not come, who waits inside. After a\n"
        "failure its verdict comes first: the rank that died, or was named otherwise.\n"
        "DUMP: what ranks wrote because of WEFT_DUMP=DIR or weft_dump(); a folder means the "
        "*.dump\n"
        "in it. --pid reads the memory of ranks on this host, which need not help; several pids, "
        "or\n"
        "that of `weft run`, are merged like files.\n"
        "Ranks are their communicator's; where the job counts otherwise it says both: rank 1 (6 of "
        "the\n"
        "job).\n\n"
        "JSON keys: verdict; findings [] {kind (failed, mismatch, mismatch_before, not_entered,\n"
        "stuck, message), text, communicator, operation, call, ranks, job_ranks, other_call, "
        "others,\n"
        "job_others, since, waited_s}; communicators [] {id, calls, ranks, completed, operations "
        "[]};\n"
        "recordings []; missing []; notes []. missing and recordings count as the job does.\n\n"
        "What cannot be read is named behind the findings of the rest, and the exit status is 1; "
        "of a\n"
        "process among several that is no rank (pgrep finds forked workers, too) only the former.",
    .usage = "[--json] [--last N] --pid PID [--pid PID...] | DUMP...",
    .options = options,
    .examples = {"weft inspect run7/*.dump", "weft inspect --pid $(pgrep -d, train)"},
};

static bool read_input(struct inspect_input *input, int argc, char **argv, int rest)
{
    for (unsigned i = 0; i < pids.count; i++) {
        weft_inspect_add_pid(input, pids.value[i]);
    }
    for (int i = rest; i < argc; i++) {
        weft_inspect_add_file(input, argv[i]);
    }
    for (size_t i = 0; i < input->note_count && input->count == 0; i++) {
        weft_cli_fail(&command, "%s", input->notes[i]);
    }
    return input->count > 0;
}

int weft_cli_inspect(int argc, char **argv)
{
    struct inspect_input input = {0};
    struct inspect_case job;
    struct inspect_verdict verdict;
    int rest, status = weft_cli_parse(&command, argc, argv, &rest);
    if (status >= 0) {
        return status;
    }
    if (pids.count == 0 && rest == argc) {
        return weft_cli_usage_error(&command, "give it dumps, or --pid");
    }
    if (!read_input(&input, argc, argv, rest)) {
        weft_inspect_close(&input);
        return WEFT_CLI_FAILED;
    }
    weft_inspect_settle(&input);
    weft_inspect_merge(&input, &job);
    weft_inspect_judge(&job, &verdict);
    const struct inspect_view view = {
        .input = &input, .job = &job, .verdict = &verdict, .last = (unsigned)last};
    if (as_json) {
        weft_inspect_print_json(&view, stdout);
    } else {
        weft_inspect_print(&view, stdout);
    }
    weft_inspect_verdict_close(&verdict);
    weft_inspect_case_close(&job);
    status = input.unreadable > 0 ? WEFT_CLI_FAILED : WEFT_CLI_OK;
    weft_inspect_close(&input);
    return status;
}
