/* SPDX-License-Identifier: Apache-2.0 */
/* weft inspect, on recordings that are made here: what it says of ranks that agree, differ, do not come. */
#include "inspect_bench.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>

static void ranks_that_agree_are_fine(void **state)
{
    struct bench bench;
    struct cli cli;
    (void)state;
    open_ranks(&bench);
    do_all(&bench, 40); /* the ring has gone around */
    save_all(&bench, WEFT_RECORD_ASKED);
    cli_run(&cli, "inspect", bench.folder, "--last", "3");
    assert_int_equal(cli.status, 0);
    assert_says(&cli, "No divergence: all recorded ranks have ended #39");
    assert_has(cli.out, "\n37  allreduce (f32 x 100, sum)  ring  0-3 ");
    assert_null(strstr(cli.out, "\n36 "));
    assert_has(cli.out, "4 recordings.\n");
    assert_width(cli.out);
    cli_close(&cli);
    close_ranks(&bench);
}

static void the_last_number_there_is_is_one_like_any_other(void **state)
{
    struct bench bench;
    struct cli cli;
    (void)state;
    open_ranks(&bench);
    do_one(&bench, 0, UINT32_MAX - 1, WEFT_ALLREDUCE);
    do_one(&bench, 0, UINT32_MAX, WEFT_ALLREDUCE);
    begin(&bench, 1, UINT32_MAX, WEFT_ALLREDUCE);
    save(&bench, 0, WEFT_RECORD_ASKED);
    save(&bench, 1, WEFT_RECORD_ASKED);
    cli_run(&cli, "inspect", bench.folder);
    assert_int_equal(cli.status, 0);
    assert_has(cli.out, "4294967294");
    cli_close(&cli);
    close_ranks(&bench);
}

static void a_rank_that_called_something_else_is_named(void **state)
{
    struct bench bench;
    struct cli cli;
    (void)state;
    open_ranks(&bench);
    do_all(&bench, 5);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        begin(&bench, rank, 5, rank == 2 ? WEFT_BROADCAST : WEFT_ALLREDUCE);
    }
    save_all(&bench, WEFT_RECORD_FAILED);
    cli_run(&cli, "inspect", bench.folder);
    assert_int_equal(cli.status, 0);
    assert_says(&cli, "Rank 2 called broadcast #5 (f32 x 100, root 0) where ranks 0-1,3 called "
                      "allreduce #5");
    assert_says(&cli, "ended is #4.");
    assert_says(&cli, "ERR_TIMEOUT: the words of rank 0");
    assert_width(cli.out);
    cli_close(&cli);
    cli_run(&cli, "inspect", bench.folder, "--json");
    assert_has(cli.out, "\"kind\": \"mismatch\"");
    assert_has(cli.out, "\"operation\": 5, \"call\": \"broadcast #5 (f32 x 100, root 0)\", "
                        "\"ranks\": [2]");
    assert_has(cli.out, "\"others\": [0, 1, 3]");
    assert_has(cli.out, "\"missing\": []");
    assert_int_equal(support_count(cli.out, "\n"), 1);
    cli_close(&cli);
    close_ranks(&bench);
}

/* … though what they call now is the same. */
static void calls_that_differed_before_are_told(void **state)
{
    struct bench bench;
    struct cli cli;
    (void)state;
    open_ranks(&bench);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        const struct weft_record_call call = {
            .comm = COMM, .number = 7, .signature = 5, .chain = rank == 1 ? 8 : 9, .what = 0};
        weft_recorder_begin(&bench.rank[rank], &call);
    }
    save_all(&bench, WEFT_RECORD_FAILED);
    cli_run(&cli, "inspect", bench.folder);
    assert_says(&cli, "Rank 1 made other calls than ranks 0,2-3 before allreduce #7");
    cli_close(&cli);
    close_ranks(&bench);
}

static void a_rank_that_has_not_come_is_named_with_what_it_does(void **state)
{
    struct bench bench;
    struct cli cli;
    const struct weft_record_call recv = {.comm = COMM,
                                          .count = 64,
                                          .chain = 7,
                                          .what =
                                              weft_record_what(WEFT_RECORD_RECV, WEFT_U8, 0, 0, 3)};
    (void)state;
    open_ranks(&bench);
    do_all(&bench, 2);
    begin(&bench, 0, 2, WEFT_BARRIER);
    begin(&bench, 3, 2, WEFT_BARRIER);
    weft_recorder_begin(&bench.rank[1], &recv);
    save_all(&bench, WEFT_RECORD_FAILED);
    cli_run(&cli, "inspect", bench.folder);
    assert_int_equal(cli.status, 0);
    assert_says(&cli, "Ranks 1-2 have not entered barrier #2 since ");
    assert_says(&cli, "; ranks 0,3 have waited");
    assert_says(&cli, "Rank 1 has been in recv (64 bytes from rank 3, tag 7) for");
    assert_says(&cli, "Rank 2 is in no call of Weft.");
    assert_width(cli.out);
    cli_close(&cli);
    close_ranks(&bench);
}

/* As in a job of which one was killed, while the others are still there: nobody has written a verdict. */
static void a_call_that_failed_on_all_is_told_though_nobody_waits(void **state)
{
    struct bench bench;
    struct cli cli;
    (void)state;
    open_ranks(&bench);
    do_all(&bench, 2);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        if (rank != 2) {
            weft_recorder_end(&bench.rank[rank], begin(&bench, rank, 2, WEFT_BARRIER),
                              WEFT_ERR_PEER);
            save(&bench, rank, WEFT_RECORD_ASKED);
        }
    }
    cli_run(&cli, "inspect", bench.folder);
    assert_says(&cli, "Nobody waits, but barrier #2 has failed (ERR_PEER) on ranks 0-1,3");
    cli_close(&cli);
    close_ranks(&bench);
}

/* Whoever begins waits a little at times: without a failure that is nothing. */
static void short_waits_are_no_divergence(void **state)
{
    struct bench bench;
    struct cli cli;
    (void)state;
    open_ranks(&bench);
    do_all(&bench, 2);
    begin(&bench, 0, 2, WEFT_BARRIER);
    save_all(&bench, WEFT_RECORD_ASKED);
    cli_run(&cli, "inspect", bench.folder);
    assert_says(&cli, "No divergence: all recorded ranks have ended #1");
    cli_close(&cli);
    close_ranks(&bench);
}

static void ranks_without_a_recording_are_named(void **state)
{
    struct bench bench;
    struct cli cli;
    (void)state;
    open_ranks(&bench);
    do_all(&bench, 1);
    for (uint32_t rank = 0; rank < 3; rank += 2) {
        begin(&bench, rank, 1, WEFT_ALLREDUCE);
        save(&bench, rank, WEFT_RECORD_FAILED);
    }
    cli_run(&cli, "inspect", bench.folder);
    assert_says(&cli, "Ranks 0,2 have been inside allreduce #1 (f32 x 100, sum)");
    assert_says(&cli, "There is no recording of ranks 1,3.");
    assert_says(&cli, "2 recordings, none of ranks 1,3.");
    cli_close(&cli);
    cli_run(&cli, "inspect", bench.folder, "--json");
    assert_has(cli.out, "\"missing\": [1, 3]");
    cli_close(&cli);
    close_ranks(&bench);
}

static void whom_they_wait_for_is_said(void **state)
{
    struct bench bench;
    struct cli cli;
    (void)state;
    open_ranks(&bench);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        uint64_t record = begin(&bench, rank, 0, WEFT_ALLREDUCE);
        weft_recorder_note(&bench.rank[rank], record, rank == 3 ? WEFT_RECORD_ANY : 3, 50);
    }
    save_all(&bench, WEFT_RECORD_FAILED);
    cli_run(&cli, "inspect", bench.folder);
    assert_says(&cli, "All 4 ranks have been inside allreduce #0");
    assert_says(&cli, "They wait for rank 3.");
    assert_says(&cli, "No operation was ended by all recorded ranks.");
    cli_close(&cli);
    close_ranks(&bench);
}

static void flip(const char *path, long at)
{
    FILE *file = fopen(path, "r+be");
    int byte;
    assert_non_null(file);
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    byte = fgetc(file);
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    fputc(byte ^ 1, file);
    fclose(file);
}

static void damaged_files_are_named(void **state)
{
    struct bench bench;
    struct cli cli;
    char path[128];
    (void)state;
    open_ranks(&bench);
    do_all(&bench, 1);
    save_all(&bench, WEFT_RECORD_ASKED);
    snprintf(path, sizeof(path), "%s/2.dump", bench.folder);
    assert_int_equal(truncate(path, 9000), 0);
    cli_run(&cli, "inspect", path);
    assert_int_equal(cli.status, 1);
    assert_string_equal(cli.out, "");
    assert_has(cli.err, "2.dump: it has 9000 bytes, and 16 operations take 9216");
    cli_close(&cli);
    save(&bench, 2, WEFT_RECORD_ASKED);
    flip(path, 8192 + 3);
    cli_run(&cli, "inspect", path);
    assert_int_equal(cli.status, 1);
    assert_has(cli.err, "2.dump: its checksum is wrong");
    cli_close(&cli);
    cli_run(&cli, "inspect", "/dev/null");
    assert_int_equal(cli.status, 1);
    cli_close(&cli);
    cli_run(&cli, "inspect", WEFT_CLI_PATH);
    assert_int_equal(cli.status, 1);
    assert_has(cli.err, "not a dump of a flight recorder");
    cli_close(&cli);
    cli_run(&cli, "inspect", "/nowhere/1.dump");
    assert_int_equal(cli.status, 1);
    assert_has(cli.err, "/nowhere/1.dump: No such file");
    cli_close(&cli);
    close_ranks(&bench);
}

static void files_that_cannot_be_read_do_not_hide_the_others(void **state)
{
    struct bench bench;
    struct cli cli;
    char path[128];
    (void)state;
    open_ranks(&bench);
    do_all(&bench, 2);
    begin(&bench, 0, 2, WEFT_BARRIER);
    save_all(&bench, WEFT_RECORD_FAILED);
    snprintf(path, sizeof(path), "%s/2.dump", bench.folder);
    assert_int_equal(truncate(path, 9000), 0);
    cli_run(&cli, "inspect", "/nowhere.dump", bench.folder, "--pid", "2147483646");
    assert_int_equal(cli.status, 1);
    assert_says(&cli, "Ranks 1,3 have not entered barrier #2 since ");
    assert_says(&cli, "There is no recording of rank 2.");
    assert_says(&cli, "/nowhere.dump: No such file");
    assert_says(&cli, "2.dump: it has 9000 bytes, and 16 operations take 9216");
    assert_says(&cli, "pid 2147483646: there is no such process");
    assert_width(cli.out);
    cli_close(&cli);
    cli_run(&cli, "inspect", bench.folder, "--json");
    assert_int_equal(cli.status, 1);
    assert_has(cli.out, "\"ranks\": [1, 3]");
    assert_has(cli.out, "\"notes\": [\"");
    assert_int_equal(support_count(cli.out, "\n"), 1);
    cli_close(&cli);
    close_ranks(&bench);
}

/* A file that speaks of many ranks is not one of many ranks. */
static void memory_is_taken_for_recordings_not_for_ranks(void **state)
{
    const struct weft_recorder_spec spec = {
        .entries = ENTRIES, .job = "job", .rank = 3, .ranks = WEFT_RANKS_MAX, .host = "node7"};
    struct rusage usage;
    struct bench bench;
    struct cli cli;
    (void)state;
    open_ranks(&bench);
    weft_recorder_close(&bench.rank[3]);
    weft_recorder_open(&spec, &bench.rank[3]);
    for (uint32_t i = 0; i < ENTRIES; i++) {
        const struct weft_record_call call = {.comm = COMM + i, .signature = 1, .chain = 1};
        weft_recorder_comm_open(&bench.rank[3], COMM + i, 3, WEFT_RANKS_MAX);
        weft_recorder_begin(&bench.rank[3], &call);
    }
    save(&bench, 3, WEFT_RECORD_FAILED);
    cli_run(&cli, "inspect", bench.folder);
    assert_int_equal(cli.status, 0);
    assert_says(&cli, "Rank 3 has been inside allreduce #0");
    assert_says(&cli, "There is no recording of ranks 0-2,4-999999.");
    cli_close(&cli);
    assert_int_equal(getrusage(RUSAGE_CHILDREN, &usage), 0);
    assert_in_range(usage.ru_maxrss, 1, 512 * 1024); /* KiB; a sanitizer takes most of it */
    close_ranks(&bench);
}

/* Lines go when the ring has gone around, and the first calls have none: how many there were stays. */
static void control_calls_count_though_they_are_not_recorded(void **state)
{
    const struct weft_record_call control = {
        .comm = COMM,
        .number = 5,
        .signature = 1,
        .what = weft_record_what(WEFT_RECORD_CONTROL_BARRIER, WEFT_U8, 0, 0, 0)};
    struct bench bench;
    struct cli cli;
    (void)state;
    open_ranks(&bench);
    do_all(&bench, 2);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        if (rank != 2) {
            weft_recorder_begin(&bench.rank[rank], &control);
        }
        weft_recorder_comm_calls(&bench.rank[rank], COMM, rank == 2 ? 5 : 6);
    }
    save_all(&bench, WEFT_RECORD_FAILED);
    cli_run(&cli, "inspect", bench.folder);
    assert_int_equal(cli.status, 0);
    assert_says(&cli, "Rank 2 has not entered control_barrier #5 since ");
    assert_says(&cli, "The last one that all recorded ranks ended is #4.");
    cli_close(&cli);
    close_ranks(&bench);
}

static void it_is_asked_for_dumps_or_pids(void **state)
{
    struct cli cli;
    (void)state;
    cli_run(&cli, "inspect");
    assert_int_equal(cli.status, 2);
    assert_has(cli.err, "give it dumps, or --pid");
    cli_close(&cli);
    cli_run(&cli, "inspect", "--pid", "me");
    assert_int_equal(cli.status, 2);
    cli_close(&cli);
    cli_run(&cli, "inspect", "--last", "0", "x");
    assert_int_equal(cli.status, 2);
    cli_close(&cli);
    cli_run(&cli, "inspect", "--help");
    assert_int_equal(cli.status, 0);
    assert_has(cli.out, "weft inspect --pid $(pgrep -d, train)");
    assert_width(cli.out);
    cli_close(&cli);
}

/* It may be the one that never came. */
static void a_process_without_a_recorder_does_not_hide_the_others(void **state)
{
    struct bench bench;
    struct cli cli;
    char pids[64], byte = 0;
    int forked[2];
    pid_t child;
    (void)state;
    open_ranks(&bench);
    do_all(&bench, 3);
    assert_int_equal(pipe2(forked, O_CLOEXEC), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (write(forked[1], &byte, 1) == 1) { /* by now it has none of our descriptors */
            pause();
        }
        _exit(0);
    }
    assert_int_equal(read(forked[0], &byte, 1), 1);
    close(forked[0]);
    close(forked[1]);
    snprintf(pids, sizeof(pids), "%d,%d", (int)getpid(), (int)child);
    cli_run(&cli, "inspect", "--pid", pids);
    assert_int_equal(cli.status, 0);
    assert_says(&cli, "No divergence: all recorded ranks have ended #2");
    assert_says(&cli, ": it has no flight recorder");
    cli_close(&cli);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    close_ranks(&bench);
}

/* Threads of one process are several ranks: here they are this test's. */
static void the_recorders_of_a_process_are_found_and_merged(void **state)
{
    struct bench bench;
    struct cli cli;
    char pid[16];
    (void)state;
    open_ranks(&bench);
    do_all(&bench, 3);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        begin(&bench, rank, 3, rank == 1 ? WEFT_BARRIER : WEFT_ALLREDUCE);
    }
    snprintf(pid, sizeof(pid), "%d", (int)getpid());
    cli_run(&cli, "inspect", "--pid", pid, "--pid", pid); /* twice: the later reading counts */
    assert_int_equal(cli.status, 0);
    assert_says(&cli, "Rank 1 called barrier #3 where ranks 0,2-3 called allreduce #3");
    assert_says(&cli, "older recording of rank 0 than pid");
    assert_says(&cli, "4 recordings.");
    cli_close(&cli);
    close_ranks(&bench);
    cli_run(&cli, "inspect", "--pid", pid);
    assert_int_equal(cli.status, 1);
    assert_has(cli.err, "it has no flight recorder");
    cli_close(&cli);
    cli_run(&cli, "inspect", "--pid", "2147483646");
    assert_int_equal(cli.status, 1);
    assert_has(cli.err, "pid 2147483646: there is no such process");
    cli_close(&cli);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_that_agree_are_fine),
        cmocka_unit_test(the_last_number_there_is_is_one_like_any_other),
        cmocka_unit_test(a_rank_that_called_something_else_is_named),
        cmocka_unit_test(calls_that_differed_before_are_told),
        cmocka_unit_test(a_rank_that_has_not_come_is_named_with_what_it_does),
        cmocka_unit_test(a_call_that_failed_on_all_is_told_though_nobody_waits),
        cmocka_unit_test(short_waits_are_no_divergence),
        cmocka_unit_test(ranks_without_a_recording_are_named),
        cmocka_unit_test(whom_they_wait_for_is_said),
        cmocka_unit_test(damaged_files_are_named),
        cmocka_unit_test(files_that_cannot_be_read_do_not_hide_the_others),
        cmocka_unit_test(memory_is_taken_for_recordings_not_for_ranks),
        cmocka_unit_test(control_calls_count_though_they_are_not_recorded),
        cmocka_unit_test(it_is_asked_for_dumps_or_pids),
        cmocka_unit_test(a_process_without_a_recorder_does_not_hide_the_others),
        cmocka_unit_test(the_recorders_of_a_process_are_found_and_merged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
