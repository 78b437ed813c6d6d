/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pair's socket, after the handshake: carries descriptors, wakes a sleeper, and its end is the
 * sign that the peer is gone. All it carries is mail of one size, so that framing is trivial; the
 * kernel takes one whole or not at all.
 */
#include "lane/shm/internal.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define READ_AT_ONCE 256 /* mails: a peer that only talks does not stop the round */

bool weft_shm_mail_send(int to, const struct weft_shm_mail *mail, int fd)
{
    union {
        struct cmsghdr header;
        uint8_t bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec piece = {.iov_base = (void *)mail, .iov_len = sizeof(*mail)};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    ssize_t sent;
    if (fd >= 0) {
        memset(&control, 0, sizeof(control));
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
        message.msg_control = &control;
        message.msg_controllen = sizeof(control);
    }
    do {
        sent = sendmsg(to, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent == (ssize_t)sizeof(*mail);
}

/* Keeps the first descriptor of a message; more are nobody's wish. false: it had too many. */
static bool take_fds(struct weft_shm_lane *lane, struct msghdr *message)
{
    bool is_fine = (message->msg_flags & MSG_CTRUNC) == 0;
    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header != NULL;
         header = CMSG_NXTHDR(message, header)) {
        size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(header) + i * sizeof(fd), sizeof(fd));
            weft_fd_own(fd);
            if (lane->in_fd < 0) {
                lane->in_fd = fd;
            } else {
                weft_fd_close(fd);
                is_fine = false;
            }
        }
    }
    return is_fine;
}

/* Without any the kernel had no number for it; else there were too many. */
static void lose_for_fds(struct weft_shm_lane *lane)
{
    if (lane->in_fd >= 0) {
        weft_shm_lose(lane, WEFT_ERR_PROTOCOL, "sent more descriptors than mail");
        return;
    }
    errno = EMFILE;
    weft_fail_errno("no room for a descriptor that it sent");
    weft_shm_lose(lane, WEFT_ERR_SYSTEM, "%s", weft_error_text());
}

/* Part of a mail, mostly all of it; false: nothing more now. */
static bool receive(struct weft_shm_lane *lane)
{
    union {
        struct cmsghdr header;
        uint8_t bytes[CMSG_SPACE(2 * sizeof(int))];
    } control;
    struct iovec piece = {.iov_base = (uint8_t *)&lane->in + lane->in_len,
                          .iov_len = sizeof(lane->in) - lane->in_len};
    struct msghdr message = {.msg_iov = &piece,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof(control)};
    ssize_t got;
    do {
        got = recvmsg(lane->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while (got < 0 && errno == EINTR);
    if (got < 0 && errno == EAGAIN) {
        return false;
    }
    if (got <= 0) {
        weft_shm_end(lane);
        return false;
    }
    lane->in_len += (unsigned)got;
    if (!take_fds(lane, &message)) {
        lose_for_fds(lane);
        return false;
    }
    return true;
}

/* Owns fd. */
static weft_status_t take(struct weft_shm_lane *lane, const struct weft_shm_mail *mail, int fd)
{
    if (mail->magic != WEFT_SHM_MAGIC || lane->state < WEFT_SHM_SETTING_UP ||
        (mail->kind == WEFT_SHM_SETUP || mail->kind == WEFT_SHM_POOL ||
         mail->kind == WEFT_SHM_READY) != (lane->state == WEFT_SHM_SETTING_UP)) {
        weft_fd_close(fd);
        return weft_fail(WEFT_ERR_PROTOCOL, "sent unexpected bytes on its socket");
    }
    switch (mail->kind) {
    case WEFT_SHM_SETUP:
        return weft_shm_take_setup(lane, mail, fd);
    case WEFT_SHM_READY:
        weft_fd_close(fd);
        return lane->is_dialler ? weft_fail(WEFT_ERR_PROTOCOL, "is ready, but did not dial")
                                : weft_shm_take_ready(lane);
    case WEFT_SHM_POOL:
        return weft_shm_take_pool(lane, mail, fd);
    case WEFT_SHM_REGION:
        return weft_shm_take_region(lane, mail, fd);
    case WEFT_SHM_WANT:
        weft_shm_answer_want(lane, mail->id);
        break;
    case WEFT_SHM_GONE:
        weft_shm_take_gone(lane, mail->id);
        break;
    case WEFT_SHM_RING:
        /* Whoever sleeps relies on this ring, and we have just taken it away: pass it on. */
        if (weft_shm_port_of(lane)->is_armed) {
            weft_engine_completed(weft_shm_port_of(lane)->engine);
        }
        break;
    default:
        weft_fd_close(fd);
        return weft_fail(WEFT_ERR_PROTOCOL, "sent mail of unknown kind %u", mail->kind);
    }
    weft_fd_close(fd);
    return WEFT_OK;
}

void weft_shm_mail_read(struct weft_shm_lane *lane)
{
    for (int i = 0; i < READ_AT_ONCE && lane->fd >= 0 && !lane->has_ended && receive(lane); i++) {
        int fd = lane->in_fd;
        weft_status_t status;
        if (lane->in_len < sizeof(lane->in)) {
            continue;
        }
        lane->in_len = 0;
        lane->in_fd = -1;
        if (lane->state == WEFT_SHM_LOST || lane->is_closing) {
            weft_fd_close(fd); /* only its end matters now */
            continue;
        }
        status = take(lane, &lane->in, fd);
        if (status != WEFT_OK) {
            weft_shm_lose(lane, status, "%s", weft_error_text());
        }
    }
}

void weft_shm_mail_ready(struct weft_engine_source *source, uint32_t events)
{
    struct weft_shm_lane *lane = WEFT_CONTAINER_OF(source, struct weft_shm_lane, source);
    (void)events;
    weft_shm_mail_read(lane); /* may be the last thing this lane does */
}
