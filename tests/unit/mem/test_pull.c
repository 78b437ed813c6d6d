/* SPDX-License-Identifier: Apache-2.0 */
#include "mem/mem.h"

#include "../base/capture.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static uint64_t address_of(const void *memory)
{
    return (uint64_t)(uintptr_t)memory;
}

static void a_probe_that_differs_says_no(void **state)
{
    uint8_t word[16] = "sixteen bytes :)", wrong[16] = "sixteen bytes :(";
    (void)state;
    assert_true(weft_mem_can_pull(getpid(), address_of(word), word));
    assert_false(weft_mem_can_pull(getpid(), address_of(word), wrong));
    assert_false(weft_mem_can_pull(getpid(), 16, word));
    assert_false(weft_mem_can_pull(0, address_of(word), word)); /* of another namespace */
}

static void bytes_of_a_child_are_read_and_those_it_has_not_are_not(void **state)
{
    static uint8_t bytes[100000];
    uint8_t *copy = calloc(1, sizeof(bytes));
    const struct weft_slice slice = {.data = copy, .len = sizeof(bytes)};
    int ready[2], done[2];
    char word = 0;
    pid_t child;
    (void)state;
    assert_non_null(copy);
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(done), 0);
    child = fork();
    if (child == 0) {
        memset(bytes, 7, sizeof(bytes));
        word = (char)(write(ready[1], "x", 1) + read(done[0], &word, 1));
        _exit(word != 2);
    }
    assert_int_equal(read(ready[0], &word, 1), 1);
    assert_true(weft_mem_pull(child, address_of(bytes), &slice));
    for (size_t i = 0; i < sizeof(bytes); i++) {
        assert_int_equal(copy[i], 7);
    }
    errno = 0;
    assert_false(weft_mem_pull(child, 4096, &slice));
    assert_int_equal(errno, EFAULT);
    assert_int_equal(write(done[1], "x", 1), 1);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_false(weft_mem_pull(child, address_of(bytes), &slice));
    assert_int_equal(errno, ESRCH);
    for (int i = 0; i < 2; i++) {
        close(ready[i]);
        close(done[i]);
    }
    free(copy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_probe_that_differs_says_no),
        cmocka_unit_test(bytes_of_a_child_are_read_and_those_it_has_not_are_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
