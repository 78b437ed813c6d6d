/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What stands behind one interface: its kind, speed, driver, PCI device and NUMA node.
 *
 * sysfs is believed only where index and hardware address are the interface's own: it shows the
 * network namespace it was mounted in, where another "eth0" may live. Bonds, vlans and bridges have no device; they take
 * node and reach from what lies below them (their lower_* links).
 *
 * A dozen files of sysfs cost 0.15 ms here, three ioctls 0.02 ms: a start asks the driver first and
 * reads files only where its answer does not settle the kind.
 */
#include "topo/internal.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define LOWER "lower_"
#define LOWER_DEPTH 4 /* a vlan of a bond of ports is two */

/* if_arp.h's types of interfaces whose other end is inside a packet of another */
static bool is_tunnel_type(int64_t type)
{
    return type == 768 || type == 769 || type == 776 || type == 778 || type == 823 || type == 65534;
}

/* Words of a driver or of sysfs's DEVTYPE that tell a kind. */
static const struct {
    const char *word;
    enum weft_topo_kind kind;
} words[] = {
    {"veth", WEFT_TOPO_VETH},       {"bridge", WEFT_TOPO_BRIDGE},
    {"bond", WEFT_TOPO_BOND},       {"bonding", WEFT_TOPO_BOND},
    {"team", WEFT_TOPO_BOND},       {"vlan", WEFT_TOPO_VLAN},
    {"macvlan", WEFT_TOPO_MACVLAN}, {"macvtap", WEFT_TOPO_MACVLAN},
    {"ipvlan", WEFT_TOPO_MACVLAN},  {"vxlan", WEFT_TOPO_TUNNEL},
    {"geneve", WEFT_TOPO_TUNNEL},   {"gretap", WEFT_TOPO_TUNNEL},
    {"ip6gre", WEFT_TOPO_TUNNEL},   {"wireguard", WEFT_TOPO_TUNNEL},
    {"tun", WEFT_TOPO_TUNNEL},      {"openvswitch", WEFT_TOPO_BRIDGE},
    {"dummy", WEFT_TOPO_DUMMY},     {"802.1Q VLAN Support", WEFT_TOPO_VLAN},
};

static bool kind_of_word(const char *word, enum weft_topo_kind *kind_p)
{
    for (size_t i = 0; i < WEFT_COUNT_OF(words); i++) {
        if (strcmp(words[i].word, word) == 0) {
            *kind_p = words[i].kind;
            return true;
        }
    }
    return false;
}

/* uevent has a line "DEVTYPE=vlan" for kinds whose driver says so */
static bool kind_of_uevent(const char *folder, enum weft_topo_kind *kind_p)
{
    char path[PATH_MAX], text[512];
    char *line;

    if (snprintf(path, sizeof(path), "%s/uevent", folder) >= (int)sizeof(path) ||
        !weft_file_read(path, text, sizeof(text))) {
        return false;
    }
    line = strstr(text, "DEVTYPE=");
    if (!line) {
        return false;
    }
    line += strlen("DEVTYPE=");
    line[strcspn(line, "\n")] = '\0';
    return kind_of_word(line, kind_p);
}

static enum weft_topo_kind read_kind(const char *folder, const struct weft_topo_iface *iface)
{
    enum weft_topo_kind kind = WEFT_TOPO_VIRTUAL;
    int64_t type = 0, below = 0;

    if (iface->kind == WEFT_TOPO_LOOPBACK) {
        return WEFT_TOPO_LOOPBACK;
    }
    if (weft_topo_sysfs_is_there("%s/device", folder)) {
        return WEFT_TOPO_PHYSICAL;
    }
    if (kind_of_uevent(folder, &kind)) {
        return kind;
    }
    if (weft_topo_sysfs_is_there("%s/bridge", folder)) {
        return WEFT_TOPO_BRIDGE;
    }
    if (weft_topo_sysfs_is_there("%s/bonding", folder)) {
        return WEFT_TOPO_BOND;
    }
    if (weft_topo_sysfs_is_there("%s/tun_flags", folder) ||
        (weft_topo_sysfs_number(&type, "%s/type", folder) && is_tunnel_type(type))) {
        return WEFT_TOPO_TUNNEL;
    }
    /* a veth's iflink is its other end; often one of another namespace with the same number */
    if (weft_topo_sysfs_number(&below, "%s/iflink", folder) && below > 0 &&
        below != (int64_t)iface->index) {
        return WEFT_TOPO_VETH;
    }
    return WEFT_TOPO_VIRTUAL;
}

/* Looks below a stacked interface for devices: true when there is one; the first known node. */
static bool look_below(const char *root, const char *name, unsigned depth, int *node_p)
{
    char path[PATH_MAX];
    const struct dirent *entry;
    bool has_device = false;
    DIR *folder;

    if (depth == 0 ||
        snprintf(path, sizeof(path), "%s/sys/class/net/%s", root, name) >= (int)sizeof(path)) {
        return false;
    }
    folder = opendir(path);
    if (!folder) {
        return false;
    }
    while ((entry = readdir(folder)) != NULL) {
        const char *lower = entry->d_name + strlen(LOWER);
        struct weft_topo_pci pci;

        if (strncmp(entry->d_name, LOWER, strlen(LOWER)) != 0) {
            continue;
        }
        if (weft_topo_sysfs_pci(&pci, "%s/sys/class/net/%s/device", root, lower)) {
            has_device = true;
            *node_p = *node_p < 0 ? pci.node : *node_p;
        } else if (look_below(root, lower, depth - 1, node_p)) {
            has_device = true;
        }
    }
    closedir(folder);
    return has_device;
}

static void read_device(const char *folder, struct weft_topo_iface *iface)
{
    struct weft_topo_pci pci;

    if (weft_topo_sysfs_pci(&pci, "%s/device", folder)) {
        snprintf(iface->pci, sizeof(iface->pci), "%s", pci.address);
        snprintf(iface->pci_path, sizeof(iface->pci_path), "%s", pci.path);
        iface->node = pci.node;
    }
    weft_topo_sysfs_link_name(iface->driver, sizeof(iface->driver), "%s/device/driver", folder);
}

static void read_sysfs(const char *folder, struct weft_topo_iface *iface)
{
    int64_t number;

    weft_topo_sysfs_text(iface->state, sizeof(iface->state), "%s/operstate", folder);
    weft_topo_sysfs_link_name(iface->master, sizeof(iface->master), "%s/master", folder);
    if (weft_topo_sysfs_number(&number, "%s/speed", folder) && number > 0 && number < UINT32_MAX) {
        iface->speed_mbps = number; /* older kernels say 4294967295 for unknown */
    }
    if (weft_topo_sysfs_number(&number, "%s/mtu", folder) && number > 0 && number <= UINT32_MAX) {
        iface->mtu = (unsigned)number;
    }
    iface->kind = read_kind(folder, iface);
    if (iface->kind == WEFT_TOPO_PHYSICAL) {
        read_device(folder, iface);
    }
}

/* A bridge with a real port is the host's own way out; one without leads to guests. */
static bool is_inner(const char *root, struct weft_topo_iface *iface)
{
    switch (iface->kind) {
    case WEFT_TOPO_PHYSICAL:
    case WEFT_TOPO_LOOPBACK:
        return false;
    case WEFT_TOPO_TUNNEL:
    case WEFT_TOPO_DUMMY:
        return true;
    case WEFT_TOPO_VETH:
        return weft_topo_is_inner_name(iface->name);
    default:
        return !look_below(root, iface->name, LOWER_DEPTH, &iface->node) &&
               (iface->kind == WEFT_TOPO_BRIDGE || weft_topo_is_inner_name(iface->name));
    }
}

/* Fills what is not known yet from what the driver says; false: it did not tell the kind. */
static bool take_driver(struct weft_topo_iface *iface, const struct weft_topo_driver *driver)
{
    int64_t node;

    snprintf(iface->driver, sizeof(iface->driver), "%s", driver->name);
    if (iface->speed_mbps < 0) {
        iface->speed_mbps = driver->speed_mbps;
    }
    if (iface->mtu == 0) {
        iface->mtu = driver->mtu;
    }
    if (iface->kind != WEFT_TOPO_VIRTUAL || kind_of_word(driver->name, &iface->kind)) {
        return true;
    }
    if (!strchr(driver->bus, ':')) {
        return false;
    }
    iface->kind = WEFT_TOPO_PHYSICAL; /* its place on a bus; only PCI's is known further */
    if (weft_topo_sysfs_number(&node, "/sys/bus/pci/devices/%s/numa_node", driver->bus)) {
        snprintf(iface->pci, sizeof(iface->pci), "%.15s", driver->bus);
        iface->node = node >= 0 && node <= INT_MAX ? (int)node : -1;
    }
    return true;
}

/* Of the same name, index and hardware address: this interface and none of another namespace. */
static bool is_in_sysfs(const char *folder, struct weft_topo_iface *iface)
{
    char mac[sizeof(iface->mac)] = "";
    int64_t index;

    if (!weft_topo_sysfs_number(&index, "%s/ifindex", folder) || index <= 0 || index > INT_MAX ||
        (iface->index != 0 && iface->index != (unsigned)index)) {
        return false;
    }
    if (iface->mac[0] != '\0' && weft_topo_sysfs_text(mac, sizeof(mac), "%s/address", folder) &&
        strcmp(mac, iface->mac) != 0) {
        return false;
    }
    iface->index = (unsigned)index;
    return true;
}

void weft_topo_iface_facts(const char *root, struct weft_topo_iface *iface)
{
    char folder[PATH_MAX];

    if (snprintf(folder, sizeof(folder), "%s/sys/class/net/%s", root, iface->name) <
            (int)sizeof(folder) &&
        is_in_sysfs(folder, iface)) {
        read_sysfs(folder, iface);
    }
    if (*root == '\0' && iface->driver[0] == '\0' && iface->kind != WEFT_TOPO_LOOPBACK) {
        struct weft_topo_driver driver;
        struct weft_topo_pci pci;

        weft_topo_driver_ask(iface->name, &driver);
        take_driver(iface, &driver);
        if (iface->pci[0] != '\0' && iface->pci_path[0] == '\0' &&
            weft_topo_sysfs_pci(&pci, "/sys/bus/pci/devices/%s", iface->pci)) {
            snprintf(iface->pci_path, sizeof(iface->pci_path), "%s", pci.path);
        }
    }
    iface->is_inner = is_inner(root, iface);
}

void weft_topo_iface_brief(const char *root, struct weft_topo_iface *iface)
{
    struct weft_topo_driver driver;

    if (*root == '\0') {
        weft_topo_driver_ask(iface->name, &driver);
        if (take_driver(iface, &driver)) {
            iface->is_inner = is_inner(root, iface);
            return;
        }
    }
    weft_topo_iface_facts(root, iface);
}
