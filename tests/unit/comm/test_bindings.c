/* SPDX-License-Identifier: Apache-2.0 */
/* WEFT_TX_BINDINGS and WEFT_RX_BINDINGS: wrong ones end the start and show the place, right ones bind the
 * library's own thread and nobody else. */
#include "unit/api/messages.h"

#include <dirent.h>
#include <sched.h>

/* CPUs of the threads of this process: how many may run on CPU 0 alone, how many elsewhere too. */
static bool count_threads(int *bound_p, int *free_p)
{
    DIR *folder = opendir("/proc/self/task");
    const struct dirent *entry;
    *bound_p = *free_p = 0;
    if (folder == NULL) {
        return false;
    }
    while ((entry = readdir(folder)) != NULL) {
        pid_t thread = (pid_t)strtol(entry->d_name, NULL, 10);
        cpu_set_t cpus;
        if (thread > 0 && sched_getaffinity(thread, sizeof(cpus), &cpus) == 0) {
            bool is_bound = CPU_COUNT(&cpus) == 1 && CPU_ISSET(0, &cpus);
            *(is_bound ? bound_p : free_p) += 1;
        }
    }
    closedir(folder);
    return true;
}

static int send_and_count(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    uint64_t word = 1;
    int bound, others;
    if (rank == 0) {
        EXPECT_OK(weft_send(comm, &word, sizeof(word), 1, 1, NULL));
    } else {
        EXPECT_OK(weft_recv(comm, &word, sizeof(word), 0, 1, NULL, NULL));
    }
    EXPECT(count_threads(&bound, &others));
    /* the background thread, and we; a sanitizer may have a thread of its own */
    EXPECT(IS_THREAD_SANITIZED ? bound >= 1 && others >= 1 : bound == 1 && others == 1);
    return 0;
}

static void our_thread_runs_where_the_bindings_say_and_the_user_s_does_not(void **state)
{
    cpu_set_t cpus;
    (void)state;
    if (sched_getaffinity(0, sizeof(cpus), &cpus) != 0 || CPU_COUNT(&cpus) < 2 ||
        !CPU_ISSET(0, &cpus)) {
        skip();
    }
    setenv("WEFT_TX_BINDINGS", "lo:0", 1);
    run_ways(SHM_PROCESSES, 2, send_and_count);
    unsetenv("WEFT_TX_BINDINGS");
}

static int refuse_to_join(int rank, struct harness_shared *shared, void *arg)
{
    weft_comm_t comm = NULL;
    (void)arg;
    EXPECT(job_join(rank, shared, NULL, &comm) == WEFT_ERR_INVALID);
    EXPECT(strstr(weft_error_text(), "WEFT_RX_BINDINGS, column 4") != NULL);
    EXPECT(strstr(weft_error_text(), ">>1-0<<") != NULL);
    return 0;
}

static void bindings_that_are_wrong_end_the_start_and_show_the_place(void **state)
{
    (void)state;
    setenv("WEFT_RX_BINDINGS", "lo:1-0", 1);
    run_bodies(SHM_PROCESSES, 1, refuse_to_join);
    unsetenv("WEFT_RX_BINDINGS");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(our_thread_runs_where_the_bindings_say_and_the_user_s_does_not),
        cmocka_unit_test(bindings_that_are_wrong_end_the_start_and_show_the_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
