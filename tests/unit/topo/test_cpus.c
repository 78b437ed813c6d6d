/* SPDX-License-Identifier: Apache-2.0 */
#include "topo/topo.h"

#include <setjmp.h>

#include <cmocka.h>

#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[64]; /* stands in for / */

static int make_root(void **state)
{
    (void)state;
    strcpy(root, "/tmp/weft-cpus-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *walk)
{
    (void)info;
    (void)kind;
    (void)walk;
    return remove(path);
}

static int remove_root(void **state)
{
    (void)state;
    return nftw(root, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

/* Writes root + path, making its folders. */
static void plant(const char *path, const char *text)
{
    char full[PATH_MAX];
    FILE *file;

    assert_true(snprintf(full, sizeof(full), "%s%s", root, path) < (int)sizeof(full));
    for (char *slash = strchr(full + strlen(root) + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        assert_true(mkdir(full, 0700) == 0 || errno == EEXIST);
        *slash = '/';
    }
    file = fopen(full, "we");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static unsigned affinity(void)
{
    cpu_set_t set;

    assert_int_equal(sched_getaffinity(0, sizeof(set), &set), 0);
    return (unsigned)CPU_COUNT(&set);
}

static void without_cgroups_there_is_no_limit(void **state)
{
    (void)state;
    assert_int_equal(weft_topo_cgroup_millicpus(root), 0);
    assert_int_equal(weft_topo_cpus(root), affinity());
}

static void v2_quota_is_read_at_the_own_path(void **state)
{
    (void)state;
    plant("/proc/self/cgroup", "0::/user/job\n");
    plant("/sys/fs/cgroup/user/job/cpu.max", "150000 100000\n");
    assert_int_equal(weft_topo_cgroup_millicpus(root), 1500);
}

static void v2_max_is_no_limit(void **state)
{
    (void)state;
    plant("/proc/self/cgroup", "0::/job\n");
    plant("/sys/fs/cgroup/job/cpu.max", "max 100000\n");
    assert_int_equal(weft_topo_cgroup_millicpus(root), 0);
}

static void v2_tightest_ancestor_counts(void **state)
{
    (void)state;
    plant("/proc/self/cgroup", "0::/a/b/c\n");
    plant("/sys/fs/cgroup/a/b/c/cpu.max", "400000 100000\n");
    plant("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    plant("/sys/fs/cgroup/a/cpu.max", "50000 100000\n");
    assert_int_equal(weft_topo_cgroup_millicpus(root), 500);
    plant("/sys/fs/cgroup/a/b/c/cpu.max", "20000 100000\n");
    assert_int_equal(weft_topo_cgroup_millicpus(root), 200);
}

static void v2_limit_of_a_container_is_at_the_mounts_top(void **state)
{
    (void)state;
    plant("/proc/self/cgroup", "0::/\n");
    plant("/sys/fs/cgroup/cpu.max", "250000 100000\n");
    assert_int_equal(weft_topo_cgroup_millicpus(root), 2500);
}

static void a_hosts_path_that_the_container_does_not_show_ends_at_the_top(void **state)
{
    (void)state;
    plant("/proc/self/cgroup", "0::/system.slice/docker-1234.scope\n");
    plant("/sys/fs/cgroup/cpu.max", "300000 100000\n");
    assert_int_equal(weft_topo_cgroup_millicpus(root), 3000);
}

static void a_path_outside_of_the_namespace_does_not_leave_the_mount(void **state)
{
    (void)state;
    plant("/proc/self/cgroup", "0::/../../evil\n");
    plant("/sys/evil/cpu.max", "1000 100000\n");
    plant("/sys/fs/cgroup/cpu.max", "300000 100000\n");
    assert_int_equal(weft_topo_cgroup_millicpus(root), 3000);
}

static void v1_quota_of_every_ancestor_is_read(void **state)
{
    (void)state;
    plant("/proc/self/cgroup", "5:memory:/m\n4:cpu,cpuacct:/a/b\n0::/\n");
    plant("/sys/fs/cgroup/cpu/a/b/cpu.cfs_quota_us", "-1\n");
    plant("/sys/fs/cgroup/cpu/a/b/cpu.cfs_period_us", "100000\n");
    plant("/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "75000\n");
    plant("/sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "50000\n");
    assert_int_equal(weft_topo_cgroup_millicpus(root), 1500);
}

static void v1_joint_mount_is_found_too(void **state)
{
    (void)state;
    plant("/proc/self/cgroup", "4:cpu,cpuacct:/a\n");
    plant("/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "200000\n");
    plant("/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n");
    assert_int_equal(weft_topo_cgroup_millicpus(root), 2000);
}

static void v1_other_controllers_are_not_taken_for_cpu(void **state)
{
    (void)state;
    plant("/proc/self/cgroup", "3:cpuset:/a\n2:cpuacct:/a\n");
    plant("/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "50000\n");
    plant("/sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n");
    assert_int_equal(weft_topo_cgroup_millicpus(root), 0);
}

static void the_tighter_of_v1_and_v2_counts(void **state)
{
    (void)state;
    plant("/proc/self/cgroup", "4:cpu:/a\n0::/b\n");
    plant("/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "200000\n");
    plant("/sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n");
    plant("/sys/fs/cgroup/b/cpu.max", "70000 100000\n");
    assert_int_equal(weft_topo_cgroup_millicpus(root), 700);
}

static void nonsense_is_no_limit(void **state)
{
    static const char *const texts[] = {
        "",           "\n",          "100000",    "100000 0\n",
        "0 100000\n", "-5 100000\n", "abc def\n", "99999999999999999999 1\n",
    };
    static const char *const lines[] = {"", "0", "0:", "0::", "0::a", ":::\n\n::", "0::\n"};

    (void)state;
    plant("/proc/self/cgroup", "0::/job\n");
    for (size_t i = 0; i < WEFT_COUNT_OF(texts); i++) {
        plant("/sys/fs/cgroup/job/cpu.max", texts[i]);
        assert_int_equal(weft_topo_cgroup_millicpus(root), 0);
    }
    plant("/sys/fs/cgroup/cpu.max", "1000 100000\n");
    for (size_t i = 0; i < WEFT_COUNT_OF(lines); i++) {
        plant("/proc/self/cgroup", lines[i]);
        assert_int_equal(weft_topo_cgroup_millicpus(root), 0);
    }
}

static void cpus_are_rounded_up_and_never_none(void **state)
{
    (void)state;
    plant("/proc/self/cgroup", "0::/job\n");
    plant("/sys/fs/cgroup/job/cpu.max", "1 1000000\n");
    assert_int_equal(weft_topo_cgroup_millicpus(root), 1);
    assert_int_equal(weft_topo_cpus(root), 1);
    plant("/sys/fs/cgroup/job/cpu.max", "100000 100000\n");
    assert_int_equal(weft_topo_cpus(root), 1);
    plant("/sys/fs/cgroup/job/cpu.max", "100001 100000\n");
    assert_int_equal(weft_topo_cpus(root), 1); /* a thousandth is as fine as we look */
    plant("/sys/fs/cgroup/job/cpu.max", "110000 100000\n");
    assert_int_equal(weft_topo_cpus(root), affinity() < 2 ? affinity() : 2);
    plant("/sys/fs/cgroup/job/cpu.max", "100000000 100000\n");
    assert_int_equal(weft_topo_cpus(root), affinity());
}

static void affinity_cuts_the_cpus(void **state)
{
    cpu_set_t before, single;

    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    CPU_ZERO(&single);
    for (size_t cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&single) == 0; cpu++) {
        if (CPU_ISSET(cpu, &before)) {
            CPU_SET(cpu, &single);
        }
    }
    assert_int_equal(sched_setaffinity(0, sizeof(single), &single), 0);
    assert_int_equal(weft_topo_cpus(root), 1);
    assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
    assert_int_equal(weft_topo_cpus(root), CPU_COUNT(&before));
}

static void the_real_host_has_between_one_and_all(void **state)
{
    (void)state;
    assert_in_range(weft_topo_cpus(""), 1, affinity());
    assert_int_equal(weft_fd_count(), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_root, remove_root)
    const struct CMUnitTest tests[] = {
        TEST(without_cgroups_there_is_no_limit),
        TEST(v2_quota_is_read_at_the_own_path),
        TEST(v2_max_is_no_limit),
        TEST(v2_tightest_ancestor_counts),
        TEST(v2_limit_of_a_container_is_at_the_mounts_top),
        TEST(a_hosts_path_that_the_container_does_not_show_ends_at_the_top),
        TEST(a_path_outside_of_the_namespace_does_not_leave_the_mount),
        TEST(v1_quota_of_every_ancestor_is_read),
        TEST(v1_joint_mount_is_found_too),
        TEST(v1_other_controllers_are_not_taken_for_cpu),
        TEST(the_tighter_of_v1_and_v2_counts),
        TEST(nonsense_is_no_limit),
        TEST(cpus_are_rounded_up_and_never_none),
        TEST(affinity_cuts_the_cpus),
        TEST(the_real_host_has_between_one_and_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
