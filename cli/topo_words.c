/* SPDX-License-Identifier: Apache-2.0 */
/* What the tree and the picture say in the same words. */
#include "topo_view.h"

#include <arpa/inet.h>
#include <string.h>

const char *weft_cli_topo_speed(int64_t mbps, char text[TOPO_WORDS_LEN])
{
    if (mbps < 0) {
        snprintf(text, TOPO_WORDS_LEN, "? Gbit/s");
    } else if (mbps < 1000) {
        snprintf(text, TOPO_WORDS_LEN, "%lld Mbit/s", (long long)mbps);
    } else {
        snprintf(text, TOPO_WORDS_LEN, "%g Gbit/s", (double)mbps / 1000);
    }
    return text;
}

const char *weft_cli_topo_memory(uint64_t len, char text[TOPO_WORDS_LEN])
{
    snprintf(text, TOPO_WORDS_LEN, "%.1f GiB", (double)len / (double)(UINT64_C(1) << 30));
    return text;
}

const char *weft_cli_topo_addr(const struct weft_topo_addr *addr, char text[TOPO_WORDS_LEN])
{
    const void *bytes = addr->addr.ss_family == AF_INET
                            ? (const void *)&((const struct sockaddr_in *)&addr->addr)->sin_addr
                            : (const void *)&((const struct sockaddr_in6 *)&addr->addr)->sin6_addr;
    char host[INET6_ADDRSTRLEN] = "?";

    if (addr->addr.ss_family == AF_INET || addr->addr.ss_family == AF_INET6) {
        inet_ntop(addr->addr.ss_family, bytes, host, sizeof(host));
    }
    snprintf(text, TOPO_WORDS_LEN, "%s/%u", host, addr->prefix_len);
    return text;
}

const char *weft_cli_topo_state(const struct weft_topo_iface *iface)
{
    return !iface->is_up ? "down" : iface->has_carrier ? "up" : "no carrier";
}

const char *weft_cli_topo_cores(unsigned cores, const cpu_set_t *cpus, char text[TOPO_WORDS_LEN])
{
    unsigned pus = (unsigned)CPU_COUNT(cpus);
    char list[48];

    weft_topo_cpulist_print(cpus, list, sizeof(list));
    if (pus == 0) {
        snprintf(text, TOPO_WORDS_LEN, "no cores");
    } else if (cores == 0 || pus % cores != 0) { /* some have two threads, some one */
        snprintf(text, TOPO_WORDS_LEN, "%u cores, %u PUs %s", cores, pus, list);
    } else if (pus == cores) {
        snprintf(text, TOPO_WORDS_LEN, "%u core%s, PUs %s", cores, cores == 1 ? "" : "s", list);
    } else {
        snprintf(text, TOPO_WORDS_LEN, "%u core%s x %u threads, PUs %s", cores,
                 cores == 1 ? "" : "s", pus / cores, list);
    }
    return text;
}

unsigned weft_cli_topo_process(const struct topo_view *view, char lines[4][TOPO_WORDS_LEN])
{
    const struct weft_topo_machine *machine = view->machine;
    int all = CPU_COUNT(&machine->cpus), allowed = CPU_COUNT(&machine->allowed);
    int ours = CPU_COUNT(&view->affinity);
    char list[48];
    unsigned count = 0;

    if (allowed < all) {
        weft_topo_cpulist_print(&machine->allowed, list, sizeof(list));
        snprintf(lines[count++], TOPO_WORDS_LEN, "cpuset    the cgroup leaves %d of %d PUs: %s",
                 allowed, all, list);
    }
    weft_topo_cpulist_print(&view->affinity, list, sizeof(list));
    if (ours < allowed) {
        snprintf(lines[count++], TOPO_WORDS_LEN,
                 "affinity  %d of %d PUs: %s (taskset, numactl or the launcher)", ours, allowed,
                 list);
    } else {
        snprintf(lines[count++], TOPO_WORDS_LEN, "affinity  all %d PUs: %s", ours, list);
    }
    if (view->cgroup_millicpus > 0) {
        snprintf(lines[count++], TOPO_WORDS_LEN, "quota     the cgroup's time is that of %.3g CPUs",
                 (double)view->cgroup_millicpus / 1000);
    } else {
        snprintf(lines[count++], TOPO_WORDS_LEN, "quota     none from cgroups");
    }
    snprintf(lines[count++], TOPO_WORDS_LEN, "counted   %u CPU%s: more ranks than that share them",
             view->cpus, view->cpus == 1 ? "" : "s");
    return count;
}

const char *weft_cli_topo_reason(const struct weft_topo_iface *iface, char text[TOPO_WORDS_LEN])
{
    if (iface->use == WEFT_TOPO_USE_DATA) {
        text[0] = '\0';
    } else if (iface->use == WEFT_TOPO_USE_MEMBER) {
        snprintf(text, TOPO_WORDS_LEN, "belongs to %s, which has the address", iface->master);
    } else {
        snprintf(text, TOPO_WORDS_LEN, "%s", weft_topo_use_text(iface->use));
    }
    return text;
}

int weft_cli_topo_place(const struct topo_view *view, int node)
{
    for (unsigned i = 0; node >= 0 && i < view->machine->node_count; i++) {
        if (view->machine->nodes[i].id == node) {
            return (int)i;
        }
    }
    return -1;
}

unsigned weft_cli_topo_width(const char *text)
{
    unsigned width = 0;

    for (; *text != '\0'; text++) {
        width += ((unsigned char)*text & 0xc0) != 0x80;
    }
    return width;
}
