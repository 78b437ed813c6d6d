/* SPDX-License-Identifier: Apache-2.0 */
/* Reading sysfs: one value per file, links for relations. What is missing is normal here. */
#include "topo/internal.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATH_OF(path, fmt)                                                                         \
    __extension__({                                                                                \
        va_list args_;                                                                             \
        va_start(args_, fmt);                                                                      \
        int len_ = vsnprintf(path, sizeof(path), fmt, args_);                                      \
        va_end(args_);                                                                             \
        len_ >= 0 && len_ < (int)sizeof(path);                                                     \
    })

bool weft_topo_sysfs_text(char *text, size_t room, const char *fmt, ...)
{
    char path[PATH_MAX], line[256];

    if (!PATH_OF(path, fmt) || !weft_file_read(path, line, sizeof(line))) {
        return false;
    }
    line[strcspn(line, "\n")] = '\0';
    snprintf(text, room, "%s", line);
    return true;
}

bool weft_topo_sysfs_number(int64_t *number_p, const char *fmt, ...)
{
    char path[PATH_MAX], text[64];
    char *end;
    long long number;

    if (!PATH_OF(path, fmt) || !weft_file_read(path, text, sizeof(text))) {
        return false;
    }
    errno = 0;
    number = strtoll(text, &end, 0); /* "0x030200" too */
    if (end == text || errno != 0) {
        return false;
    }
    *number_p = number;
    return true;
}

bool weft_topo_sysfs_is_there(const char *fmt, ...)
{
    char path[PATH_MAX];

    return PATH_OF(path, fmt) && access(path, F_OK) == 0;
}

bool weft_topo_sysfs_link_name(char *name, size_t room, const char *fmt, ...)
{
    char path[PATH_MAX], target[PATH_MAX];
    const char *slash;
    ssize_t len;

    if (!PATH_OF(path, fmt)) {
        return false;
    }
    len = readlink(path, target, sizeof(target) - 1);
    if (len <= 0) {
        return false;
    }
    target[len] = '\0';
    slash = strrchr(target, '/');
    snprintf(name, room, "%s", slash ? slash + 1 : target);
    return true;
}

/* "0000:17:00.0": domain (it may have more digits), bus, slot, function */
static bool is_pci_address(const char *part, size_t len)
{
    static const char hex[] = "0123456789abcdef";
    size_t domain = strspn(part, hex);
    const char *rest = part + domain;

    return domain >= 4 && len == domain + 8 && len < WEFT_TOPO_PCI_LEN && rest[0] == ':' &&
           strspn(rest + 1, hex) == 2 && rest[3] == ':' && strspn(rest + 4, hex) == 2 &&
           rest[6] == '.' && strspn(rest + 7, hex) == 1;
}

/* In "…/pci0000:16/0000:16:01.0/0000:17:00.0/virtio2" the device is the last address, its path all
 * from "pci" to there. *end_p is where it ends. */
static const char *find_pci(const char *path, const char **device_p, const char **end_p)
{
    const char *begin = NULL;

    for (const char *part = path; *part != '\0';) {
        size_t len = strcspn(part, "/");

        if (!begin && len > 3 && strncmp(part, "pci", 3) == 0) {
            begin = part;
        } else if (begin && is_pci_address(part, len)) {
            *device_p = part;
            *end_p = part + len;
        }
        part += len + (part[len] == '/');
    }
    return begin;
}

static bool read_node(int *node_p, const char *folder, int folder_len)
{
    int64_t node;

    if (!weft_topo_sysfs_number(&node, "%.*s/numa_node", folder_len, folder) || node < 0 ||
        node > INT_MAX) {
        return false; /* -1 is how the kernel says that it does not know */
    }
    *node_p = (int)node;
    return true;
}

bool weft_topo_sysfs_pci(struct weft_topo_pci *pci_p, const char *fmt, ...)
{
    char path[PATH_MAX], real[PATH_MAX];
    const char *begin, *device = NULL, *end = NULL;

    if (!PATH_OF(path, fmt) || !realpath(path, real)) {
        return false;
    }
    *pci_p = (struct weft_topo_pci){.node = -1};
    begin = find_pci(real, &device, &end);
    if (!device) { /* on another bus (a hypervisor's): it may still have a node */
        read_node(&pci_p->node, real, (int)strlen(real));
        return true;
    }
    snprintf(pci_p->address, sizeof(pci_p->address), "%.*s", (int)(end - device), device);
    if ((size_t)(end - begin) < sizeof(pci_p->path)) {
        snprintf(pci_p->path, sizeof(pci_p->path), "%.*s", (int)(end - begin), begin);
    }
    read_node(&pci_p->node, real, (int)(end - real));
    return true;
}
