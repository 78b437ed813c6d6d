/* SPDX-License-Identifier: Apache-2.0 */
/* Takes the place of libc's list of interfaces, which lives only as long as the host stays as it
 * is. A program that includes this sees the interfaces its tests plant. */
#ifndef WEFT_TESTS_FAKE_IFADDRS_H
#define WEFT_TESTS_FAKE_IFADDRS_H

#include "topo_support.h"

#include <ifaddrs.h>
#include <linux/if_packet.h>
#include <net/if.h>

#define UP (IFF_UP | IFF_RUNNING)

static struct fake {
    struct ifaddrs entry;
    struct weft_topo_addr addr;
    struct sockaddr_storage mask;
    char name[IF_NAMESIZE];
} fakes[2 * WEFT_TOPO_NICS_MAX];
static unsigned fake_count;
static bool is_refused;

int getifaddrs(struct ifaddrs **list) /* NOLINT(readability-inconsistent-*) */
{
    if (is_refused) {
        errno = EMFILE;
        return -1;
    }
    *list = fake_count > 0 ? &fakes[0].entry : NULL;
    return 0;
}

void freeifaddrs(struct ifaddrs *list) /* NOLINT(readability-inconsistent-*) */
{
    (void)list;
}

static inline int begin_host(void **state)
{
    memset(fakes, 0, sizeof(fakes));
    fake_count = 0;
    is_refused = false;
    return make_root(state);
}

static inline struct fake *plant_entry(const char *name, unsigned flags)
{
    struct fake *fake = &fakes[fake_count++];

    snprintf(fake->name, sizeof(fake->name), "%s", name);
    fake->entry.ifa_name = fake->name;
    fake->entry.ifa_flags = flags;
    if (fake_count > 1) {
        fakes[fake_count - 2].entry.ifa_next = &fake->entry;
    }
    return fake;
}

/* The interface itself, as the kernel lists it before its addresses. */
static inline void plant_iface(const char *name, unsigned flags, int index)
{
    struct fake *fake = plant_entry(name, flags);
    struct sockaddr_ll *link = (struct sockaddr_ll *)&fake->addr.addr;

    link->sll_family = AF_PACKET;
    link->sll_ifindex = index;
    link->sll_halen = 6;
    link->sll_addr[5] = (unsigned char)index;
    fake->entry.ifa_addr = (struct sockaddr *)link;
}

static inline void plant_addr(const char *name, unsigned flags, const char *text)
{
    struct fake *fake = plant_entry(name, flags);
    uint8_t *bytes;

    set_addr(&fake->addr, text);
    fake->entry.ifa_addr = (struct sockaddr *)&fake->addr.addr;
    fake->mask.ss_family = fake->addr.addr.ss_family;
    bytes = fake->mask.ss_family == AF_INET
                ? (uint8_t *)&((struct sockaddr_in *)&fake->mask)->sin_addr
                : (uint8_t *)&((struct sockaddr_in6 *)&fake->mask)->sin6_addr;
    for (unsigned bit = 0; bit < fake->addr.prefix_len; bit++) {
        bytes[bit / 8] |= (uint8_t)(0x80 >> bit % 8);
    }
    fake->entry.ifa_netmask = (struct sockaddr *)&fake->mask;
}

/* One file of /sys/class/net/<name>. */
static inline void plant_fact(const char *name, const char *file, const char *text)
{
    char path[256];

    snprintf(path, sizeof(path), "/sys/class/net/%s/%s", name, file);
    plant_file(path, text);
}

/* An interface in both worlds: up with this address, known to sysfs. */
static inline void plant_both(const char *name, int index, const char *addr)
{
    char text[32];

    plant_iface(name, UP, index);
    plant_addr(name, UP, addr);
    snprintf(text, sizeof(text), "%d\n", index);
    plant_fact(name, "ifindex", text);
    snprintf(text, sizeof(text), "00:00:00:00:00:%02x\n", (unsigned)index);
    plant_fact(name, "address", text);
}

/* A PCI device behind it. */
static inline void plant_device(const char *name, const char *place, const char *node)
{
    char path[256], target[256];

    snprintf(target, sizeof(target), "/sys/devices/%s", place);
    snprintf(path, sizeof(path), "/sys/devices/%s/numa_node", place);
    plant_file(path, node);
    snprintf(path, sizeof(path), "/sys/class/net/%s/device", name);
    plant_link(path, target);
}

#endif
