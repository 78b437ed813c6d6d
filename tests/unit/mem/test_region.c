/* SPDX-License-Identifier: Apache-2.0 */
#include "mem/mem.h"

#include "../base/capture.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define PAGE ((size_t)4096)
#define MIB ((size_t)1 << 20)

static enum { TROUBLE_NONE, TROUBLE_SIGNALS, TROUBLE_FULL } trouble;
static unsigned calls;

/* Stands in for the C library's. SIGNALS: as a kernel that gives up at a signal, and signals come as
 * often as it takes for 4 MiB; every other call meets one. FULL: the host has 3 calls' worth. */
int fallocate(int fd, int mode, off_t offset, off_t len)
{
    calls++;
    if (trouble == TROUBLE_SIGNALS && (calls % 2 == 0 || len >= (off_t)(4 * MIB))) {
        errno = calls < 1000 ? EINTR : EIO; /* or one who never stops asking would go on for ever */
        return -1;
    }
    if (trouble == TROUBLE_FULL && calls > 3) {
        errno = ENOSPC;
        return -1;
    }
    return (int)syscall(SYS_fallocate, fd, mode, offset, len);
}

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

static bool is_zero(const uint8_t *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (bytes[i] != 0) {
            return false;
        }
    }
    return true;
}

static void a_region_is_zeroed_reserved_sealed_and_ours(void **state)
{
    static const size_t lens[] = {1, PAGE, PAGE + 1, MIB + 17, 2 * MIB, 5 * MIB + 3};

    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(lens); i++) {
        struct weft_mem_region region;
        struct stat stat;

        assert_int_equal(weft_mem_region_open("test", lens[i], &region), WEFT_OK);
        assert_int_equal(region.len, lens[i]);
        assert_int_equal(weft_fd_count(), 1);
        assert_int_equal(fcntl(region.fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
        assert_int_equal(fstat(region.fd, &stat), 0);
        assert_true((size_t)stat.st_blocks * 512 >= lens[i]);
        assert_int_equal(ftruncate(region.fd, 0), -1);
        assert_int_equal(errno, EPERM);
        assert_int_equal(fcntl(region.fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
        assert_true(is_zero(region.base, region.len));
        memset(region.base, 0x5a, region.len);
        weft_mem_region_close(&region);
        assert_int_equal(weft_fd_count(), 0);
    }
}

static void long_regions_begin_where_huge_pages_do(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        struct weft_mem_region region, mapped;

        assert_int_equal(weft_mem_region_open("test", 3 * MIB, &region), WEFT_OK);
        assert_int_equal((uintptr_t)region.base % (2 * MIB), 0);
        assert_int_equal(weft_mem_region_map(dup(region.fd), 3 * MIB, &mapped), WEFT_OK);
        assert_int_equal((uintptr_t)mapped.base % (2 * MIB), 0);
        weft_mem_region_close(&mapped);
        weft_mem_region_close(&region);
    }
}

/* Lines of /proc/self/maps that name the region. */
static unsigned mappings_of(const char *name)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    unsigned count = 0;

    assert_non_null(maps);
    while (fgets(line, sizeof(line), maps)) {
        count += strstr(line, name) != NULL;
    }
    fclose(maps);
    return count;
}

static void closing_twice_is_harmless_and_leaves_no_mapping(void **state)
{
    struct weft_mem_region region;

    (void)state;
    assert_int_equal(weft_mem_region_open("shows-in-maps", 3 * MIB, &region), WEFT_OK);
    assert_int_equal(mappings_of("memfd:shows-in-maps"), 1);
    weft_mem_region_close(&region);
    weft_mem_region_close(&region);
    assert_int_equal(mappings_of("memfd:shows-in-maps"), 0);
}

static void a_zeroed_region_does_not_close_stdin(void **state)
{
    struct weft_mem_region zeroed = {0};
    int saved = dup(STDIN_FILENO), null = open("/dev/null", O_RDONLY | O_CLOEXEC);

    (void)state;
    assert_true(dup2(null, STDIN_FILENO) == STDIN_FILENO);
    weft_mem_region_close(&zeroed);
    assert_true(is_open(STDIN_FILENO));
    if (saved >= 0) {
        dup2(saved, STDIN_FILENO);
        close(saved);
    }
    close(null);
}

static int writes_into_the_mapped_region(void *context)
{
    struct weft_mem_region mapped;

    if (weft_mem_region_map(*(int *)context, PAGE + 5, &mapped) != WEFT_OK) {
        return 1;
    }
    if (mapped.base[PAGE + 4] != 'a' || mapped.len != PAGE + 5) {
        return 2;
    }
    mapped.base[PAGE + 4] = 'b';
    weft_mem_region_close(&mapped);
    return 0;
}

static void another_process_sees_the_same_bytes(void **state)
{
    struct weft_mem_region region;
    int fd;

    (void)state;
    assert_int_equal(weft_mem_region_open("test", PAGE + 5, &region), WEFT_OK);
    region.base[PAGE + 4] = 'a';
    fd = dup(region.fd); /* not registered: stays open in the child, as one that was handed over */
    assert_int_equal(run_child(writes_into_the_mapped_region, &fd), 0);
    assert_int_equal(region.base[PAGE + 4], 'b');
    close(fd);
    weft_mem_region_close(&region);
}

static void mapping_needs_no_descriptor(void **state)
{
    struct weft_mem_region region, mapped;
    int fd;

    (void)state;
    assert_int_equal(weft_mem_region_open("test", PAGE, &region), WEFT_OK);
    fd = weft_fd_own(dup(region.fd));
    assert_int_equal(weft_mem_region_map(fd, PAGE, &mapped), WEFT_OK);
    assert_int_equal(mapped.fd, -1);
    assert_false(is_open(fd));
    weft_mem_region_close(&region);
    assert_int_equal(weft_fd_count(), 0);
    mapped.base[0] = 1; /* lives on without its maker */
    weft_mem_region_close(&mapped);
}

static void expect_refusal(int fd, size_t len)
{
    struct weft_mem_region mapped = {.fd = -7};

    assert_true(fd >= 0);
    assert_int_equal(weft_mem_region_map(fd, len, &mapped), WEFT_ERR_PROTOCOL);
    assert_false(is_open(fd));
    assert_int_equal(mapped.fd, -7); /* outputs are written on success only */
}

static int memfd_of(size_t len, int seals)
{
    int fd = memfd_create("foreign", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)len), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

static void what_could_shrink_or_is_too_short_is_refused(void **state)
{
    struct weft_mem_region mapped;

    (void)state;
    expect_refusal(memfd_of(PAGE, 0), PAGE);
    expect_refusal(memfd_of(PAGE, F_SEAL_GROW), PAGE);
    expect_refusal(memfd_of(PAGE, F_SEAL_SHRINK), PAGE + 1);
    expect_refusal(memfd_of(PAGE, F_SEAL_SHRINK), SIZE_MAX);
    expect_refusal(memfd_of(PAGE, F_SEAL_SHRINK), 0);
    expect_refusal(memfd_of(0, F_SEAL_SHRINK), 1);
    assert_int_equal(weft_mem_region_map(memfd_of(PAGE, F_SEAL_SHRINK), PAGE, &mapped), WEFT_OK);
    weft_mem_region_close(&mapped);
}

static void what_is_no_writable_memfd_is_refused(void **state)
{
    char path[64];
    int ends[2], fd;

    (void)state;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    expect_refusal(ends[0], 1);
    close(ends[1]);
    expect_refusal(open("/proc/self/exe", O_RDONLY | O_CLOEXEC), 1);
    expect_refusal(open("/dev/zero", O_RDWR | O_CLOEXEC), 1);
    expect_refusal(memfd_of(PAGE, F_SEAL_SHRINK | F_SEAL_WRITE), PAGE);
    fd = memfd_of(PAGE, F_SEAL_SHRINK);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    expect_refusal(open(path, O_RDONLY | O_CLOEXEC), PAGE);
    close(fd);
}

static void impossible_lengths_are_refused_before_memory_is_taken(void **state)
{
    static const size_t lens[] = {SIZE_MAX, SIZE_MAX - PAGE, PTRDIFF_MAX, (size_t)1 << 50};
    struct weft_mem_region region = {.fd = -7};

    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(lens); i++) {
        assert_int_equal(weft_mem_region_open("vast", lens[i], &region), WEFT_ERR_MEMORY);
        assert_non_null(strstr(weft_error_text(), "'vast'"));
    }
    assert_int_equal(weft_mem_region_open("none", 0, &region), WEFT_ERR_INVALID);
    assert_int_equal(region.fd, -7);
    assert_int_equal(weft_fd_count(), 0);
}

static int fails_under_limit(__rlimit_resource_t resource, rlim_t limit, size_t len,
                             weft_status_t expected)
{
    struct rlimit limits = {limit, limit};
    struct weft_mem_region region;

    signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(resource, &limits) != 0) {
        return 1;
    }
    if (weft_mem_region_open("limited", len, &region) != expected) {
        return 2;
    }
    return weft_fd_count() == 0 && strstr(weft_error_text(), "'limited'") ? 0 : 3;
}

static int fails_without_descriptors(void *context)
{
    (void)context;
    return fails_under_limit(RLIMIT_NOFILE, 0, PAGE, WEFT_ERR_SYSTEM);
}

static int fails_when_files_must_be_short(void *context)
{
    (void)context;
    return fails_under_limit(RLIMIT_FSIZE, PAGE, 2 * PAGE, WEFT_ERR_SYSTEM);
}

static int fails_without_addresses(void *context)
{
    return fails_under_limit(RLIMIT_AS, PAGE, *(size_t *)context, WEFT_ERR_MEMORY);
}

static void a_failure_leaves_nothing_behind(void **state)
{
    size_t short_len = PAGE, long_len = 4 * MIB;

    (void)state;
    assert_int_equal(run_child(fails_without_descriptors, NULL), 0);
    assert_int_equal(run_child(fails_when_files_must_be_short, NULL), 0);
    assert_int_equal(run_child(fails_without_addresses, &short_len), 0);
    assert_int_equal(run_child(fails_without_addresses, &long_len), 0);
}

static void signals_do_not_keep_a_region_from_being_reserved(void **state)
{
    struct weft_mem_region region;

    (void)state;
    trouble = TROUBLE_SIGNALS;
    calls = 0;
    assert_int_equal(weft_mem_region_open("test", 20 * MIB + 5, &region), WEFT_OK);
    trouble = TROUBLE_NONE;
    weft_mem_region_close(&region);
}

static void a_host_without_pages_is_named_as_the_reason(void **state)
{
    struct weft_mem_region region;

    (void)state;
    trouble = TROUBLE_FULL;
    calls = 0;
    assert_int_equal(weft_mem_region_open("big", 8 * MIB, &region), WEFT_ERR_MEMORY);
    trouble = TROUBLE_NONE;
    assert_non_null(strstr(weft_error_text(), "'big'"));
    assert_non_null(strstr(weft_error_text(), "no page left after 3145728 of 8388608 bytes"));
    assert_int_equal(weft_fd_count(), 0);
}

static void what_no_file_may_have_is_an_error_and_no_signal(void **state)
{
    struct weft_mem_region region;
    struct rlimit all, little;
    weft_status_t status;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &all), 0);
    little = (struct rlimit){.rlim_cur = MIB, .rlim_max = all.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
    status = weft_mem_region_open("long", 2 * MIB, &region);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &all), 0);
    assert_int_equal(status, WEFT_ERR_SYSTEM);
    assert_non_null(strstr(weft_error_text(), "ulimit -f"));
    assert_int_equal(weft_fd_count(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_region_is_zeroed_reserved_sealed_and_ours),
        cmocka_unit_test(long_regions_begin_where_huge_pages_do),
        cmocka_unit_test(closing_twice_is_harmless_and_leaves_no_mapping),
        cmocka_unit_test(a_zeroed_region_does_not_close_stdin),
        cmocka_unit_test(another_process_sees_the_same_bytes),
        cmocka_unit_test(mapping_needs_no_descriptor),
        cmocka_unit_test(what_could_shrink_or_is_too_short_is_refused),
        cmocka_unit_test(what_is_no_writable_memfd_is_refused),
        cmocka_unit_test(impossible_lengths_are_refused_before_memory_is_taken),
        cmocka_unit_test(a_failure_leaves_nothing_behind),
        cmocka_unit_test(a_host_without_pages_is_named_as_the_reason),
        cmocka_unit_test(what_no_file_may_have_is_an_error_and_no_signal),
        cmocka_unit_test(signals_do_not_keep_a_region_from_being_reserved),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
