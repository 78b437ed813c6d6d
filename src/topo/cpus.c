/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much CPU this process really has. A container often shows all cores of its host and is cut
 * down by a quota instead; a program that spins as if it had them all is throttled for whole
 * periods.
 *
 * A quota holds for a cgroup and everything below it, so every ancestor is read and the tightest
 * counts. Inside a container the path in /proc/self/cgroup may be the host's while the mount shows
 * only our own part: files that are not there are skipped, and the walk ends at the mount's top.
 */
#include "topo/topo.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define AFFINITY_CPUS_MAX ((size_t)1 << 20)

/* A limit of 0 is none; the smaller of two limits. */
static uint64_t tighter(uint64_t a, uint64_t b)
{
    if (a == 0 || b == 0) {
        return a + b;
    }
    return a < b ? a : b;
}

static uint64_t millicpus(int64_t quota_us, int64_t period_us)
{
    if (quota_us <= 0 || period_us <= 0 || quota_us > INT64_MAX / 1000) {
        return 0;
    }
    quota_us = quota_us * 1000 / period_us;
    return quota_us > 0 ? (uint64_t)quota_us : 1;
}

/* Reads one number of a file's text; what follows it, or NULL when there is none. */
static const char *parse_number(const char *text, int64_t *number_p)
{
    char *end;
    long long number;

    errno = 0;
    number = strtoll(text, &end, 10);
    if (end == text || errno != 0) {
        return NULL;
    }
    *number_p = number;
    return end;
}

static bool read_numbers(const char *folder, const char *file, unsigned count, int64_t *numbers)
{
    char path[PATH_MAX], text[64];
    const char *rest = text;

    if (snprintf(path, sizeof(path), "%s/%s", folder, file) >= (int)sizeof(path) ||
        !weft_file_read(path, text, sizeof(text))) {
        return false;
    }
    for (unsigned i = 0; i < count && rest; i++) {
        rest = parse_number(rest, &numbers[i]);
    }
    return rest != NULL;
}

/* v2: "50000 100000", quota and period in µs; "max 100000" is no limit and no number */
static uint64_t read_v2_limit(const char *folder)
{
    int64_t both[2] = {0, 0};

    return read_numbers(folder, "cpu.max", 2, both) ? millicpus(both[0], both[1]) : 0;
}

/* v1: quota -1 is no limit */
static uint64_t read_v1_limit(const char *folder)
{
    int64_t quota_us = 0, period_us = 0;

    if (!read_numbers(folder, "cpu.cfs_quota_us", 1, &quota_us) ||
        !read_numbers(folder, "cpu.cfs_period_us", 1, &period_us)) {
        return 0;
    }
    return millicpus(quota_us, period_us);
}

/* The tightest limit from mount + path up to the mount itself. */
static uint64_t walk_up(const char *mount, const char *path, uint64_t (*read_limit)(const char *))
{
    char folder[PATH_MAX];
    size_t mount_len = strlen(mount);
    uint64_t limit = 0;

    /* "/../x" is a cgroup outside of our namespace: its files are not under the mount */
    if (strstr(path, "/..") ||
        snprintf(folder, sizeof(folder), "%s%s", mount, path) >= (int)sizeof(folder)) {
        return read_limit(mount);
    }
    for (;;) {
        char *slash = strrchr(folder + mount_len, '/');

        limit = tighter(limit, read_limit(folder));
        if (!slash) {
            return limit;
        }
        *slash = '\0';
    }
}

static uint64_t limit_under(const char *root, const char *mount, const char *path,
                            uint64_t (*read_limit)(const char *))
{
    char folder[PATH_MAX];

    if (snprintf(folder, sizeof(folder), "%s%s", root, mount) >= (int)sizeof(folder)) {
        return 0;
    }
    return walk_up(folder, path, read_limit);
}

static bool has_controller(const char *list, const char *wanted)
{
    size_t wanted_len = strlen(wanted);

    while (*list != '\0') {
        size_t len = strcspn(list, ",");

        if (len == wanted_len && memcmp(list, wanted, len) == 0) {
            return true;
        }
        list += len + (list[len] == ',');
    }
    return false;
}

/* One line of /proc/self/cgroup, "number:controllers:path"; v2's number is 0, its list is empty. */
static uint64_t limit_of_line(const char *root, char *line)
{
    char *controllers = strchr(line, ':');
    char *path = controllers ? strchr(controllers + 1, ':') : NULL;
    uint64_t limit;

    if (!path || path[1] != '/') {
        return 0;
    }
    *controllers++ = '\0';
    *path++ = '\0';
    if (strcmp(path, "/") == 0) {
        path = ""; /* spares reading the mount's top twice */
    }
    if (strcmp(line, "0") == 0 && *controllers == '\0') {
        return limit_under(root, "/sys/fs/cgroup", path, read_v2_limit);
    }
    if (!has_controller(controllers, "cpu")) {
        return 0;
    }
    limit = limit_under(root, "/sys/fs/cgroup/cpu", path, read_v1_limit);
    if (limit == 0) { /* where "cpu" is not a link to it */
        limit = limit_under(root, "/sys/fs/cgroup/cpu,cpuacct", path, read_v1_limit);
    }
    return limit;
}

uint64_t weft_topo_cgroup_millicpus(const char *root)
{
    char path[PATH_MAX], text[8192];
    char *rest = NULL;
    uint64_t limit = 0;

    if (snprintf(path, sizeof(path), "%s/proc/self/cgroup", root) >= (int)sizeof(path) ||
        !weft_file_read(path, text, sizeof(text))) {
        return 0;
    }
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        limit = tighter(limit, limit_of_line(root, line));
    }
    return limit;
}

/* CPUs in our affinity mask. The kernel refuses a mask smaller than its own, so it grows until it
 * fits. */
static unsigned affinity_cpus(void)
{
    for (size_t cpus = 1024; cpus <= AFFINITY_CPUS_MAX; cpus *= 2) {
        size_t len = CPU_ALLOC_SIZE(cpus);
        cpu_set_t *set = CPU_ALLOC(cpus);
        int failed, error, count;

        if (!set) {
            return 0;
        }
        failed = sched_getaffinity(0, len, set);
        error = errno;
        count = failed ? 0 : CPU_COUNT_S(len, set);
        CPU_FREE(set);
        if (!failed) {
            return (unsigned)count;
        }
        if (error != EINVAL) {
            return 0;
        }
    }
    return 0;
}

unsigned weft_topo_cpus(const char *root)
{
    uint64_t limit = weft_topo_cgroup_millicpus(root);
    unsigned cpus = affinity_cpus();

    if (cpus == 0) {
        cpus = 1;
    }
    if (limit > 0 && limit < (uint64_t)cpus * 1000) {
        cpus = (unsigned)((limit + 999) / 1000);
    }
    return cpus;
}
