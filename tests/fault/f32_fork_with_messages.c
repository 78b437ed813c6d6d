/* SPDX-License-Identifier: Apache-2.0 */
/*
 * User code forks while messages are on their way: the child finds communicator and requests dead
 * and our descriptors closed; the parent's messages arrive as if nothing had been; a child that
 * sleeps does not hide the death of its rank.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fault/messages.h"

#include <sys/wait.h>

#define CHILD_S 10 /* no child outlives this */
#define TAG 6
#define LEN ((size_t)8 << 20)

static int wait_child(pid_t child)
{
    int wait_status = 0;
    if (child < 0 || waitpid(child, &wait_status, 0) != child) {
        return -1;
    }
    return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 1000 + WTERMSIG(wait_status);
}

/* ---- what the child finds ---- */

struct held {
    weft_comm_t comm;
    weft_request_t request; /* of a receive that nothing has matched yet */
    weft_mem_t mem;
    unsigned fds;
};

/* Number of the first that is not ERR_FORKED; 0: all are. */
static int find_alive(const weft_status_t *statuses, size_t count, int first)
{
    for (size_t i = 0; i < count; i++) {
        if (statuses[i] != WEFT_ERR_FORKED) {
            return first + (int)i;
        }
    }
    return 0;
}

static int check_comm(struct held *held)
{
    uint64_t word = 0;
    weft_message_t message;
    weft_request_t request = NULL;
    weft_mem_t mem;
    const weft_status_t statuses[] = {
        weft_send(held->comm, &word, sizeof(word), 0, TAG, NULL),
        weft_send(held->comm, &word, sizeof(word), 1, TAG, &request),
        weft_recv(held->comm, &word, sizeof(word), 1, TAG, NULL, NULL),
        weft_probe(held->comm, 1, TAG, 100, &message),
        weft_group_begin(held->comm),
        weft_group_end(held->comm),
        weft_mem_register(held->comm, &word, sizeof(word), &mem),
        weft_mem_deregister(held->comm, &held->mem),
        weft_put(held->comm, &held->mem, 0, &word, sizeof(word)),
        weft_get(held->comm, &held->mem, 0, &word, sizeof(word)),
        weft_put_signal(held->comm, &held->mem, 0, &word, 0, &held->mem, 0, 1),
        weft_wait_signal(held->comm, &word, 1, 100),
        weft_fence(held->comm),
        weft_quiet(held->comm),
        weft_comm_set_timeout(held->comm, 100),
        weft_comm_close(held->comm),
    };
    return find_alive(statuses, sizeof(statuses) / sizeof(statuses[0]), 2);
}

static int check_requests(struct held *held)
{
    int is_done = 0, index = 0;
    const weft_status_t statuses[] = {
        weft_test(&held->request, &is_done),           weft_wait(&held->request, 100),
        weft_wait_any(&held->request, 1, 100, &index), weft_wait_all(&held->request, 1, 100),
        weft_request_set_timeout(held->request, 100),  weft_cancel(&held->request),
    };
    return find_alive(statuses, sizeof(statuses) / sizeof(statuses[0]), 40);
}

static int run_child(struct held *held, int (*check)(struct held *held))
{
    pid_t child = fork();
    if (child == 0) {
        alarm(CHILD_S);
        _exit(harness_count_fds() != held->fds ? 1 : check(held));
    }
    return wait_child(child);
}

struct plan {
    const char *path;
    int (*check)(struct held *held);
};

/* Both ranks fork while large messages go both ways. */
static int child_body(int rank, struct harness_shared *shared, void *arg)
{
    const struct plan *plan = arg;
    struct held held = {.fds = harness_count_fds()};
    uint8_t *out = messages_buffer(LEN), *in = messages_buffer(LEN);
    weft_request_t requests[2] = {NULL, NULL};
    uint64_t late = 0;
    weft_status_t status = messages_join(rank, shared, plan->path, MESSAGES_TIMEOUT_MS, &held.comm);
    messages_fill(out, LEN, (uint64_t)rank);
    status = status == WEFT_OK ? weft_mem_register(held.comm, in, LEN, &held.mem) : status;
    status = status == WEFT_OK
                 ? weft_recv(held.comm, &late, sizeof(late), 1 - rank, 99, NULL, &held.request)
                 : status;
    status =
        status == WEFT_OK ? weft_send(held.comm, out, LEN, 1 - rank, TAG, &requests[0]) : status;
    status = status == WEFT_OK ? weft_recv(held.comm, in, LEN, 1 - rank, TAG, NULL, &requests[1])
                               : status;
    if (status != WEFT_OK) {
        free(in);
        free(out);
        return harness_say(shared, rank, -1, "could not start: %s", weft_error_text());
    }
    int claim = run_child(&held, plan->check);
    status = weft_wait_all(requests, 2, WEFT_NO_LIMIT);
    uint64_t word = 7 + (uint64_t)rank;
    status =
        status == WEFT_OK ? weft_send(held.comm, &word, sizeof(word), 1 - rank, 99, NULL) : status;
    status = status == WEFT_OK ? weft_wait(&held.request, WEFT_NO_LIMIT) : status;
    bool is_right = messages_are_right(in, LEN, (uint64_t)(1 - rank)) && late == 8 - (uint64_t)rank;
    harness_say(shared, rank, 0, "%s", status == WEFT_OK ? "" : weft_error_text());
    weft_control_barrier(held.comm);
    weft_comm_close(held.comm);
    free(out);
    free(in);
    if (claim != 0) {
        return harness_say(shared, rank, -1, "claim %d does not hold in the child%s", claim,
                           claim >= 1000 ? " (killed by a signal)" : "");
    }
    return is_right ? (int)status : harness_say(shared, rank, -1, "the parent got wrong data");
}

static void check_child(int (*check)(struct held *held))
{
    for (size_t path = 0; path < MESSAGES_PATHS; path++) {
        struct plan plan = {messages_paths[path], check};
        struct harness *harness = harness_start(2, child_body, &plan);
        messages_wait(harness, 2 * MESSAGES_WAIT_MS, messages_paths[path]);
        messages_check_fine(harness, messages_paths[path]);
        harness_close(harness);
    }
}

static void a_forked_child_finds_its_communicator_dead(void **state)
{
    (void)state;
    check_child(check_comm);
}

static void a_forked_child_finds_its_requests_dead(void **state)
{
    (void)state;
    check_child(check_requests);
}

/* ---- a child that outlives its rank ---- */

struct orphan {
    const char *path;
    int pipe_fds[2];
};

static int orphan_body(int rank, struct harness_shared *shared, void *arg)
{
    const struct orphan *orphan = arg;
    uint8_t *data = messages_buffer(LEN);
    weft_comm_t comm;
    weft_status_t status = messages_join(rank, shared, orphan->path, MESSAGES_TIMEOUT_MS, &comm);
    close(orphan->pipe_fds[1]);
    for (int peer = 0; peer < 3 && status == WEFT_OK; peer++) { /* lanes to all */
        status = weft_send(comm, data, 100, peer, TAG, NULL);
    }
    for (int peer = 0; peer < 3 && status == WEFT_OK; peer++) {
        status = weft_recv(comm, data, 100, peer, TAG, NULL, NULL);
    }
    if (status != WEFT_OK) {
        free(data);
        return harness_say(shared, rank, -1, "could not start: %s", weft_error_text());
    }
    if (rank == 1) {
        char byte;
        if (fork() == 0) {
            alarm(CHILD_S);
            _exit(read(orphan->pipe_fds[0], &byte, 1) < 0); /* until the test closes its end */
        }
        atomic_fetch_add(&shared->word[0], 1);
        harness_wait_for(&shared->word[1], 1, MESSAGES_WAIT_MS); /* killed here */
        return -1;
    }
    atomic_fetch_add(&shared->word[0], 1);
    job_calls(rank, shared);
    status = rank == 0 ? weft_recv(comm, data, LEN, 1, TAG, NULL, NULL)
                       : weft_send(comm, data, LEN, 1, TAG, NULL);
    job_returned(rank, shared, status);
    atomic_fetch_add(&shared->word[2], 1);
    harness_wait_for(&shared->word[2], 2, MESSAGES_WAIT_MS);
    job_close(rank, shared, comm);
    free(data);
    return 0;
}

static void a_sleeping_child_does_not_hide_the_death_of_its_rank(void **state)
{
    (void)state;
    for (size_t path = 0; path < MESSAGES_PATHS; path++) {
        struct orphan orphan = {.path = messages_paths[path]};
        assert_int_equal(pipe2(orphan.pipe_fds, O_CLOEXEC), 0);
        struct harness *harness = harness_start(3, orphan_body, &orphan);
        struct harness_shared *shared = harness_shared(harness);
        close(orphan.pipe_fds[0]);
        assert_harness(harness, harness_wait_for(&shared->word[0], 3, MESSAGES_WAIT_MS));
        assert_harness(harness, job_wait_asleep(harness, 0, 5000));
        struct messages_verdict verdict = {WEFT_ERR_PEER, 1, NULL, harness_now_ns()};
        assert_harness(harness, harness_kill(harness, 1, SIGKILL));
        messages_wait(harness, MESSAGES_WAIT_MS, orphan.path);
        messages_check_verdict(harness, 0, &verdict, orphan.path);
        messages_check_verdict(harness, 2, &verdict, orphan.path);
        assert_harness(harness, harness_check_clean(harness));
        harness_close(harness);
        close(orphan.pipe_fds[1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_forked_child_finds_its_communicator_dead),
        cmocka_unit_test(a_forked_child_finds_its_requests_dead),
        cmocka_unit_test(a_sleeping_child_does_not_hide_the_death_of_its_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
