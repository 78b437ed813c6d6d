/* SPDX-License-Identifier: Apache-2.0 */
/* weft inspect after a failure: the rank that its verdict names comes first, whoever is behind. */
#include "inspect_bench.h"

#define DEATH "rank 2 (pid 7 on node7) closed the connection"

static void fail_by(struct bench *bench, weft_status_t status, uint32_t blamed, const char *text)
{
    bench->status = status;
    bench->blamed = blamed + 1;
    bench->text = text;
}

static void save_but(struct bench *bench, uint32_t left_out)
{
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        if (rank != left_out) {
            save(bench, rank, WEFT_RECORD_FAILED);
        }
    }
}

static void assert_begins(const struct cli *cli, const char *words)
{
    if (strncmp(cli->out, words, strlen(words)) != 0) {
        fail_msg("does not begin with \"%s\": %s", words, cli->out);
    }
}

/* Rank 3 was between two calls when rank 2 died. */
static void a_dead_rank_is_named_not_who_is_behind(void **state)
{
    struct bench bench;
    struct cli cli;
    (void)state;
    open_ranks(&bench);
    do_all(&bench, 2);
    begin(&bench, 0, 2, WEFT_ALLREDUCE);
    begin(&bench, 1, 2, WEFT_ALLREDUCE);
    fail_by(&bench, WEFT_ERR_PEER, 2, DEATH);
    save_but(&bench, 2);
    cli_run(&cli, "inspect", bench.folder);
    assert_int_equal(cli.status, 0);
    assert_begins(&cli, "The verdict names rank 2 (ERR_PEER): " DEATH ".");
    assert_says(&cli, "At that time ranks 0-1 were inside allreduce #2 (f32 x 100, sum); rank 3 "
                      "had not entered it.");
    assert_says(&cli, "There is no recording of rank 2.");
    assert_null(strstr(cli.out, "has not entered"));
    assert_int_equal(support_count(cli.out, "closed the connection"), 1);
    assert_width(cli.out);
    cli_close(&cli);
    cli_run(&cli, "inspect", bench.folder, "--json");
    assert_has(cli.out, "\"verdict\": \"The verdict names rank 2");
    assert_has(cli.out, "\"kind\": \"failed\"");
    assert_int_equal(support_count(cli.out, "\"kind\""), 1);
    cli_close(&cli);
    close_ranks(&bench);
}

/* … by a dump that somebody had asked for. */
static void also_when_it_has_left_a_recording(void **state)
{
    struct bench bench;
    struct cli cli;
    (void)state;
    open_ranks(&bench);
    do_all(&bench, 2);
    begin(&bench, 0, 2, WEFT_ALLREDUCE);
    fail_by(&bench, WEFT_ERR_PEER, 2, DEATH);
    save_but(&bench, 2);
    save(&bench, 2, WEFT_RECORD_ASKED);
    cli_run(&cli, "inspect", bench.folder);
    assert_begins(&cli, "The verdict names rank 2 (ERR_PEER): " DEATH ".");
    assert_says(&cli,
                "rank 0 was inside allreduce #2 (f32 x 100, sum); ranks 1,3 had not entered it.");
    cli_close(&cli);
    close_ranks(&bench);
}

static void also_when_nobody_waits(void **state)
{
    struct bench bench;
    struct cli cli;
    (void)state;
    open_ranks(&bench);
    do_all(&bench, 2);
    fail_by(&bench, WEFT_ERR_PEER, 2, DEATH);
    save_but(&bench, 2);
    cli_run(&cli, "inspect", bench.folder);
    assert_begins(&cli, "The verdict names rank 2 (ERR_PEER): " DEATH ".");
    cli_close(&cli);
    close_ranks(&bench);
}

static void of_verdicts_that_differ_the_usual_one_counts(void **state)
{
    struct bench bench;
    struct cli cli;
    (void)state;
    open_ranks(&bench);
    do_all(&bench, 2);
    fail_by(&bench, WEFT_ERR_PEER, 2, DEATH);
    save_but(&bench, 2);
    fail_by(&bench, WEFT_ERR_PEER, 3, "rank 3 (pid 8 on node7) closed the connection");
    save(&bench, 0, WEFT_RECORD_FAILED);
    cli_run(&cli, "inspect", bench.folder);
    assert_begins(&cli, "The verdict in 2 of 3 recordings names rank 2 (ERR_PEER): ");
    cli_close(&cli);
    close_ranks(&bench);
}

/* What is known better stays: calls that differ, and who has not come where the verdict says the same. */
static void what_says_more_than_a_deadline_comes_before_it(void **state)
{
    struct bench bench;
    struct cli cli;
    (void)state;
    open_ranks(&bench);
    do_all(&bench, 2);
    for (uint32_t rank = 0; rank < RANKS - 1; rank++) {
        begin(&bench, rank, 2, WEFT_ALLREDUCE);
    }
    fail_by(&bench, WEFT_ERR_TIMEOUT, 3, "rank 3 has not come");
    save_all(&bench, WEFT_RECORD_FAILED);
    cli_run(&cli, "inspect", bench.folder);
    assert_begins(&cli, "Rank 3 has not entered allreduce #2");
    assert_says(&cli, "failed with ERR_TIMEOUT: rank 3 has not come");
    cli_close(&cli);
    fail_by(&bench, WEFT_ERR_TIMEOUT, 1, "rank 1 has not sent");
    save_all(&bench, WEFT_RECORD_FAILED);
    cli_run(&cli, "inspect", bench.folder);
    assert_begins(&cli, "The verdict names rank 1 (ERR_TIMEOUT): rank 1 has not sent.");
    assert_says(&cli, "Rank 3 has not entered allreduce #2");
    cli_close(&cli);
    begin(&bench, 3, 2, WEFT_BARRIER);
    fail_by(&bench, WEFT_ERR_MISMATCH, 0, "rank 0 called allreduce, rank 3 called barrier");
    save_all(&bench, WEFT_RECORD_FAILED);
    cli_run(&cli, "inspect", bench.folder);
    assert_begins(&cli, "Rank 3 called barrier #2 where ranks 0-2 called allreduce #2");
    cli_close(&cli);
    close_ranks(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_dead_rank_is_named_not_who_is_behind),
        cmocka_unit_test(also_when_it_has_left_a_recording),
        cmocka_unit_test(also_when_nobody_waits),
        cmocka_unit_test(of_verdicts_that_differ_the_usual_one_counts),
        cmocka_unit_test(what_says_more_than_a_deadline_comes_before_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
