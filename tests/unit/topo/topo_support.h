/* SPDX-License-Identifier: Apache-2.0 */
/* Made-up hosts: a folder that stands in for /, and interfaces that stand in for the kernel's. */
#ifndef WEFT_TESTS_TOPO_SUPPORT_H
#define WEFT_TESTS_TOPO_SUPPORT_H

#include "topo/internal.h"

#include <setjmp.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[64]; /* stands in for / */

static inline int make_root(void **state)
{
    (void)state;
    strcpy(root, "/tmp/weft-topo-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static inline int remove_entry(const char *path, const struct stat *info, int kind,
                               struct FTW *walk)
{
    (void)info;
    (void)kind;
    (void)walk;
    return remove(path);
}

static inline int remove_root(void **state)
{
    (void)state;
    return nftw(root, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

/* root + path into `full`, its folders made */
static inline void make_folders(const char *path, char full[PATH_MAX])
{
    assert_true(snprintf(full, PATH_MAX, "%s%s", root, path) < PATH_MAX);
    for (char *slash = strchr(full + strlen(root) + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        assert_true(mkdir(full, 0700) == 0 || errno == EEXIST);
        *slash = '/';
    }
}

static inline void plant_file(const char *path, const char *text)
{
    char full[PATH_MAX];
    FILE *file;

    make_folders(path, full);
    file = fopen(full, "we");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* A link to another place of the made-up host; both absolute. */
static inline void plant_link(const char *path, const char *target)
{
    char full[PATH_MAX], real[PATH_MAX];

    make_folders(path, full);
    assert_true(snprintf(real, sizeof(real), "%s%s", root, target) < (int)sizeof(real));
    assert_int_equal(symlink(real, full), 0);
}

/* Two NUMA nodes of four CPUs, far apart. */
static inline void plant_two_nodes(void)
{
    plant_file("/sys/devices/system/node/online", "0-1\n");
    plant_file("/sys/devices/system/node/node0/cpulist", "0-3\n");
    plant_file("/sys/devices/system/node/node1/cpulist", "4-7\n");
    plant_file("/sys/devices/system/node/node0/distance", "10 21\n");
    plant_file("/sys/devices/system/node/node1/distance", "21 10\n");
}

static inline cpu_set_t cpus_of(const char *list)
{
    cpu_set_t cpus;

    assert_true(weft_topo_cpulist_read(list, &cpus));
    return cpus;
}

#define assert_cpus(cpus, list)                                                                    \
    do {                                                                                           \
        char cpus_text_[512];                                                                      \
        assert_string_equal(weft_topo_cpulist_print(cpus, cpus_text_, sizeof(cpus_text_)), list);  \
    } while (0)

/* "10.0.0.7/24", "fe80::1/64" */
static inline void set_addr(struct weft_topo_addr *addr, const char *text)
{
    struct sockaddr_in *in4 = (struct sockaddr_in *)&addr->addr;
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&addr->addr;
    char host[INET6_ADDRSTRLEN];
    const char *slash = strchr(text, '/');

    memset(addr, 0, sizeof(*addr));
    snprintf(host, sizeof(host), "%.*s", (int)strcspn(text, "/"), text);
    if (inet_pton(AF_INET, host, &in4->sin_addr) == 1) {
        in4->sin_family = AF_INET;
    } else if (inet_pton(AF_INET6, host, &in6->sin6_addr) == 1) {
        in6->sin6_family = AF_INET6;
    } else {
        fail_msg("no address: %s", text);
    }
    addr->prefix_len = slash ? (unsigned)strtoul(slash + 1, NULL, 10) : 0;
}

#define assert_addr(it, expected)                                                                  \
    do {                                                                                           \
        struct weft_topo_addr expected_addr_;                                                      \
        set_addr(&expected_addr_, expected);                                                       \
        assert_true(weft_topo_is_same_addr(&(it)->addr, &expected_addr_.addr));                    \
    } while (0)

#endif
