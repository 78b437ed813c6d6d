/* SPDX-License-Identifier: Apache-2.0 */
/* weft run: starts the ranks of a job on this host, and says at the end what happened to it. */
#include "run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

static int64_t ranks;
static bool is_tagged, is_json;
static uint64_t timeout_ms, grace_ms = 2000;

static const struct weft_cli_option options[] = {
    {"ranks", 'n', WEFT_CLI_INT, "N", "how many ranks to start", &ranks, 1, WEFT_RUN_RANKS_MAX},
    {"tag-output", 0, WEFT_CLI_FLAG, NULL, "begin each line of output with its rank: [3] ...",
     &is_tagged, 0, 0},
    {"timeout", 0, WEFT_CLI_DURATION, "TIME", "end the job after this long (90s, 5min)",
     &timeout_ms, 1, INT64_C(86400000) * 365},
    {"grace", 0, WEFT_CLI_DURATION, "TIME", "between SIGTERM and SIGKILL, default 2s", &grace_ms, 0,
     INT64_C(86400000)},
    {"json", 0, WEFT_CLI_FLAG, NULL, "summary on stdout; the ranks' own output goes to stderr",
     &is_json, 0, 0},
    {0},
};

static const struct weft_cli_command command = {
    .name = "run",
    .summary =
        "Start N ranks of a program on this host. A rank that fails ends the job: the others get\n"
        "SIGTERM, then SIGKILL. Signals are passed on. Rank 0 has stdin. Each job gets its own "
        "secret.",
    .usage = "-n N [options] [--] program [args...]",
    .options = options,
    .examples = {"weft run -n 8 -- ./train --epochs 3",
                 "weft run -n 4 --tag-output --timeout 5min python3 job.py"},
    .is_prefix_of_others = true,
};

static void write_rank(struct weft_cli_json *json, int number, const struct weft_run_rank *rank)
{
    weft_cli_json_object(json, NULL);
    weft_cli_json_int(json, "rank", number);
    weft_cli_json_int(json, "pid", rank->pid);
    if (WIFEXITED(rank->wait_status)) {
        weft_cli_json_int(json, "exit", WEXITSTATUS(rank->wait_status));
        weft_cli_json_null(json, "signal");
    } else {
        const char *signal_name = sigabbrev_np(WTERMSIG(rank->wait_status));
        weft_cli_json_null(json, "exit");
        weft_cli_json_text(json, "signal", signal_name != NULL ? signal_name : "?");
    }
    weft_cli_json_end(json);
}

static bool write_summary(const struct weft_run_job *job, int status)
{
    struct weft_cli_json json;

    weft_cli_json_open(&json, stdout);
    weft_cli_json_text(&json, "command", job->command->name);
    if (job->ground != NULL) {
        job->ground->describe(job->ground->context, &json);
    }
    weft_cli_json_int(&json, "ranks", job->ranks);
    weft_cli_json_int(&json, "status", status);
    if (job->is_failed) {
        weft_cli_json_object(&json, "failed");
        if (job->failed_rank >= 0) {
            weft_cli_json_int(&json, "rank", job->failed_rank);
        } else {
            weft_cli_json_null(&json, "rank");
        }
        weft_cli_json_text(&json, "reason", job->reason);
        weft_cli_json_end(&json);
    } else {
        weft_cli_json_null(&json, "failed");
    }
    weft_cli_json_array(&json, "ranks_result");
    for (int i = 0; i < job->ranks; i++) {
        if (job->rank[i].is_ended) {
            write_rank(&json, i, &job->rank[i]);
        }
    }
    return weft_cli_json_close(&json);
}

static void say_failure(const struct weft_run_job *job)
{
    char tail[64] = "";
    int ended = job->ended_by_us;
    bool is_all = ended == job->ranks - 1;

    if (ended > 0 && job->failed_rank < 0) {
        snprintf(tail, sizeof(tail), "; its %d rank%s ended", ended, ended > 1 ? "s were" : " was");
    } else if (ended == 1) {
        snprintf(tail, sizeof(tail), "; %s rank was ended", is_all ? "the other" : "one other");
    } else if (ended > 1) {
        snprintf(tail, sizeof(tail), "; %s%d%s ranks were ended", is_all ? "the other " : "", ended,
                 is_all ? "" : " other");
    }
    weft_cli_fail(job->command, "%s%s", job->reason, tail);
}

/* The program is not there, or is none: the user named it wrongly. All else is the system's. */
static bool is_bad_program(int exec_errno)
{
    return exec_errno == ENOENT || exec_errno == EACCES || exec_errno == ENOEXEC ||
           exec_errno == ENOTDIR;
}

static int run_job(struct weft_run_job *job)
{
    int exec_errno = 0;
    int status = WEFT_CLI_OK;

    if (!weft_run_prepare(job)) {
        return weft_cli_fail(job->command, "%s", job->reason);
    }
    bool is_started = weft_run_start(job, &exec_errno);
    if (!is_started) {
        weft_run_end(job);
    }
    weft_run_watch(job);
    if (is_bad_program(exec_errno)) {
        return weft_cli_usage_error(job->command, "%s", job->reason);
    }
    if (job->is_failed) {
        if (job->sink[1].error != ETIMEDOUT) { /* else stderr is full, and we would wait in it */
            say_failure(job);
        }
        status = WEFT_CLI_FAILED;
    }
    if (job->is_json && !write_summary(job, status)) {
        status = WEFT_CLI_FAILED;
    }
    return status;
}

int weft_run(struct weft_run_job *job)
{
    job->failed_rank = -1;
    job->secret_fd = job->listen_fd = job->epoll_fd = job->signal_fd = -1;
    job->sink[0].sources_fd = job->sink[1].sources_fd = -1;
    job->deadline_ns = job->kill_ns = WEFT_NEVER;
    int status = run_job(job);
    weft_run_release(job);
    return status;
}

int weft_cli_run(int argc, char **argv)
{
    int rest;
    int status = weft_cli_parse(&command, argc, argv, &rest);

    if (status >= 0) {
        return status;
    }
    if (ranks == 0) {
        return weft_cli_usage_error(&command, "-n N is missing: how many ranks?");
    }
    if (rest == argc) {
        return weft_cli_usage_error(&command, "the program is missing");
    }
    struct weft_run_job job = {
        .command = &command,
        .ranks = (int)ranks,
        .is_tagged = is_tagged,
        .is_json = is_json,
        .timeout_ms = timeout_ms,
        .grace_ms = grace_ms,
        .argv = argv + rest,
    };
    return weft_run(&job);
}
