/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This machine in one line, "AMD EPYC 9R14; 96 CPUs; eth0 25G, eth1 25G", and what has changed since
 * such a line was written. A start asks the second question when there is a profile, so it costs few
 * system calls: the CPU names itself (opening /proc/cpuinfo sleeps on some kernels), a listed NIC is
 * one file. CPUs are those online, not those we may use: ranks of one host are bound to different
 * ones.
 *
 * NICs are Ethernet and InfiniBand devices that are up or have hardware behind them; not what
 * containers and tunnels bring and take away.
 */
#include "base/base.h"

#include <dirent.h>
#include <inttypes.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define MODEL_LEN 64
#define NICS_MAX 64
#define FILE_LEN 256
#define SPEED_UNKNOWN (-1)
#define NO_NICS "no NICs"

enum { TYPE_ETHERNET = 1, TYPE_INFINIBAND = 32 }; /* ARPHRD_… */

struct nic {
    char name[IF_NAMESIZE];
    int64_t speed_mbps;
};

/* ---- facts ---- */

/* One space between words, none around; what separates fields becomes a comma. */
static void tidy(char *text)
{
    char *to = text;

    weft_text_clean(text);
    for (const char *from = text; *from != '\0'; from++) {
        if (*from != ' ' || (to > text && to[-1] != ' ')) {
            *to++ = (char)(*from == ';' ? ',' : *from);
        }
    }
    while (to > text && to[-1] == ' ') {
        to--;
    }
    *to = '\0';
}

#if defined(__x86_64__)
/* Every CPU of 64 bits has these leaves; asking whether costs as much as asking (in a virtual machine 7
 * us). */
static bool ask_cpu(char *model, size_t room)
{
    enum { FIRST = (int)0x80000002u, LEAVES = 3 };
    uint32_t words[LEAVES][4];

    for (unsigned i = 0; i < LEAVES; i++) {
        __cpuid((unsigned)FIRST + i, words[i][0], words[i][1], words[i][2], words[i][3]);
    }
    snprintf(model, room, "%.*s", (int)sizeof(words), (const char *)words);
    return true;
}
#else
static bool ask_cpu(char *model, size_t room)
{
    char text[FILE_LEN];

    if (!weft_file_read("/sys/devices/system/cpu/cpu0/regs/identification/midr_el1", text,
                        sizeof(text))) {
        return false;
    }
    snprintf(model, room, "midr %.*s", (int)strcspn(text, "\n"), text);
    return true;
}
#endif

static void read_model(char model[MODEL_LEN])
{
    if (!ask_cpu(model, MODEL_LEN)) {
        model[0] = '\0';
    }
    tidy(model);
    if (model[0] == '\0') {
        snprintf(model, MODEL_LEN, "unknown CPU");
    }
}

/* "0-3,8" has 5; 0: nobody says */
static unsigned count_cpus(const char *root)
{
    char path[FILE_LEN], text[FILE_LEN];
    unsigned count = 0;

    snprintf(path, sizeof(path), "%s/sys/devices/system/cpu/online", root);
    if (!weft_file_read(path, text, sizeof(text))) {
        return 0;
    }
    for (char *at = text; *at >= '0' && *at <= '9';) {
        unsigned long first = strtoul(at, &at, 10);
        unsigned long last = *at == '-' ? strtoul(at + 1, &at, 10) : first;

        count += last >= first ? (unsigned)(last - first + 1) : 0;
        at += *at == ',';
    }
    return count;
}

static bool read_fact(const char *root, const char *nic, const char *fact, char *text)
{
    char path[FILE_LEN];

    snprintf(path, sizeof(path), "%s/sys/class/net/%s/%s", root, nic, fact);
    return weft_file_read(path, text, FILE_LEN);
}

/* A device that is down does not say. */
static int64_t read_speed(const char *root, const char *nic)
{
    char text[FILE_LEN];
    int64_t speed = SPEED_UNKNOWN;

    if (read_fact(root, nic, "speed", text)) {
        speed = strtoll(text, NULL, 10);
    }
    return speed > 0 && speed < UINT32_MAX ? speed : SPEED_UNKNOWN;
}

static bool has_device(const char *root, const char *nic)
{
    char path[FILE_LEN];

    snprintf(path, sizeof(path), "%s/sys/class/net/%s/device", root, nic);
    return access(path, F_OK) == 0;
}

static bool is_transient_name(const char *name)
{
    static const char *const prefixes[] = {"docker", "br-",  "virbr", "veth",  "cni",  "flannel",
                                           "cali",   "lxc",  "lxdbr", "vmnet", "kube", "podman",
                                           "vxlan",  "vnet", "dummy", "ifb",   "tap",  "tun"};

    for (size_t i = 0; i < WEFT_COUNT_OF(prefixes); i++) {
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_nic(const char *root, const char *name)
{
    char text[FILE_LEN];
    long type;

    if (name[0] == '.' || strcmp(name, "lo") == 0 || strlen(name) >= IF_NAMESIZE ||
        is_transient_name(name) || !read_fact(root, name, "type", text)) {
        return false;
    }
    type = strtol(text, NULL, 10);
    if (type != TYPE_ETHERNET && type != TYPE_INFINIBAND) {
        return false;
    }
    return has_device(root, name) ||
           (read_fact(root, name, "flags", text) && (strtoul(text, NULL, 16) & IFF_UP) != 0);
}

/* ---- writing the line ---- */

static const char *print_speed(int64_t mbps, char text[24])
{
    if (mbps < 1000) {
        snprintf(text, 24, "%" PRId64 "M", mbps);
    } else if (mbps % 1000 == 0) {
        snprintf(text, 24, "%" PRId64 "G", mbps / 1000);
    } else {
        snprintf(text, 24, "%.3gG", (double)mbps / 1000);
    }
    return text;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct nic *)a)->name, ((const struct nic *)b)->name);
}

static unsigned list_nics(const char *root, struct nic nics[NICS_MAX])
{
    char path[FILE_LEN];
    unsigned count = 0;
    DIR *folder;

    snprintf(path, sizeof(path), "%s/sys/class/net", root);
    folder = opendir(path);
    for (struct dirent *entry; folder && count < NICS_MAX && (entry = readdir(folder)) != NULL;) {
        if (is_nic(root, entry->d_name)) {
            memcpy(nics[count].name, entry->d_name, strlen(entry->d_name) + 1);
            nics[count].speed_mbps = read_speed(root, entry->d_name);
            count++;
        }
    }
    if (folder) {
        closedir(folder);
    }
    qsort(nics, count, sizeof(*nics), by_name);
    return count;
}

void weft_machine_print(const char *root, char text[WEFT_MACHINE_LEN])
{
    struct nic nics[NICS_MAX];
    unsigned count = list_nics(root, nics);
    char model[MODEL_LEN], speed[24];
    size_t used;

    read_model(model);
    used = (size_t)snprintf(text, WEFT_MACHINE_LEN, "%s; %u CPUs; %s", model, count_cpus(root),
                            count == 0 ? NO_NICS : "");
    for (unsigned i = 0; i < count && used < WEFT_MACHINE_LEN; i++) {
        bool is_known = nics[i].speed_mbps != SPEED_UNKNOWN;

        used += (size_t)snprintf(text + used, WEFT_MACHINE_LEN - used, "%s%s%s%s",
                                 i > 0 ? ", " : "", nics[i].name, is_known ? " " : "",
                                 is_known ? print_speed(nics[i].speed_mbps, speed) : "");
    }
}

/* ---- comparing it ---- */

static const char *skip_space(const char *at)
{
    return at + strspn(at, " \t");
}

/* The next field of a list, without the spaces around; returns where the one after it begins, NULL:
 * this was the last. */
static const char *next_field(const char *at, char end, char *field, size_t room)
{
    size_t len;

    at = skip_space(at);
    len = 0;
    while (at[len] != '\0' && at[len] != end) {
        len++;
    }
    snprintf(field, room, "%.*s", (int)len, at);
    tidy(field);
    return at[len] == end ? at + len + 1 : NULL;
}

/* "eth0 25G": is that NIC still here, and as fast? A speed that one side does not know is no
 * difference. */
static bool nic_differs(const char *root, const char *name, const char *speed, char *what,
                        size_t room)
{
    char path[FILE_LEN], now[24];
    int64_t mbps;

    snprintf(path, sizeof(path), "%s/sys/class/net/%s", root, name);
    if (strchr(name, '/') != NULL || name[0] == '.' || access(path, F_OK) != 0) {
        snprintf(what, room, "there is no NIC %s", name);
        return true;
    }
    mbps = speed[0] != '\0' ? read_speed(root, name) : SPEED_UNKNOWN;
    if (mbps != SPEED_UNKNOWN && strcmp(print_speed(mbps, now), speed) != 0) {
        snprintf(what, room, "NIC %s has %s, not %s", name, now, speed);
        return true;
    }
    return false;
}

static bool is_listed(char names[][IF_NAMESIZE], unsigned count, const char *name)
{
    for (unsigned i = 0; i < count; i++) {
        if (strcmp(names[i], name) == 0) {
            return true;
        }
    }
    return false;
}

static bool has_new_nic(const char *root, char names[][IF_NAMESIZE], unsigned count, char *what,
                        size_t room)
{
    char path[FILE_LEN];
    bool is_found = false;
    DIR *folder;

    snprintf(path, sizeof(path), "%s/sys/class/net", root);
    folder = opendir(path);
    for (struct dirent *entry; folder && !is_found && (entry = readdir(folder)) != NULL;) {
        if (!is_listed(names, count, entry->d_name) && is_nic(root, entry->d_name)) {
            snprintf(what, room, "NIC %.15s is new", entry->d_name);
            is_found = true;
        }
    }
    if (folder) {
        closedir(folder);
    }
    return is_found;
}

static bool nics_differ(const char *root, const char *list, char *what, size_t room)
{
    char names[NICS_MAX][IF_NAMESIZE], field[FILE_LEN];
    unsigned count = 0;

    while (list != NULL && count < NICS_MAX) {
        list = next_field(list, ',', field, sizeof(field));
        size_t len = strcspn(field, " ");

        if (strcmp(field, NO_NICS) == 0 || len == 0) {
            continue;
        }
        if (len >= IF_NAMESIZE) {
            snprintf(what, room, "there is no NIC %.*s", (int)len, field);
            return true;
        }
        snprintf(names[count], IF_NAMESIZE, "%.*s", (int)len, field);
        if (nic_differs(root, names[count++], skip_space(field + len), what, room)) {
            return true;
        }
    }
    return count < NICS_MAX && has_new_nic(root, names, count, what, room);
}

bool weft_machine_differs(const char *root, const char *line, char *what, size_t room)
{
    char model[MODEL_LEN], field[FILE_LEN], cpus[32];
    const char *at = next_field(line, ';', field, sizeof(field));

    read_model(model);
    if (strcmp(model, field) != 0) {
        snprintf(what, room, "the CPU is %s, not %s", model, field);
        return true;
    }
    if (at != NULL) {
        at = next_field(at, ';', field, sizeof(field));
        snprintf(cpus, sizeof(cpus), "%u CPUs", count_cpus(root));
        if (strcmp(cpus, field) != 0) {
            snprintf(what, room, "there are %s, not %s", cpus, field);
            return true;
        }
    }
    return at != NULL && nics_differ(root, at, what, room);
}
