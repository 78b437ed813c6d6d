/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel has no memory for what a connection says or hears, for a while: nothing is lost, and nobody is. The
 * executable is linked so that the calls come through here.
 */
#include "net_support.h"

#include <sys/socket.h>

#define REFUSALS 3

ssize_t __real_recv(int fd, void *bytes, size_t room, int flags);
ssize_t __real_send(int fd, const void *bytes, size_t len, int flags);
ssize_t __wrap_recv(int fd, void *bytes, size_t room, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t len, int flags);

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

ssize_t __wrap_send(int fd, const void *bytes, size_t len, int flags)
{
    return refuses(&refused.sends) ? -1 : __real_send(fd, bytes, len, flags);
}

static const int errors[] = {ENOMEM, ENOBUFS};

static bool drive_all(struct scene *scene, const unsigned *count, unsigned value)
{
    bool is_there = drive_until(scene->engine, NULL, count, value);
    assert_int_equal(scene->server.lost + scene->client.lost, 0);
    assert_int_equal(refused.sends + refused.receives, 0);
    return is_there;
}

static void frames_wait_until_there_is_memory_to_send_them(void **state)
{
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(errors); i++) {
        struct scene scene = {.engine = NULL};
        scene_open(&scene);
        refused.error = errors[i];
        refused.sends = REFUSALS;
        send_pattern(scene.client.conn, 1, 100);
        assert_int_equal(refused.sends, REFUSALS - 1);
        assert_true(weft_net_conn_queued(scene.client.conn) > 100);
        send_pattern(scene.client.conn, 2, 100000);
        assert_true(drive_all(&scene, &scene.server.frames, 2));
        assert_int_equal(scene.server.bytes, 100100);
        assert_false(scene.server.is_wrong);
        scene_close(&scene);
    }
}

static void frames_are_read_when_there_is_memory_again(void **state)
{
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(errors); i++) {
        struct scene scene = {.engine = NULL};
        scene_open(&scene);
        refused.error = errors[i];
        refused.receives = REFUSALS;
        send_pattern(scene.client.conn, 1, 100);
        assert_true(drive_all(&scene, &scene.server.frames, 1));
        assert_false(scene.server.is_wrong);
        scene_close(&scene);
    }
}

static void a_handshake_waits_too(void **state)
{
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(errors); i++) {
        struct scene scene = {.engine = NULL};
        refused.error = errors[i];
        refused.sends = refused.receives = REFUSALS;
        scene_listen(&scene);
        scene_dial_at(&scene, &scene.addr);
        assert_true(drive_all(&scene, &scene.client.opened, 1));
        scene_close(&scene);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_wait_until_there_is_memory_to_send_them),
        cmocka_unit_test(frames_are_read_when_there_is_memory_again),
        cmocka_unit_test(a_handshake_waits_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
