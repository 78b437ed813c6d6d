/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a receive, as another thread sees it that waits for any of several. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "p2p/internal.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct weft_request request;
static struct weft_p2p p2p;
static struct weft_p2p_comm comm;
static struct weft_p2p_peer peer;
static struct weft_p2p_member states[2];

/* The bell lies where nobody may write yet: whoever rings it comes by here first. */
static _Atomic uint32_t *bell;
static size_t page;
static volatile uint32_t rung, was_done;

static void ringing(int number)
{
    (void)number;
    was_done = atomic_load(&request.is_done);
    rung++;
    mprotect(bell, page, PROT_READ | PROT_WRITE);
}

static int open_scene(void **state)
{
    (void)state;
    page = (size_t)sysconf(_SC_PAGESIZE);
    bell = mmap(NULL, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(bell != MAP_FAILED);
    assert_int_equal(weft_engine_open(8, -1, &p2p.engine), WEFT_OK);
    comm.p2p = peer.p2p = &p2p;
    comm.states = states;
    comm.ranks = 2;
    peer.link.peer = 1;
    weft_match_open(&comm.match);
    return 0;
}

static int close_scene(void **state)
{
    (void)state;
    weft_engine_close(p2p.engine);
    munmap(bell, page);
    return 0;
}

static void who_hears_the_bell_finds_the_receive_done(void **state)
{
    uint64_t payload = 4711, into = 0;
    const struct weft_lane_word word = {.tag = 3, .len = sizeof(payload), .payload = &payload};
    struct sigaction action = {.sa_handler = ringing}, before;
    (void)state;
    request.data = (uint8_t *)&into;
    request.len = sizeof(into);
    request.bell = bell;
    weft_list_open(&request.active);
    request.receive.source = 1;
    request.receive.tag = 3;
    weft_match_post(&comm.match, &request.receive);
    sigaction(SIGSEGV, &action, &before);
    weft_p2p_word_arrived(&comm, &peer, &word);
    sigaction(SIGSEGV, &before, NULL);
    assert_int_equal(rung, 1);
    assert_int_equal(was_done, 1); /* else it looks, sees nothing, and sleeps */
    assert_int_equal(atomic_load(bell), 1);
    assert_int_equal(into, payload);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(who_hears_the_bell_finds_the_receive_done, open_scene,
                                        close_scene),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
