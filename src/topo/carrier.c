/* SPDX-License-Identifier: Apache-2.0 */
/* Which interfaces come and go, as the kernel says it (rtnetlink). */
#include "topo/topo.h"

#include <errno.h>
#include <linux/rtnetlink.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

weft_status_t weft_topo_carrier_open(int *fd_p)
{
    const struct sockaddr_nl addr = {.nl_family = AF_NETLINK, .nl_groups = RTMGRP_LINK};
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
    if (fd < 0) {
        return weft_fail_errno("socket(AF_NETLINK)");
    }
    if (bind(fd, (const struct sockaddr *)&addr, sizeof(addr)) != 0) {
        weft_status_t status = weft_fail_errno("bind(AF_NETLINK)");
        close(fd);
        return status;
    }
    *fd_p = weft_fd_own(fd);
    return WEFT_OK;
}

static bool read_name(struct ifinfomsg *info, size_t len, char name[IF_NAMESIZE])
{
    for (struct rtattr *part = IFLA_RTA(info); RTA_OK(part, len); part = RTA_NEXT(part, len)) {
        if (part->rta_type == IFLA_IFNAME && RTA_PAYLOAD(part) <= IF_NAMESIZE) {
            memcpy(name, RTA_DATA(part), RTA_PAYLOAD(part));
            name[IF_NAMESIZE - 1] = '\0';
            return true;
        }
    }
    return false;
}

unsigned weft_topo_carrier_read(int fd, struct weft_topo_carrier *news, unsigned room)
{
    _Alignas(struct nlmsghdr) char buffer[8192];
    ssize_t got = recv(fd, buffer, sizeof(buffer), MSG_DONTWAIT);
    size_t left = got > 0 ? (size_t)got : 0;
    unsigned count = 0;
    for (struct nlmsghdr *head = (struct nlmsghdr *)(void *)buffer;
         NLMSG_OK(head, left) && count < room; head = NLMSG_NEXT(head, left)) {
        struct ifinfomsg *info = NLMSG_DATA(head);
        if ((head->nlmsg_type == RTM_NEWLINK || head->nlmsg_type == RTM_DELLINK) &&
            head->nlmsg_len >= NLMSG_LENGTH(sizeof(*info)) &&
            read_name(info, IFLA_PAYLOAD(head), news[count].name)) {
            news[count++].is_up = head->nlmsg_type == RTM_NEWLINK &&
                                  (info->ifi_flags & IFF_UP) != 0 &&
                                  (info->ifi_flags & IFF_RUNNING) != 0;
        }
    }
    return count;
}

bool weft_topo_carrier_ask(const char *name, bool *is_up_p)
{
    struct ifreq asked = {0};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool is_known;
    if (fd < 0) {
        return false;
    }
    snprintf(asked.ifr_name, sizeof(asked.ifr_name), "%s", name);
    is_known = ioctl(fd, SIOCGIFFLAGS, &asked) == 0;
    close(fd);
    if (is_known) {
        *is_up_p = (asked.ifr_flags & IFF_UP) != 0 && (asked.ifr_flags & IFF_RUNNING) != 0;
    }
    return is_known;
}
