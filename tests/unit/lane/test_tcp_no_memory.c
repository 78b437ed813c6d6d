/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel has no memory for what a lane sends or reads, for a while: frames wait, and the lane is not lost. The
 * executable is linked so that the calls come through here.
 */
#include "tcp_support.h"

#include <errno.h>
#include <sys/socket.h>

#define REFUSALS 3

ssize_t __real_recv(int fd, void *bytes, size_t room, int flags);
ssize_t __real_recvmsg(int fd, struct msghdr *message, int flags);
ssize_t __real_send(int fd, const void *bytes, size_t len, int flags);
ssize_t __real_sendmsg(int fd, const struct msghdr *message, int flags);
ssize_t __wrap_recv(int fd, void *bytes, size_t room, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *message, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t len, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags);

static struct {
    int error;
    unsigned sends, receives; /* so many are refused yet */
} refused;

static bool refuses(unsigned *count)
{
    if (*count == 0) {
        return false;
    }
    (*count)--;
    errno = refused.error;
    return true;
}

ssize_t __wrap_recv(int fd, void *bytes, size_t room, int flags)
{
    return refuses(&refused.receives) ? -1 : __real_recv(fd, bytes, room, flags);
}

ssize_t __wrap_recvmsg(int fd, struct msghdr *message, int flags)
{
    return (flags & MSG_ERRQUEUE) == 0 && refuses(&refused.receives)
               ? -1
               : __real_recvmsg(fd, message, flags);
}

ssize_t __wrap_send(int fd, const void *bytes, size_t len, int flags)
{
    return refuses(&refused.sends) ? -1 : __real_send(fd, bytes, len, flags);
}

ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags)
{
    return refuses(&refused.sends) ? -1 : __real_sendmsg(fd, message, flags);
}

/* One frame: short ones are copied behind their header, long ones gathered, and read where they shall lie. */
static void pass_one(struct pair *pair, size_t len)
{
    uint64_t deadline_ns = weft_clock_after_ms(DEADLINE_MS);
    assert_int_not_equal(side_post(&pair->a, len), WEFT_POST_FULL);
    while (pair->b.numbered < pair->a.posted && pair->a.lost + pair->b.lost == 0 &&
           weft_clock_ns() < deadline_ns) {
        side_poll(&pair->a);
        side_poll(&pair->b);
    }
    assert_int_equal(pair->a.lost + pair->b.lost, 0);
    assert_int_equal(pair->b.numbered, pair->a.posted);
    assert_false(pair->a.is_wrong || pair->b.is_wrong);
    assert_int_equal(refused.sends + refused.receives, 0);
}

static void check(const char *level, int error, unsigned sends, unsigned receives)
{
    static const size_t lengths[] = {0, 10, 600, 3000, 200000};
    struct pair pair;
    pair_prepare(&pair);
    pair_secure(&pair, level);
    side_listen(&pair.a);
    side_listen(&pair.b);
    pair_dial(&pair);
    for (size_t i = 0; i < WEFT_COUNT_OF(lengths); i++) {
        refused.error = error;
        refused.sends = sends;
        refused.receives = receives;
        pass_one(&pair, lengths[i]);
    }
    pair_close(&pair);
}

static void what_cannot_be_sent_for_want_of_memory_is_sent_later(void **state)
{
    (void)state;
    check("auth", ENOMEM, REFUSALS, 0);
    check("auth", ENOBUFS, REFUSALS, 0);
    check("encrypt", ENOMEM, REFUSALS, 0);
    check("encrypt", ENOBUFS, REFUSALS, 0);
}

static void what_cannot_be_read_for_want_of_memory_is_read_later(void **state)
{
    (void)state;
    check("auth", ENOMEM, 0, REFUSALS);
    check("auth", ENOBUFS, 0, REFUSALS);
    check("encrypt", ENOMEM, 0, REFUSALS);
    check("encrypt", ENOBUFS, 0, REFUSALS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_cannot_be_sent_for_want_of_memory_is_sent_later),
        cmocka_unit_test(what_cannot_be_read_for_want_of_memory_is_read_later),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
