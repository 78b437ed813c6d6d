/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernel says of an interface by ioctl. /sys shows the network namespace it was mounted
 * in; a process that changed its namespace since asks here, and so do kinds that sysfs does not
 * tell apart (veth).
 */
#include "topo/internal.h"

#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

static bool ask(int fd, const char *name, unsigned long request, void *data, struct ifreq *answer_p)
{
    memset(answer_p, 0, sizeof(*answer_p));
    snprintf(answer_p->ifr_name, sizeof(answer_p->ifr_name), "%s", name);
    answer_p->ifr_data = data;
    return ioctl(fd, request, answer_p) == 0;
}

void weft_topo_driver_ask(const char *name, struct weft_topo_driver *driver_p)
{
    struct ethtool_drvinfo info = {.cmd = ETHTOOL_GDRVINFO};
    struct ethtool_cmd link = {.cmd = ETHTOOL_GSET};
    struct ifreq answer;
    int fd = weft_fd_own(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));

    *driver_p = (struct weft_topo_driver){.speed_mbps = -1};
    if (fd < 0) {
        return;
    }
    if (ask(fd, name, SIOCETHTOOL, &info, &answer)) {
        snprintf(driver_p->name, sizeof(driver_p->name), "%.31s", info.driver);
        snprintf(driver_p->bus, sizeof(driver_p->bus), "%.31s", info.bus_info);
    }
    if (ask(fd, name, SIOCETHTOOL, &link, &answer)) {
        /* the header's own function for it shifts into the sign */
        uint32_t speed = (uint32_t)link.speed_hi << 16 | link.speed;

        driver_p->speed_mbps = speed == 0 || speed == (uint32_t)SPEED_UNKNOWN ? -1 : (int64_t)speed;
    }
    if (ask(fd, name, SIOCGIFMTU, NULL, &answer) && answer.ifr_mtu > 0) {
        driver_p->mtu = (unsigned)answer.ifr_mtu;
    }
    weft_fd_close(fd);
}
