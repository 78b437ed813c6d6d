/* SPDX-License-Identifier: Apache-2.0 */
#include "launch_support.h"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define OWN "WEFT_RANK=1 WEFT_RANKS=4 "

#define assert_root(at_host, at_port)                                                              \
    do {                                                                                           \
        assert_false(launch.is_one_host);                                                          \
        assert_string_equal(launch.host, at_host);                                                 \
        assert_int_equal(launch.port_count, 1);                                                    \
        assert_int_equal(launch.port[0], at_port);                                                 \
    } while (0)

static void root_is_read_in_all_its_forms(void **state)
{
    (void)state;
    assert_int_equal(detect(OWN "WEFT_ROOT=node1:4411"), WEFT_OK);
    assert_root("node1", 4411);
    assert_int_equal(detect(OWN "WEFT_ROOT=[fe80::1%eth0]:4411"), WEFT_OK);
    assert_root("fe80::1%eth0", 4411);
    assert_int_equal(detect(OWN "WEFT_ROOT=node1 WEFT_PORT=77"), WEFT_OK);
    assert_root("node1", 77);
    assert_int_equal(detect(OWN "WEFT_ROOT=[::1] WEFT_PORT=77"), WEFT_OK);
    assert_root("::1", 77);
    assert_int_equal(detect(OWN "WEFT_ROOT=10.0.0.1:77 WEFT_PORT=77"), WEFT_OK);
    assert_root("10.0.0.1", 77);
}

static void malformed_roots_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "node1:", "node1:x", "node1:0", "node1:65536", "node1:1x", "::1:80", "[::1:80", "[::1]x:80",
    };
    for (size_t i = 0; i < WEFT_COUNT_OF(bad); i++) {
        char variables[128];
        snprintf(variables, sizeof(variables), OWN "WEFT_ROOT=%s", bad[i]);
        assert_refused(variables, bad[i], "expected host:port");
    }
    assert_refused(OWN "WEFT_ROOT=:80", "WEFT_ROOT", "host name");
    assert_refused(OWN "WEFT_ROOT=[]:80", "WEFT_ROOT", "host name");
}

static void root_without_port_is_refused(void **state)
{
    (void)state;
    assert_refused(OWN "WEFT_ROOT=node1", "WEFT_ROOT=node1", "WEFT_PORT");
}

static void root_and_port_that_contradict_are_refused(void **state)
{
    (void)state;
    assert_refused(OWN "WEFT_ROOT=h:80 WEFT_PORT=81", "WEFT_ROOT=h:80", "WEFT_PORT=81");
}

static void root_outside_the_port_range_is_refused(void **state)
{
    (void)state;
    assert_refused(OWN "WEFT_ROOT=h:80 WEFT_PORT_RANGE=90-99", "80", "WEFT_PORT_RANGE=90-99");
    assert_int_equal(detect(OWN "WEFT_ROOT=h:90 WEFT_PORT_RANGE=90-99"), WEFT_OK);
    assert_root("h", 90);
}

static void id_and_root_together_are_refused_without_showing_the_id(void **state)
{
    (void)state;
    assert_refused(OWN "WEFT_ROOT=h:80 WEFT_ID=weft1:abcdef", "WEFT_ROOT=h:80", "WEFT_ID");
    assert_null(strstr(weft_error_text(), "abcdef"));
}

static void id_needs_no_root(void **state)
{
    (void)state;
    assert_int_equal(detect(OWN "WEFT_ID=weft1:abcdef"), WEFT_OK);
    assert_string_equal(launch.id_text, "weft1:abcdef");
    assert_string_equal(launch.host, "");
    assert_false(launch.is_one_host);
}

static void own_ranks_all_here_need_no_root(void **state)
{
    (void)state;
    assert_int_equal(detect(OWN "WEFT_LOCAL_RANKS=4"), WEFT_OK);
    assert_true(launch.is_one_host);
    assert_string_equal(launch.host, "");
    assert_null(launch.id_text);
    assert_int_equal(detect("WEFT_RANK=0 WEFT_RANKS=4 WEFT_LISTEN_FD=5"), WEFT_OK);
    assert_true(launch.is_one_host);
    assert_int_equal(detect("WEFT_RANK=0 WEFT_RANKS=1"), WEFT_OK);
    assert_true(launch.is_one_host);
}

static void own_ranks_elsewhere_need_a_root(void **state)
{
    (void)state;
    assert_refused(OWN, "WEFT_ROOT", "WEFT_LOCAL_RANKS=4");
    assert_refused(OWN "WEFT_LOCAL_RANKS=2", "2 of 4", "WEFT_ROOT");
}

static void mpirun_on_one_host_needs_no_root(void **state)
{
    (void)state;
    assert_int_equal(detect(OPENMPI), WEFT_OK);
    assert_true(launch.is_one_host);
    assert_int_equal(detect(HYDRA), WEFT_OK);
    assert_true(launch.is_one_host);
}

static void mpirun_on_several_hosts_needs_a_root(void **state)
{
    (void)state;
    assert_refused("OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=2",
                   "2 of 4", "WEFT_ROOT");
    assert_refused("PMI_RANK=0 PMI_SIZE=4 MPI_LOCALNRANKS=2", "2 of 4", "WEFT_ROOT");
    assert_refused("PMI_RANK=0 PMI_SIZE=4", "nothing says", "WEFT_ROOT");
    assert_int_equal(detect("PMI_RANK=0 PMI_SIZE=4 MPI_LOCALNRANKS=2 WEFT_ROOT=h:80"), WEFT_OK);
    assert_root("h", 80);
}

static void torchrun_takes_the_ports_above_its_store(void **state)
{
    (void)state;
    assert_int_equal(detect(TORCHRUN), WEFT_OK);
    assert_string_equal(launch.host, "node7");
    assert_int_equal(launch.port_count, 16);
    for (unsigned i = 0; i < 16; i++) {
        assert_int_equal(launch.port[i], 29501 + i);
    }
}

static void torchrun_stops_at_the_last_port(void **state)
{
    (void)state;
#define TORCH_AT "RANK=0 WORLD_SIZE=2 MASTER_ADDR=a TORCHELASTIC_RUN_ID=r MASTER_PORT="
    assert_int_equal(detect(TORCH_AT "65533"), WEFT_OK);
    assert_int_equal(launch.port_count, 2);
    assert_int_equal(launch.port[1], 65535);
    assert_refused(TORCH_AT "65535", "MASTER_PORT=65535", "WEFT_PORT");
    assert_refused(TORCH_AT "x", "MASTER_PORT=x", "number");
}

static void torchrun_takes_the_port_that_was_asked_for(void **state)
{
    (void)state;
    assert_int_equal(detect(TORCHRUN "WEFT_PORT=5000"), WEFT_OK);
    assert_root("node7", 5000);
    assert_refused(TORCHRUN "WEFT_PORT=5000 WEFT_PORT_RANGE=1-9", "5000", "WEFT_PORT_RANGE=1-9");
}

static void torchrun_without_master_is_refused(void **state)
{
    (void)state;
    assert_refused("RANK=0 WORLD_SIZE=2 TORCHELASTIC_RUN_ID=r", "MASTER_ADDR", "not set");
}

static void slurm_takes_the_first_host_and_sixteen_ports(void **state)
{
    (void)state;
    assert_int_equal(detect(SLURM), WEFT_OK);
    assert_string_equal(launch.host, "gpu07");
    assert_int_equal(launch.port_count, 16);
    for (unsigned i = 0; i < 16; i++) {
        assert_in_range(launch.port[i], 20000, 29999);
        assert_int_equal(launch.port[i], launch.port[0] + i);
    }
}

static void slurm_ports_are_the_same_on_all_ranks_and_differ_between_jobs(void **state)
{
    (void)state;
    unsigned same = 0;
#define SLURM_RANK(rank, job)                                                                      \
    "SLURM_PROCID=" rank " SLURM_NTASKS=16 SLURM_STEP_ID=0 SLURM_NODELIST=a[1-4] "                 \
    "SLURM_JOB_ID=" job
    assert_int_equal(detect(SLURM_RANK("0", "10")), WEFT_OK);
    uint16_t first = launch.port[0];
    assert_int_equal(detect(SLURM_RANK("9", "10")), WEFT_OK);
    assert_int_equal(launch.port[0], first);
    for (int job = 11; job < 43; job++) {
        char variables[256];
        snprintf(variables, sizeof(variables), SLURM_RANK("9", "%d"), job);
        assert_int_equal(detect(variables), WEFT_OK);
        same += launch.port[0] == first;
    }
    assert_in_range(same, 0, 3);
}

static void slurm_ports_stay_within_the_range(void **state)
{
    (void)state;
    assert_int_equal(detect(SLURM "WEFT_PORT_RANGE=5000-5004"), WEFT_OK);
    assert_int_equal(launch.port_count, 5);
    for (unsigned i = 0; i < launch.port_count; i++) {
        assert_in_range(launch.port[i], 5000, 5004);
    }
    assert_int_equal(detect(SLURM "WEFT_PORT_RANGE=65500-65535"), WEFT_OK);
    assert_int_equal(launch.port_count, 16);
    assert_in_range(launch.port[0], 65500, 65535 - 15);
    assert_int_equal(detect(SLURM "WEFT_PORT=4444"), WEFT_OK);
    assert_root("gpu07", 4444);
}

static void malformed_port_ranges_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"5000", "5000-",   "-5000", "5001-5000",
                                      "0-10", "1-65536", "1-2-3"};

    for (size_t i = 0; i < WEFT_COUNT_OF(bad); i++) {
        char variables[512];
        snprintf(variables, sizeof(variables), SLURM "WEFT_PORT_RANGE=%s", bad[i]);
        assert_refused(variables, bad[i], "first-last");
    }
}

static void slurm_without_or_with_a_broken_node_list_is_refused(void **state)
{
    (void)state;
    assert_refused("SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_STEP_ID=0", "SLURM_STEP_NODELIST",
                   "WEFT_ROOT");
    assert_refused("SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_STEP_ID=0 SLURM_JOB_NODELIST=a[1-",
                   "SLURM_JOB_NODELIST=a[1-", "expected");
}

/* ---- names ---- */

static char name_a[WEFT_PARAM_TEXT_LEN];

static const char *name_of(const char *variables)
{
    assert_int_equal(detect(variables), WEFT_OK);
    assert_true(strlen(launch.job_name) > 0);
    return launch.job_name;
}

#define assert_names_differ(a, b)                                                                  \
    do {                                                                                           \
        memcpy(name_a, name_of(a), sizeof(name_a));                                                \
        assert_string_not_equal(name_a, name_of(b));                                               \
    } while (0)
#define assert_names_equal(a, b)                                                                   \
    do {                                                                                           \
        memcpy(name_a, name_of(a), sizeof(name_a));                                                \
        assert_string_equal(name_a, name_of(b));                                                   \
    } while (0)

static void job_names_tell_jobs_apart(void **state)
{
    (void)state;
    assert_names_differ(OWN "WEFT_ROOT=a:1", OWN "WEFT_ROOT=a:2");
    assert_names_differ(TORCH_BY_HAND "TORCHELASTIC_RUN_ID=a",
                        TORCH_BY_HAND "TORCHELASTIC_RUN_ID=b");
    assert_names_differ(SLURM_RANK("0", "10"), SLURM_RANK("0", "11"));
    assert_names_differ(SLURM, SLURM "SLURM_STEP_ID=3");
    assert_names_differ(SLURM, SLURM "SLURM_RESTART_COUNT=1");
    assert_names_differ(OPENMPI, OPENMPI "PMIX_NAMESPACE=7");
    assert_names_differ(OPENMPI "PMIX_NAMESPACE= OMPI_MCA_ess_base_jobid=1",
                        OPENMPI "PMIX_NAMESPACE= OMPI_MCA_ess_base_jobid=2");
}

static void job_names_are_the_same_on_all_ranks(void **state)
{
    (void)state;
    assert_names_equal("WEFT_RANK=0 WEFT_RANKS=2 WEFT_LISTEN_FD=9 WEFT_LOCAL_RANKS=2",
                       "WEFT_RANK=1 WEFT_RANKS=2 WEFT_LOCAL_RANKS=2");
    assert_names_equal(SLURM_RANK("0", "10"), SLURM_RANK("9", "10"));
    assert_names_equal(OPENMPI, OPENMPI "OMPI_COMM_WORLD_RANK=0");
    assert_names_equal(HYDRA, HYDRA "PMI_RANK=0");
    /* agents of torchrun count only their own failures */
    assert_names_equal(TORCHRUN "TORCHELASTIC_RESTART_COUNT=0",
                       TORCHRUN "TORCHELASTIC_RESTART_COUNT=1");
}

static void own_name_is_taken_as_it_is(void **state)
{
    (void)state;
    assert_string_equal(name_of(SLURM "WEFT_JOB=mine"), "mine");
    assert_string_equal(name_of(OWN "WEFT_LOCAL_RANKS=4 WEFT_JOB=run-12"), "run-12");
}

static void a_name_that_does_not_fit_is_refused(void **state)
{
    (void)state;
    char variables[600], filler[301];

    memset(filler, 'x', sizeof(filler) - 1);
    filler[sizeof(filler) - 1] = '\0';
    snprintf(variables, sizeof(variables),
             "RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=1 TORCHELASTIC_RUN_ID=%s", filler);
    assert_refused(variables, "too long", "WEFT_JOB");
}

/* The other end of PMI's socket names the job, also below a wrapper that is not the server. */
static void pmi_jobs_are_named_after_the_server_through_a_wrapper(void **state)
{
    (void)state;
    char variables[128], direct[WEFT_PARAM_TEXT_LEN];
    int pair[2], status;

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    snprintf(variables, sizeof(variables), HYDRA "PMI_FD=%d", pair[0]);
    memcpy(direct, name_of(variables), sizeof(direct));
    pid_t wrapper = fork();
    if (wrapper == 0) {
        pid_t rank = fork();
        if (rank == 0) {
            _exit(detect(variables) == WEFT_OK && strcmp(launch.job_name, direct) == 0 ? 0 : 1);
        }
        waitpid(rank, &status, 0);
        _exit(WEXITSTATUS(status));
    }
    assert_int_equal(waitpid(wrapper, &status, 0), wrapper);
    assert_int_equal(status, 0);
    char expected[64];
    snprintf(expected, sizeof(expected), "pmi process %d", (int)getpid());
    assert_string_equal(direct, expected);
    close(pair[0]);
    close(pair[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(root_is_read_in_all_its_forms),
        cmocka_unit_test(malformed_roots_are_refused),
        cmocka_unit_test(root_without_port_is_refused),
        cmocka_unit_test(root_and_port_that_contradict_are_refused),
        cmocka_unit_test(root_outside_the_port_range_is_refused),
        cmocka_unit_test(id_and_root_together_are_refused_without_showing_the_id),
        cmocka_unit_test(id_needs_no_root),
        cmocka_unit_test(own_ranks_all_here_need_no_root),
        cmocka_unit_test(own_ranks_elsewhere_need_a_root),
        cmocka_unit_test(mpirun_on_one_host_needs_no_root),
        cmocka_unit_test(mpirun_on_several_hosts_needs_a_root),
        cmocka_unit_test(torchrun_takes_the_ports_above_its_store),
        cmocka_unit_test(torchrun_stops_at_the_last_port),
        cmocka_unit_test(torchrun_takes_the_port_that_was_asked_for),
        cmocka_unit_test(torchrun_without_master_is_refused),
        cmocka_unit_test(slurm_takes_the_first_host_and_sixteen_ports),
        cmocka_unit_test(slurm_ports_are_the_same_on_all_ranks_and_differ_between_jobs),
        cmocka_unit_test(slurm_ports_stay_within_the_range),
        cmocka_unit_test(malformed_port_ranges_are_refused),
        cmocka_unit_test(slurm_without_or_with_a_broken_node_list_is_refused),
        cmocka_unit_test(job_names_tell_jobs_apart),
        cmocka_unit_test(job_names_are_the_same_on_all_ranks),
        cmocka_unit_test(own_name_is_taken_as_it_is),
        cmocka_unit_test(a_name_that_does_not_fit_is_refused),
        cmocka_unit_test(pmi_jobs_are_named_after_the_server_through_a_wrapper),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
