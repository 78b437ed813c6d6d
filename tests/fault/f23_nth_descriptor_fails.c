/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors, or what the kernel needs to watch them, run out at any moment of a job's life; see sweep.h. With
 * --long every call fails once, else every seventh. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fault/sweep.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

/* Wrappers find their line by its place. */
enum { SOCKET, ACCEPT4, EPOLL_CREATE1, EPOLL_CTL, EVENTFD, MEMFD_CREATE, TIMERFD_CREATE, CALLS };

static const struct sweep_call calls[CALLS] = {
    [SOCKET] = {"socket", EMFILE, WEFT_ERR_SYSTEM, NULL},
    [ACCEPT4] = {"accept4", EMFILE, WEFT_ERR_SYSTEM, NULL},
    [EPOLL_CREATE1] = {"epoll_create1", EMFILE, WEFT_ERR_SYSTEM, NULL},
    [EPOLL_CTL] = {"epoll_ctl", ENOSPC, WEFT_ERR_SYSTEM, NULL},
    [EVENTFD] = {"eventfd", EMFILE, WEFT_ERR_SYSTEM, NULL},
    [MEMFD_CREATE] = {"memfd_create", EMFILE, WEFT_ERR_SYSTEM, NULL},
    [TIMERFD_CREATE] = {"timerfd_create", EMFILE, WEFT_ERR_SYSTEM, "every"},
};

int __real_socket(int family, int type, int protocol);
int __wrap_socket(int family, int type, int protocol);
int __wrap_socket(int family, int type, int protocol)
{
    return sweep_fails(SOCKET, EMFILE) ? -1 : __real_socket(family, type, protocol);
}

int __real_accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags);
int __wrap_accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags);
int __wrap_accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
    return sweep_fails(ACCEPT4, EMFILE) ? -1 : __real_accept4(fd, addr, len, flags);
}

int __real_epoll_create1(int flags);
int __wrap_epoll_create1(int flags);
int __wrap_epoll_create1(int flags)
{
    return sweep_fails(EPOLL_CREATE1, EMFILE) ? -1 : __real_epoll_create1(flags);
}

/* Only adding needs anything that can run out. */
int __real_epoll_ctl(int epfd, int op, int fd, struct epoll_event *event);
int __wrap_epoll_ctl(int epfd, int op, int fd, struct epoll_event *event);
int __wrap_epoll_ctl(int epfd, int op, int fd, struct epoll_event *event)
{
    return op == EPOLL_CTL_ADD && sweep_fails(EPOLL_CTL, ENOSPC)
               ? -1
               : __real_epoll_ctl(epfd, op, fd, event);
}

int __real_eventfd(unsigned value, int flags);
int __wrap_eventfd(unsigned value, int flags);
int __wrap_eventfd(unsigned value, int flags)
{
    return sweep_fails(EVENTFD, EMFILE) ? -1 : __real_eventfd(value, flags);
}

int __real_memfd_create(const char *name, unsigned flags);
int __wrap_memfd_create(const char *name, unsigned flags);
int __wrap_memfd_create(const char *name, unsigned flags)
{
    return sweep_fails(MEMFD_CREATE, EMFILE) ? -1 : __real_memfd_create(name, flags);
}

int __real_timerfd_create(int clock, int flags);
int __wrap_timerfd_create(int clock, int flags);
int __wrap_timerfd_create(int clock, int flags)
{
    return sweep_fails(TIMERFD_CREATE, EMFILE) ? -1 : __real_timerfd_create(clock, flags);
}

int main(int argc, char **argv)
{
    return sweep_main(argc, argv, calls, CALLS);
}
