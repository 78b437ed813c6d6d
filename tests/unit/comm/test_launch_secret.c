/* SPDX-License-Identifier: Apache-2.0 */
#include "launch_support.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "wire/wire.h"

static char folder[] = "/tmp/weft-secret-XXXXXX";
static char path[64];
static uint8_t secret[WEFT_SECRET_LEN];
static bool is_found;

static int make_folder(void **state)
{
    (void)state;
    if (mkdtemp(folder) == NULL) {
        return -1;
    }
    snprintf(path, sizeof(path), "%s/secret", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

static void write_file(const void *bytes, size_t len, mode_t mode)
{
    unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, len), len);
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

static weft_status_t read_file(void)
{
    char variables[128];

    snprintf(variables, sizeof(variables), "WEFT_SECRET_FILE=%s", path);
    support_setenv(variables);
    memset(secret, 0, sizeof(secret));
    is_found = false;
    return weft_launch_secret(&params, secret, &is_found);
}

static void no_secret_is_fine_and_said(void **state)
{
    (void)state;
    support_setenv("HOME=/");
    is_found = true;
    assert_int_equal(weft_launch_secret(&params, secret, &is_found), WEFT_OK);
    assert_false(is_found);
}

static void raw_bytes_are_taken_as_they_are(void **state)
{
    (void)state;
    uint8_t raw[WEFT_SECRET_LEN];

    for (size_t i = 0; i < sizeof(raw); i++) {
        raw[i] = (uint8_t)(i * 7);
    }
    write_file(raw, sizeof(raw), 0600);
    assert_int_equal(read_file(), WEFT_OK);
    assert_true(is_found);
    assert_memory_equal(secret, raw, sizeof(raw));
}

static void text_is_hashed_and_its_newline_ignored(void **state)
{
    (void)state;
    uint8_t first[WEFT_SECRET_LEN];
    const char text[] = "correct horse battery staple";

    write_file(text, strlen(text), 0400);
    assert_int_equal(read_file(), WEFT_OK);
    memcpy(first, secret, sizeof(first));
    write_file("correct horse battery staple\n", strlen(text) + 1, 0600);
    assert_int_equal(read_file(), WEFT_OK);
    assert_memory_equal(secret, first, sizeof(first));
    write_file("correct horse battery stapl3\n", strlen(text) + 1, 0600);
    assert_int_equal(read_file(), WEFT_OK);
    assert_memory_not_equal(secret, first, sizeof(first));
}

/* 31 characters and a newline have the length of a raw secret: still text. */
static void text_as_long_as_a_raw_secret_is_text(void **state)
{
    (void)state;
    uint8_t first[WEFT_SECRET_LEN];

    write_file("0123456789abcdef0123456789abcde", 31, 0600);
    assert_int_equal(read_file(), WEFT_OK);
    memcpy(first, secret, sizeof(first));
    write_file("0123456789abcdef0123456789abcde\n", 32, 0600);
    assert_int_equal(read_file(), WEFT_OK);
    assert_memory_equal(secret, first, sizeof(first));
}

static void short_or_strange_content_is_refused(void **state)
{
    (void)state;
    static const char long_file[5000] = {'x'};

    write_file("", 0, 0600);
    assert_int_equal(read_file(), WEFT_ERR_INVALID);
    write_file("fifteen letters", 15, 0600);
    assert_int_equal(read_file(), WEFT_ERR_INVALID);
    write_file("0123456789abcdef\0hidden", 23, 0600);
    assert_int_equal(read_file(), WEFT_ERR_INVALID);
    write_file(long_file, sizeof(long_file), 0600);
    assert_int_equal(read_file(), WEFT_ERR_INVALID);
    assert_false(is_found);
}

static void a_file_that_others_may_open_is_refused_with_its_mode_and_the_cure(void **state)
{
    (void)state;
    static const mode_t bad[] = {0640, 0604, 0620, 0602, 0610, 0601, 0666};

    for (size_t i = 0; i < WEFT_COUNT_OF(bad); i++) {
        char mode[8];
        snprintf(mode, sizeof(mode), "%04o", (unsigned)bad[i]);
        write_file("0123456789abcdef", 16, bad[i]);
        assert_int_equal(read_file(), WEFT_ERR_INVALID);
        assert_non_null(strstr(weft_error_text(), mode));
        assert_non_null(strstr(weft_error_text(), "chmod 600"));
        assert_non_null(strstr(weft_error_text(), path));
    }
}

static void a_file_of_another_user_is_refused(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        skip(); /* only root can give a file away */
    }
    write_file("0123456789abcdef", 16, 0600);
    assert_int_equal(chown(path, 12345, 12345), 0);
    assert_int_equal(read_file(), WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_error_text(), "12345"));
}

static void what_is_no_regular_file_is_refused_at_once(void **state)
{
    (void)state;
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(read_file(), WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_error_text(), "regular"));
}

static void a_missing_file_is_named(void **state)
{
    (void)state;
    unlink(path);
    assert_int_equal(read_file(), WEFT_ERR_SYSTEM);
    assert_non_null(strstr(weft_error_text(), path));
}

/* ---- by descriptor ---- */

static int secret_fd(size_t len)
{
    uint8_t bytes[64];
    int fd = memfd_create("test", MFD_CLOEXEC);

    memset(bytes, 0xab, sizeof(bytes));
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, len), len);
    return fd;
}

static weft_status_t read_fd(int fd)
{
    char variables[64];

    snprintf(variables, sizeof(variables), "WEFT_SECRET_FD=%d", fd);
    support_setenv(variables);
    memset(secret, 0, sizeof(secret));
    return weft_launch_secret(&params, secret, &is_found);
}

static void a_descriptor_of_the_wrong_length_is_refused(void **state)
{
    (void)state;
    int fd = secret_fd(31);
    assert_int_equal(read_fd(fd), WEFT_ERR_INVALID);
    close(fd);
    fd = secret_fd(33);
    assert_int_equal(read_fd(fd), WEFT_ERR_INVALID);
    close(fd);
    assert_int_equal(read_fd(fd), WEFT_ERR_SYSTEM);
}

static void a_descriptor_is_read_once_closed_and_remembered(void **state)
{
    (void)state;
    int fd = secret_fd(WEFT_SECRET_LEN);

    assert_int_equal(read_fd(fd), WEFT_OK);
    assert_true(is_found);
    assert_int_equal(secret[0], 0xab);
    assert_int_equal(secret[31], 0xab);
    assert_int_equal(fcntl(fd, F_GETFD), -1);
    assert_int_equal(read_fd(fd), WEFT_OK);
    assert_int_equal(secret[31], 0xab);
}

/* The vault's pages are zero in a child: a secret of zeros must not pass for the job's. */
static void a_forked_child_does_not_take_zeros_for_the_secret(void **state)
{
    (void)state;
    int status;
    int fd = secret_fd(WEFT_SECRET_LEN);

    assert_int_equal(read_fd(fd), WEFT_OK);
    pid_t child = fork();
    if (child == 0) {
        _exit(weft_launch_secret(&params, secret, &is_found) == WEFT_ERR_FORKED ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void file_and_descriptor_together_are_refused(void **state)
{
    (void)state;
    support_setenv("WEFT_SECRET_FD=9 WEFT_SECRET_FILE=/x");
    assert_int_equal(weft_launch_secret(&params, secret, &is_found), WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_error_text(), "WEFT_SECRET_FD=9"));
    assert_non_null(strstr(weft_error_text(), "WEFT_SECRET_FILE=/x"));
}

/* ---- what follows from it ---- */

static void job_id_depends_on_the_name_and_the_key_on_the_secret(void **state)
{
    (void)state;
    uint8_t job[4][16], key[4][WEFT_SECRET_LEN], open_key[WEFT_SECRET_LEN];
    static const uint8_t one[WEFT_SECRET_LEN] = {1};

    assert_int_equal(weft_comm_job_key(one, "a", job[0], key[0]), WEFT_OK);
    assert_int_equal(weft_comm_job_key(one, "b", job[1], key[1]), WEFT_OK);
    assert_int_equal(weft_comm_job_key(NULL, "a", job[2], key[2]), WEFT_OK);
    assert_int_equal(weft_comm_job_key(one, "a", job[3], key[3]), WEFT_OK);
    assert_memory_equal(job[0], job[3], 16);
    assert_memory_not_equal(job[0], job[1], 16);
    assert_memory_equal(job[0], job[2], 16); /* a wrong secret is refused by the right job */
    assert_memory_equal(key[0], one, sizeof(one));
    weft_wire_open_key(job[2], open_key);
    assert_memory_equal(key[2], open_key, sizeof(open_key));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_secret_is_fine_and_said),
        cmocka_unit_test(raw_bytes_are_taken_as_they_are),
        cmocka_unit_test(text_is_hashed_and_its_newline_ignored),
        cmocka_unit_test(text_as_long_as_a_raw_secret_is_text),
        cmocka_unit_test(short_or_strange_content_is_refused),
        cmocka_unit_test(a_file_that_others_may_open_is_refused_with_its_mode_and_the_cure),
        cmocka_unit_test(a_file_of_another_user_is_refused),
        cmocka_unit_test(what_is_no_regular_file_is_refused_at_once),
        cmocka_unit_test(a_missing_file_is_named),
        cmocka_unit_test(a_descriptor_of_the_wrong_length_is_refused),
        cmocka_unit_test(a_descriptor_is_read_once_closed_and_remembered),
        cmocka_unit_test(a_forked_child_does_not_take_zeros_for_the_secret),
        cmocka_unit_test(file_and_descriptor_together_are_refused),
        cmocka_unit_test(job_id_depends_on_the_name_and_the_key_on_the_secret),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
