/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"

#include "capture.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define SLOT_LEN 64U

static bool is_zero(const unsigned char *memory, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (memory[i] != 0) {
            return false;
        }
    }
    return true;
}

static void secrets_are_zeroed_and_apart(void **state)
{
    unsigned char *secrets[200]; /* more than three pages */

    (void)state;
    for (unsigned i = 0; i < WEFT_COUNT_OF(secrets); i++) {
        secrets[i] = weft_secret_take();
        assert_non_null(secrets[i]);
        assert_true(is_zero(secrets[i], SLOT_LEN));
        memset(secrets[i], (int)i + 1, SLOT_LEN);
    }
    for (unsigned i = 0; i < WEFT_COUNT_OF(secrets); i++) {
        for (unsigned j = 0; j < SLOT_LEN; j++) {
            assert_int_equal(secrets[i][j], i + 1);
        }
    }
    for (unsigned i = 0; i < WEFT_COUNT_OF(secrets); i++) {
        weft_secret_give(secrets[i]);
        assert_true(is_zero(secrets[i], SLOT_LEN));
    }
}

static void a_given_back_slot_is_used_again(void **state)
{
    unsigned char *first = weft_secret_take();

    (void)state;
    assert_non_null(first);
    memset(first, 0xaa, SLOT_LEN);
    weft_secret_give(first);
    for (unsigned i = 0; i < 1000; i++) {
        unsigned char *again = weft_secret_take();

        assert_ptr_equal(again, first);
        assert_true(is_zero(again, SLOT_LEN));
        weft_secret_give(again);
    }
    weft_secret_give(NULL);
}

/* Is address inside of a mapping whose line of smaps, "begin-end perms …", this is? */
static bool is_mapping_line(const char *line, bool *is_here_p, const void *address)
{
    char *rest;
    uintptr_t begin = strtoul(line, &rest, 16);
    uintptr_t end;

    if (rest == line || *rest != '-') {
        return false;
    }
    end = strtoul(rest + 1, NULL, 16);
    *is_here_p = (uintptr_t)address >= begin && (uintptr_t)address < end;
    return true;
}

/* The VmFlags line of the mapping that holds address; false when the kernel has none. */
static bool find_flags(const void *address, char *line, int room)
{
    FILE *file = fopen("/proc/self/smaps", "re");
    bool is_here = false, is_found = false;

    assert_non_null(file);
    while (!is_found && fgets(line, room, file)) {
        is_found = !is_mapping_line(line, &is_here, address) && is_here &&
                   strncmp(line, "VmFlags:", 8) == 0;
    }
    fclose(file);
    return is_found;
}

/* F36 */
static void the_vault_is_left_out_of_core_dumps_and_wiped_at_fork(void **state)
{
    unsigned char *secret = weft_secret_take();
    char flags[512];

    (void)state;
    assert_non_null(secret);
    secret[0] = 1;
    if (!find_flags(secret, flags, sizeof(flags))) {
        weft_secret_give(secret);
        skip();
    }
    assert_non_null(strstr(flags, " dd "));
    assert_non_null(strstr(flags, " wf "));
    weft_secret_give(secret);
}

/* F36 */
static void larger_secrets_are_left_out_of_core_dumps_too(void **state)
{
    const size_t len = 300000;
    unsigned char *secret = weft_secret_map(len);
    char flags[512];
    bool has_flags;

    (void)state;
    assert_non_null(secret);
    assert_true(is_zero(secret, len));
    memset(secret, 0x55, len);
    has_flags = find_flags(secret + len - 1, flags, sizeof(flags));
    weft_secret_unmap(secret, len);
    weft_secret_unmap(NULL, len);
    if (!has_flags) {
        skip();
    }
    assert_non_null(strstr(flags, " dd "));
    assert_non_null(strstr(flags, " wf "));
}

static int child_finds_zeros_and_a_working_vault(void *context)
{
    unsigned char *secret = context;
    unsigned char *mine;

    if (!is_zero(secret, SLOT_LEN)) {
        return 1;
    }
    mine = weft_secret_take();
    if (!mine || mine == secret || !is_zero(mine, SLOT_LEN)) {
        return 2;
    }
    memset(mine, 0x55, SLOT_LEN);
    weft_secret_give(secret); /* closing the parent's dead handle frees its copy */
    weft_secret_give(mine);
    for (unsigned i = 0; i < 100; i++) { /* over a page: it grows here too */
        mine = weft_secret_take();
        if (!mine || !is_zero(mine, SLOT_LEN)) {
            return 3;
        }
        memset(mine, 0x55, SLOT_LEN);
    }
    return 0;
}

static void a_forked_child_finds_secrets_wiped_and_takes_its_own(void **state)
{
    unsigned char *secret = weft_secret_take();

    (void)state;
    assert_non_null(secret);
    memset(secret, 0xaa, SLOT_LEN);
    assert_int_equal(run_child(child_finds_zeros_and_a_working_vault, secret), 0);
    for (unsigned i = 0; i < SLOT_LEN; i++) {
        assert_int_equal(secret[i], 0xaa);
    }
    weft_secret_give(secret);
}

#define THREADS 4
#define ROUNDS 500
#define HELD 40

/* Each thread marks what it holds; a slot given to two would show the other's mark. */
static void *take_and_give(void *context)
{
    unsigned char mark = *(unsigned char *)context;

    for (unsigned i = 0; i < ROUNDS; i++) {
        unsigned char *held[HELD];

        for (unsigned j = 0; j < HELD; j++) {
            held[j] = weft_secret_take();
            if (!held[j] || !is_zero(held[j], SLOT_LEN)) {
                return context;
            }
            memset(held[j], mark, SLOT_LEN);
        }
        for (unsigned j = 0; j < HELD; j++) {
            if (held[j][0] != mark || held[j][SLOT_LEN - 1] != mark) {
                return context;
            }
            weft_secret_give(held[j]);
        }
    }
    return NULL;
}

static void no_slot_is_given_to_two_threads(void **state)
{
    pthread_t threads[THREADS];
    unsigned char marks[THREADS];

    (void)state;
    for (unsigned i = 0; i < THREADS; i++) {
        marks[i] = (unsigned char)(i + 1);
        assert_int_equal(pthread_create(&threads[i], NULL, take_and_give, &marks[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        void *failed;

        assert_int_equal(pthread_join(threads[i], &failed), 0);
        assert_null(failed);
    }
}

static void wiping_zeroes_exactly_what_it_is_told(void **state)
{
    unsigned char memory[10];

    (void)state;
    memset(memory, 0xff, sizeof(memory));
    weft_secret_wipe(memory + 1, 8);
    assert_int_equal(memory[0], 0xff);
    assert_true(is_zero(memory + 1, 8));
    assert_int_equal(memory[9], 0xff);
}

static void random_bytes_fill_the_whole_length(void **state)
{
    static unsigned char a[1000], b[1000];

    (void)state;
    assert_int_equal(weft_random(a, sizeof(a) - 1), WEFT_OK);
    assert_int_equal(weft_random(b, sizeof(b) - 1), WEFT_OK);
    assert_int_equal(a[999], 0);
    assert_memory_not_equal(a, b, 32);
    assert_memory_not_equal(a + 960, b + 960, 32);
    assert_false(is_zero(a + 960, 32));
    assert_int_equal(weft_random(NULL, 0), WEFT_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(secrets_are_zeroed_and_apart),
        cmocka_unit_test(a_given_back_slot_is_used_again),
        cmocka_unit_test(the_vault_is_left_out_of_core_dumps_and_wiped_at_fork),
        cmocka_unit_test(larger_secrets_are_left_out_of_core_dumps_too),
        cmocka_unit_test(a_forked_child_finds_secrets_wiped_and_takes_its_own),
        cmocka_unit_test(no_slot_is_given_to_two_threads),
        cmocka_unit_test(wiping_zeroes_exactly_what_it_is_told),
        cmocka_unit_test(random_bytes_fill_the_whole_length),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
