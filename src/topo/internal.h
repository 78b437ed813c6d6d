/* SPDX-License-Identifier: Apache-2.0 */
/* Private to topo: small reads of sysfs, and what its files know of interfaces together. */
#ifndef WEFT_TOPO_INTERNAL_H
#define WEFT_TOPO_INTERNAL_H

#include "topo/topo.h"

/* ---- sysfs.c: paths by printf, root included; false: not there, nothing written ---- */

/* The first line, without its end. */
bool weft_topo_sysfs_text(char *text, size_t room, const char *fmt, ...) WEFT_PRINTF(3, 4);
bool weft_topo_sysfs_number(int64_t *number_p, const char *fmt, ...) WEFT_PRINTF(2, 3);
bool weft_topo_sysfs_is_there(const char *fmt, ...) WEFT_PRINTF(1, 2);
/* Where a link leads, its last part only ("mlx5_core" of …/driver). */
bool weft_topo_sysfs_link_name(char *name, size_t room, const char *fmt, ...) WEFT_PRINTF(3, 4);

struct weft_topo_pci {
    char address[WEFT_TOPO_PCI_LEN];   /* "" not on PCI */
    char path[WEFT_TOPO_PCI_PATH_LEN]; /* from the root complex down; "" too long, or none */
    int node;                          /* -1: unknown */
};
/* Follows a device's link. Devices that stand on a PCI device (virtio) count as that one. */
bool weft_topo_sysfs_pci(struct weft_topo_pci *pci_p, const char *fmt, ...) WEFT_PRINTF(2, 3);

/* ---- names and addresses (nics.c) ---- */

/* Named by container and VM managers; other hosts cannot reach them. */
bool weft_topo_is_inner_name(const char *name);
bool weft_topo_is_link_local(const struct sockaddr_storage *addr); /* IPv6 */

/* ---- interfaces ---- */

/* Names, indices, flags and addresses only (iface.c). */
weft_status_t weft_topo_iface_list(struct weft_topo_iface **ifaces_p, unsigned *count_p);
/* Everything else of one: sysfs, or the driver where sysfs shows another network namespace
 * (iface_facts.c). */
void weft_topo_iface_facts(const char *root, struct weft_topo_iface *iface);
/* The same, as little as the choice needs: no state, no master, no path on the PCI tree. */
void weft_topo_iface_brief(const char *root, struct weft_topo_iface *iface);
/* How far their nodes are from the calling thread (iface.c). */
weft_status_t weft_topo_iface_distances(const char *root, struct weft_topo_iface *ifaces,
                                        unsigned count);

struct weft_topo_driver {
    char name[32];
    char bus[32]; /* "0000:17:00.0" */
    int64_t speed_mbps;
    unsigned mtu;
};
/* What the kernel says of an interface without sysfs (ethtool.c); unknown: "", -1, 0. */
void weft_topo_driver_ask(const char *name, struct weft_topo_driver *driver_p);

#endif
