/* SPDX-License-Identifier: Apache-2.0 */
/* weft inspect where a communicator counts its ranks otherwise than the job: both numbers are said. */
#include "inspect_bench.h"

#define PART UINT64_C(0x5b117) /* ranks 3 and 2 of the job, in this order */

static void open_part(struct bench *bench)
{
    weft_recorder_comm_open(&bench->rank[3], PART, 0, 2);
    weft_recorder_comm_open(&bench->rank[2], PART, 1, 2);
}

static uint64_t begin_part(struct bench *bench, uint32_t job_rank, uint32_t number)
{
    const struct weft_record_call call = {.comm = PART,
                                          .count = 8,
                                          .number = number,
                                          .signature = 9,
                                          .chain = 1,
                                          .what =
                                              weft_record_what(WEFT_ALLREDUCE, WEFT_F32, 0, 0, 0)};
    return weft_recorder_begin(&bench->rank[job_rank], &call);
}

static void end_part(struct bench *bench, uint32_t number)
{
    weft_recorder_end(&bench->rank[3], begin_part(bench, 3, number), WEFT_OK);
    weft_recorder_end(&bench->rank[2], begin_part(bench, 2, number), WEFT_OK);
}

static void receive(struct bench *bench, uint32_t job_rank, uint32_t from)
{
    const struct weft_record_call call = {
        .comm = PART,
        .count = 64,
        .chain = 7,
        .what = weft_record_what(WEFT_RECORD_RECV, WEFT_U8, 0, 0, from)};
    weft_recorder_begin(&bench->rank[job_rank], &call);
}

static void who_has_not_come_has_both_numbers(void **state)
{
    struct bench bench;
    struct cli cli;
    (void)state;
    open_ranks(&bench);
    open_part(&bench);
    end_part(&bench, 0);
    begin_part(&bench, 3, 1);
    receive(&bench, 2, 0);
    save_all(&bench, WEFT_RECORD_FAILED);
    cli_run(&cli, "inspect", bench.folder);
    assert_int_equal(cli.status, 0);
    assert_says(&cli, "Rank 1 (2 of the job) has not entered allreduce #1 (f32 x 8, sum) since ");
    assert_says(&cli, "; rank 0 (3 of the job) has waited for ");
    assert_says(&cli,
                "Rank 1 (2 of the job) has been in recv (64 bytes from rank 0 (3 of the job), "
                "tag 7) for ");
    assert_has(cli.out, "\ncommunicator 000000000005b117 of 2 ranks; its ranks 0-1 are 3,2 of the "
                        "job:\n");
    assert_says(&cli, "Rank 0 of the job (pid "); /* … failed with …: notes count as the job does */
    assert_width(cli.out);
    cli_close(&cli);
    cli_run(&cli, "inspect", bench.folder, "--json");
    assert_has(cli.out, "\"ranks\": [1], \"job_ranks\": [2]");
    assert_has(cli.out, "\"others\": [0], \"job_others\": [3]");
    assert_has(cli.out, "{\"rank\": 1, \"job_rank\": 2, ");
    cli_close(&cli);
    close_ranks(&bench);
}

static void all_of_them_have_both_numbers(void **state)
{
    struct bench bench;
    struct cli cli;
    (void)state;
    open_ranks(&bench);
    open_part(&bench);
    weft_recorder_note(&bench.rank[3], begin_part(&bench, 3, 0), 1, 50);
    begin_part(&bench, 2, 0);
    save_all(&bench, WEFT_RECORD_FAILED);
    cli_run(&cli, "inspect", bench.folder);
    assert_says(&cli, "All 2 ranks (3,2 of the job) have been inside allreduce #0");
    assert_says(&cli, "They wait for rank 1 (2 of the job).");
    cli_close(&cli);
    close_ranks(&bench);
}

/* Nobody knows which rank of the job it was: what is known is said as whose number it is. */
static void a_number_of_one_without_a_recording_says_whose_it_is(void **state)
{
    struct bench bench;
    struct cli cli;
    (void)state;
    open_ranks(&bench);
    open_part(&bench);
    begin_part(&bench, 3, 0);
    bench.status = WEFT_ERR_PEER;
    bench.blamed = 2 + 1;
    bench.text = "rank 2 (pid 7 on node7) closed the connection";
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        if (rank != 2) {
            save(&bench, rank, WEFT_RECORD_FAILED);
        }
    }
    cli_run(&cli, "inspect", bench.folder);
    assert_says(&cli, "The verdict names rank 2 of the job (ERR_PEER): ");
    assert_says(&cli, "At that time rank 0 (3 of the job) was inside allreduce #0");
    assert_says(&cli, "There is no recording of rank 1 of the communicator.");
    assert_says(&cli, "3 recordings, none of rank 2 of the job.");
    cli_close(&cli);
    cli_run(&cli, "inspect", bench.folder, "--json");
    assert_has(cli.out, "\"ranks\": [], \"job_ranks\": [2]");
    cli_close(&cli);
    close_ranks(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_has_not_come_has_both_numbers),
        cmocka_unit_test(all_of_them_have_both_numbers),
        cmocka_unit_test(a_number_of_one_without_a_recording_says_whose_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
