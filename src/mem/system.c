/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the system says of its memory: how much can be had, how large the last cache is.
 *
 * A cgroup's limit holds for everything below it, so every ancestor is read and the tightest
 * counts. What its members use already is not subtracted: most of that may be page cache, which
 * gives way. So obtainable() is an upper bound, good for refusing what cannot be.
 */
#include "mem/internal.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CACHE_LEN_UNKNOWN ((size_t)32 << 20)
#define CACHE_INDEXES 10

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* "MemAvailable:   123 kB", in bytes */
static bool meminfo_value(const char *text, const char *name, uint64_t *bytes_p)
{
    const char *line = strstr(text, name);

    if (!line) {
        return false;
    }
    *bytes_p = strtoull(line + strlen(name), NULL, 10) * 1024;
    return true;
}

static uint64_t host_obtainable(void)
{
    char text[2048];
    uint64_t available, swap = 0;

    if (!weft_file_read("/proc/meminfo", text, sizeof(text)) ||
        !meminfo_value(text, "MemAvailable:", &available)) {
        return UINT64_MAX;
    }
    (void)meminfo_value(text, "SwapFree:", &swap);
    return available + swap;
}

/* The tightest limit from mount + path up to the mount; "max", or no file, is none. Changes path. */
static uint64_t tightest_limit(const char *mount, const char *file, char *path)
{
    uint64_t tightest = UINT64_MAX;
    char name[PATH_MAX], text[32];

    for (;;) {
        char *slash = strrchr(path, '/');

        if (snprintf(name, sizeof(name), "%s%s/%s", mount, path, file) < (int)sizeof(name) &&
            weft_file_read(name, text, sizeof(text)) && text[0] >= '0' && text[0] <= '9') {
            tightest = smaller(tightest, strtoull(text, NULL, 10));
        }
        if (!slash) {
            return tightest;
        }
        *slash = '\0';
    }
}

static uint64_t cgroup_obtainable(void)
{
    char text[4096];
    char *rest = text, *line;
    uint64_t tightest = UINT64_MAX;

    if (!weft_file_read("/proc/self/cgroup", text, sizeof(text))) {
        return tightest;
    }
    while ((line = strsep(&rest, "\n"))) {
        char *path = strstr(line, ":/");

        if (!path) {
            continue;
        }
        if (strncmp(line, "0::", 3) == 0) {
            tightest = smaller(tightest, tightest_limit("/sys/fs/cgroup", "memory.max", path + 1));
        } else if (strstr(line, ":memory:")) {
            tightest = smaller(tightest, tightest_limit("/sys/fs/cgroup/memory",
                                                        "memory.limit_in_bytes", path + 1));
        }
    }
    return tightest;
}

uint64_t weft_mem_obtainable(void)
{
    return smaller(host_obtainable(), cgroup_obtainable());
}

static bool cache_file(int index, const char *file, char *text, size_t room)
{
    char path[96];

    snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu0/cache/index%d/%s", index, file);
    if (!weft_file_read(path, text, room)) {
        return false;
    }
    text[strcspn(text, "\n")] = '\0';
    return true;
}

/* The size of the highest level. sysconf() is not asked: it multiplies by what cpuid calls sharers,
 * and inside a virtual machine that has given ten times the cache there is. */
static size_t read_cache_len(void)
{
    long highest = 0;
    int64_t len = 0;

    for (int i = 0; i < CACHE_INDEXES; i++) {
        char level[16], size[32];
        int64_t bytes;

        if (cache_file(i, "level", level, sizeof(level)) && strtol(level, NULL, 10) > highest &&
            cache_file(i, "size", size, sizeof(size)) &&
            weft_value_parse(WEFT_PARAM_SIZE, size, &bytes) && bytes > 0) {
            highest = strtol(level, NULL, 10);
            len = bytes;
        }
    }
    return highest >= 2 ? (size_t)len : CACHE_LEN_UNKNOWN;
}

size_t weft_mem_cache_len(void)
{
    static _Atomic size_t known; /* two threads that read it at once find the same */
    size_t len = atomic_load_explicit(&known, memory_order_relaxed);

    if (len == 0) {
        len = read_cache_len();
        atomic_store_explicit(&known, len, memory_order_relaxed);
    }
    return len;
}
