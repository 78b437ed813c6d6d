/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Real ranks go wrong, and weft inspect names the one that did: from the files that WEFT_DUMP made, and from the
 * memory of ranks that hang or are stopped.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fault/messages.h"

#include <dirent.h>
#include <poll.h>
#include <sys/wait.h>

#define RANKS 4
#define ODD 2
#define READY 0
#define GO 1
#define OVER 2
#define ENTERED 3
#define SAID_LEN 8192

enum fault { OTHER_CALL, NEVER_COMES, IS_KILLED, IS_STOPPED, NO_CONTROL_CALL, NO_DUPLICATE };

struct plan {
    enum fault fault;
    const char *path;
    char folder[64];
};

/* ---- ranks ---- */

static weft_status_t allreduce_for_ever(weft_comm_t comm)
{
    static float in[10000], out[10000];
    weft_status_t status = WEFT_OK;
    for (size_t i = 0; status == WEFT_OK; i++) {
        status = weft_allreduce(comm, in, out, i % 3 == 0 ? 10000 : 10, WEFT_F32, WEFT_SUM, NULL);
    }
    return status;
}

static weft_status_t call_wrongly(weft_comm_t comm, const struct plan *plan, int rank,
                                  struct harness_shared *shared)
{
    float in[8] = {0}, out[8];
    weft_comm_t copy;
    weft_request_t request;
    weft_status_t status;
    if (plan->fault == IS_KILLED) { /* one of them, anywhere */
        return allreduce_for_ever(comm);
    }
    if (rank == ODD && plan->fault == OTHER_CALL) {
        harness_wait_reach(&shared->word[ENTERED], RANKS - 1, MESSAGES_WAIT_MS);
        return weft_broadcast(comm, in, out, 3, WEFT_F32, 0, NULL);
    }
    if (rank == ODD) { /* awake, or stopped here */
        harness_wait_reach(&shared->word[OVER], 1, MESSAGES_WAIT_MS);
        return WEFT_OK;
    }
    if (plan->fault == NO_CONTROL_CALL) {
        return weft_control_barrier(comm);
    }
    if (plan->fault == NO_DUPLICATE) {
        return weft_comm_duplicate(comm, &copy);
    }
    status = weft_allreduce(comm, in, out, 8, WEFT_F32, WEFT_SUM, &request);
    atomic_fetch_add(&shared->word[ENTERED], 1);
    return status == WEFT_OK ? weft_wait(&request, WEFT_NO_LIMIT) : status;
}

static int body(int rank, struct harness_shared *shared, void *arg)
{
    const struct plan *plan = arg;
    weft_comm_t comm;
    weft_status_t status;
    setenv("WEFT_TIMEOUT", plan->fault == NEVER_COMES ? "900ms" : "25s", 1);
    if (plan->fault <= IS_KILLED) {
        setenv("WEFT_DUMP", plan->folder, 1);
    }
    status = messages_join(rank, shared, plan->path, 0, &comm);
    for (int i = 0; i < 2 && status == WEFT_OK; i++) { /* as programs start */
        status = weft_control_barrier(comm);
    }
    for (int i = 0; i < 3 && status == WEFT_OK; i++) {
        status = weft_barrier(comm, NULL);
    }
    if (status != WEFT_OK) {
        return harness_say(shared, rank, -1, "could not start: %s", weft_error_text());
    }
    atomic_fetch_add(&shared->word[READY], 1);
    harness_wait_reach(&shared->word[GO], 1, MESSAGES_WAIT_MS);
    status = call_wrongly(comm, plan, rank, shared);
    for (int i = 0; i < 3 && status == WEFT_OK; i++) {
        status = weft_barrier(comm, NULL);
    }
    harness_say(shared, rank, 0, "%s", weft_error_text());
    weft_comm_close(comm);
    return (int)status;
}

/* ---- the test's side ---- */

static void inspect(const char *first, const char *second, char *said)
{
    int fd = memfd_create("said", MFD_CLOEXEC), status;
    pid_t pid = fork();
    assert_true(fd >= 0 && pid >= 0);
    if (pid == 0) {
        dup2(fd, 1);
        dup2(fd, 2);
        execl(WEFT_CLI_PATH, "weft", "inspect", first, second, (char *)NULL);
        _exit(126);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    job_log_read(fd, said, SAID_LEN);
    close(fd);
    for (char *at = strchr(said, '\n'); at != NULL; at = strchr(at, '\n')) {
        *at = ' ';
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        fail_msg("weft inspect ended with %d: %s", status, said);
    }
}

static void assert_said(const char *said, const char *words)
{
    if (strstr(said, words) == NULL) {
        fail_msg("no \"%s\" in: %s", words, said);
    }
}

static void open_plan(struct plan *plan, enum fault fault, const char *path)
{
    *plan = (struct plan){.fault = fault, .path = path, .folder = "/tmp/weft-test-fault-XXXXXX"};
    assert_non_null(mkdtemp(plan->folder));
}

static void close_plan(const struct plan *plan)
{
    const struct dirent *entry;
    DIR *folder = opendir(plan->folder);
    assert_non_null(folder);
    while ((entry = readdir(folder)) != NULL) {
        unlinkat(dirfd(folder), entry->d_name, 0);
    }
    closedir(folder);
    assert_int_equal(rmdir(plan->folder), 0);
}

static struct harness *start(struct plan *plan)
{
    struct harness *harness = harness_start(RANKS, body, plan);
    struct harness_shared *shared = harness_shared(harness);
    assert_harness(harness, harness_wait_reach(&shared->word[READY], RANKS, MESSAGES_WAIT_MS));
    return harness;
}

static void check_files(enum fault fault, const char *path, const char *words)
{
    struct plan plan;
    struct harness *harness;
    char said[SAID_LEN];
    open_plan(&plan, fault, path);
    harness = start(&plan);
    atomic_store(&harness_shared(harness)->word[GO], 1);
    for (int rank = 0; rank < RANKS; rank++) {
        if (rank != ODD) {
            assert_harness(harness, harness_wait_rank(harness, rank, MESSAGES_WAIT_MS));
        }
    }
    atomic_store(&harness_shared(harness)->word[OVER], 1);
    assert_harness(harness, harness_wait(harness, MESSAGES_WAIT_MS));
    inspect(plan.folder, NULL, said);
    assert_said(said, words);
    assert_said(said, "ended is #2.");
    assert_said(said, "4 recordings.");
    assert_harness(harness, harness_check_clean(harness));
    harness_close(harness);
    close_plan(&plan);
}

static void a_rank_that_calls_another_collective_is_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < MESSAGES_PATHS; i++) {
        check_files(OTHER_CALL, messages_paths[i],
                    "Rank 2 called broadcast #3 (f32 x 3, root 0) where ranks 0-1,3 called "
                    "allreduce #3 (f32 x 8, sum)");
    }
}

static void a_rank_that_never_comes_is_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < MESSAGES_PATHS; i++) {
        check_files(NEVER_COMES, messages_paths[i],
                    "Rank 2 has not entered allreduce #3 (f32 x 8, sum) since ");
    }
}

static void check_killed(const char *path, int victim)
{
    struct plan plan;
    struct harness *harness;
    char said[SAID_LEN], words[64];
    open_plan(&plan, IS_KILLED, path);
    harness = start(&plan);
    atomic_store(&harness_shared(harness)->word[GO], 1);
    messages_let_pass(5); /* so that it is in one of them, most of the time; right either way */
    assert_harness(harness, harness_kill(harness, victim, SIGKILL));
    assert_harness(harness, harness_wait(harness, MESSAGES_WAIT_MS));
    inspect(plan.folder, NULL, said);
    snprintf(words, sizeof(words), "The verdict names rank %d (ERR_PEER): rank %d (", victim,
             victim);
    if (strncmp(said, words, strlen(words)) != 0) {
        fail_msg("over %s, does not begin with \"%s\": %s", path, words, said);
    }
    snprintf(words, sizeof(words), "3 recordings, none of rank %d.", victim);
    assert_said(said, words);
    harness_close(harness);
    close_plan(&plan);
}

static void a_killed_rank_is_named_wherever_the_others_are(void **state)
{
    (void)state;
    for (size_t i = 0; i < MESSAGES_PATHS; i++) {
        for (int victim = 0; victim < RANKS; victim++) {
            check_killed(messages_paths[i], victim);
        }
    }
}

static void list_pids(const struct harness *harness, char *list, size_t room)
{
    list[0] = '\0';
    for (int rank = 0; rank < RANKS; rank++) {
        size_t used = strlen(list);
        snprintf(list + used, room - used, "%s%d", rank > 0 ? "," : "",
                 (int)harness_pid(harness, rank));
    }
}

struct question {
    const char *pids, *words;
    char *said;
};

static bool is_said(void *arg)
{
    const struct question *question = arg;
    inspect("--pid", question->pids, question->said);
    return strstr(question->said, question->words) != NULL;
}

/* Nobody helps: the ranks hang, and are asked until they have for long enough. */
static void check_memory(enum fault fault, const char *words)
{
    struct plan plan;
    struct harness *harness;
    char said[SAID_LEN], list[128];
    const struct question question = {.pids = list, .words = words, .said = said};
    open_plan(&plan, fault, "shm");
    harness = start(&plan);
    list_pids(harness, list, sizeof(list));
    atomic_store(&harness_shared(harness)->word[GO], 1);
    if (!harness_wait_until(is_said, (void *)&question, MESSAGES_WAIT_MS)) {
        fail_msg("no \"%s\" in: %s", words, said);
    }
    assert_said(said, "; ranks 0-1,3 have waited for ");
    assert_said(said, "Rank 2 is in no call of Weft.");
    harness_close(harness);
    close_plan(&plan);
}

/* … though the control calls before it were made before there was a recorder. */
static void a_rank_that_does_not_come_to_a_control_call_is_named(void **state)
{
    (void)state;
    check_memory(NO_CONTROL_CALL, "Rank 2 has not entered control_barrier #2 since ");
}

static void a_rank_that_does_not_come_to_duplicate_is_named(void **state)
{
    (void)state;
    check_memory(NO_DUPLICATE, "Rank 2 has not entered comm_duplicate #2 since ");
}

/* Nobody helps: the ranks hang, one of them is stopped. */
static void a_stopped_rank_is_seen_from_outside(void **state)
{
    struct plan plan;
    struct harness *harness;
    char said[SAID_LEN], list[128];
    (void)state;
    open_plan(&plan, IS_STOPPED, "shm");
    harness = start(&plan);
    list_pids(harness, list, sizeof(list));
    assert_harness(harness, harness_stop(harness, ODD));
    atomic_store(&harness_shared(harness)->word[GO], 1);
    messages_let_pass(1300); /* who waits shorter than a second is at work */
    inspect("--pid", list, said);
    assert_said(said, "Rank 2 has not entered allreduce #3 (f32 x 8, sum) since ");
    assert_said(said, "; ranks 0-1,3 have waited for 1.");
    assert_said(said, ") is stopped.");
    harness_kill(harness, ODD, SIGKILL);
    assert_harness(harness, harness_wait(harness, MESSAGES_WAIT_MS));
    harness_close(harness);
    close_plan(&plan);
}

/* Short messages to a rank that waits for them, over shared memory. */
static int pass_words(int rank, struct harness_shared *shared, void *arg)
{
    weft_comm_t comm;
    uint64_t word = 0;
    weft_status_t status = messages_join(rank, shared, "shm", MESSAGES_TIMEOUT_MS, &comm);
    (void)arg;
    for (int i = 0; i < 200 && status == WEFT_OK; i++) {
        status = rank == i % 2 ? weft_send(comm, &word, sizeof(word), 1 - rank, i, NULL)
                               : weft_recv(comm, &word, sizeof(word), 1 - rank, i, NULL, NULL);
    }
    atomic_fetch_add(&shared->word[READY], 1);
    harness_wait_reach(&shared->word[OVER], 1, MESSAGES_WAIT_MS);
    harness_say(shared, rank, 0, "%s", weft_error_text());
    weft_comm_close(comm);
    return (int)status;
}

static void nobody_is_said_to_wait_for_a_message_that_has_come(void **state)
{
    struct harness *harness = harness_start(2, pass_words, NULL);
    struct harness_shared *shared = harness_shared(harness);
    char said[SAID_LEN], list[64];
    (void)state;
    assert_harness(harness, harness_wait_reach(&shared->word[READY], 2, MESSAGES_WAIT_MS));
    messages_let_pass(1300); /* who waits shorter than a second is at work */
    snprintf(list, sizeof(list), "%d,%d", (int)harness_pid(harness, 0),
             (int)harness_pid(harness, 1));
    inspect("--pid", list, said);
    atomic_store(&shared->word[OVER], 1);
    messages_wait(harness, MESSAGES_WAIT_MS, "words");
    messages_check_fine(harness, "words");
    harness_close(harness);
    assert_said(said, "2 recordings.");
    if (strstr(said, "in recv") != NULL) {
        fail_msg("nobody waits, but: %s", said);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_calls_another_collective_is_named),
        cmocka_unit_test(a_rank_that_never_comes_is_named),
        cmocka_unit_test(a_killed_rank_is_named_wherever_the_others_are),
        cmocka_unit_test(a_rank_that_does_not_come_to_a_control_call_is_named),
        cmocka_unit_test(a_rank_that_does_not_come_to_duplicate_is_named),
        cmocka_unit_test(a_stopped_rank_is_seen_from_outside),
        cmocka_unit_test(nobody_is_said_to_wait_for_a_message_that_has_come),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
