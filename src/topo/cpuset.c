/* SPDX-License-Identifier: Apache-2.0 */
/* Sets of CPUs: ours, the host's, and as text in the kernel's way ("0-3,8"). */
#include "topo/internal.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The kernel refuses a set smaller than its own; what lies beyond cpu_set_t is left out. */
#define WIDE_CPUS ((size_t)1 << 17)

static weft_status_t wide_affinity(cpu_set_t *cpus_p)
{
    size_t len = CPU_ALLOC_SIZE(WIDE_CPUS);
    cpu_set_t *wide = CPU_ALLOC(WIDE_CPUS);
    weft_status_t status = WEFT_OK;

    if (!wide) {
        return weft_fail(WEFT_ERR_MEMORY, "no memory for a set of CPUs");
    }
    if (sched_getaffinity(0, len, wide) != 0) {
        status = weft_fail_errno("reading the CPU affinity");
    } else {
        memcpy(cpus_p, wide, sizeof(*cpus_p));
    }
    CPU_FREE(wide);
    return status;
}

weft_status_t weft_topo_affinity(cpu_set_t *cpus_p)
{
    cpu_set_t cpus;

    CPU_ZERO(&cpus);
    if (sched_getaffinity(0, sizeof(cpus), &cpus) != 0) {
        return errno == EINVAL ? wide_affinity(cpus_p)
                               : weft_fail_errno("reading the CPU affinity");
    }
    *cpus_p = cpus;
    return WEFT_OK;
}

bool weft_topo_online(const char *root, cpu_set_t *cpus_p)
{
    char path[PATH_MAX], text[8192];

    return snprintf(path, sizeof(path), "%s/sys/devices/system/cpu/online", root) <
               (int)sizeof(path) &&
           weft_file_read(path, text, sizeof(text)) && weft_topo_cpulist_read(text, cpus_p);
}

/* Digits only: strtoul would take spaces and signs. */
static bool read_cpu(const char **at_p, unsigned *cpu_p)
{
    const char *at = *at_p;
    unsigned cpu = 0;

    while (*at >= '0' && *at <= '9') {
        if (cpu > 1000000) {
            return false;
        }
        cpu = cpu * 10 + (unsigned)(*at++ - '0');
    }
    if (at == *at_p) {
        return false;
    }
    *at_p = at;
    *cpu_p = cpu;
    return true;
}

bool weft_topo_cpulist_read(const char *text, cpu_set_t *cpus_p)
{
    cpu_set_t cpus;
    const char *at = text;

    CPU_ZERO(&cpus);
    while (*at != '\0' && *at != '\n') { /* a node without CPUs has an empty line */
        unsigned first, last;

        if (!read_cpu(&at, &first)) {
            return false;
        }
        last = first;
        if (*at == '-') {
            at++;
            if (!read_cpu(&at, &last) || last < first) {
                return false;
            }
        }
        for (unsigned cpu = first; cpu <= last && cpu < CPU_SETSIZE; cpu++) {
            CPU_SET(cpu, &cpus);
        }
        if (*at == ',') {
            at++;
        } else if (*at != '\0' && *at != '\n') {
            return false;
        }
    }
    *cpus_p = cpus;
    return true;
}

const char *weft_topo_cpulist_print(const cpu_set_t *cpus, char *text, size_t room)
{
    size_t used = 0;

    snprintf(text, room, "none");
    for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        unsigned first = cpu;
        char run[32];
        int len;

        if (!CPU_ISSET(cpu, cpus)) {
            continue;
        }
        while (cpu + 1 < CPU_SETSIZE && CPU_ISSET(cpu + 1, cpus)) {
            cpu++;
        }
        len = snprintf(run, sizeof(run), "%s%u", used > 0 ? "," : "", first);
        if (cpu > first) {
            len += snprintf(run + len, sizeof(run) - (size_t)len, "-%u", cpu);
        }
        if (used + (size_t)len + sizeof("...") > room) { /* always leaves room for the dots */
            snprintf(text + used, room - used, "...");
            return text;
        }
        memcpy(text + used, run, (size_t)len + 1);
        used += (size_t)len;
    }
    return text;
}
