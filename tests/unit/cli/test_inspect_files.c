/* SPDX-License-Identifier: Apache-2.0 */
/* weft inspect is given what is no dump: it says what that is and what to give it, and neither hangs nor reads on and
 * on. (cli_run() fails when the command does not end.) */
#include "inspect_bench.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#define WANTED "give it *.dump files"

static void assert_refused(const char *path, const char *words)
{
    struct rusage usage;
    struct cli cli;
    cli_run(&cli, "inspect", path);
    assert_int_equal(cli.status, 1);
    assert_string_equal(cli.out, "");
    assert_has(cli.err, path);
    assert_has(cli.err, words);
    cli_close(&cli);
    assert_int_equal(getrusage(RUSAGE_CHILDREN, &usage), 0);
    assert_in_range(usage.ru_maxrss, 1, 512 * 1024); /* KiB; a sanitizer takes most of it */
}

static void devices_are_not_opened(void **state)
{
    (void)state;
    assert_refused("/dev/zero", "/dev/zero: it is a device, not a file: " WANTED);
    assert_refused("/dev/null", "/dev/null: it is a device, not a file: " WANTED);
}

static void a_pipe_or_a_socket_is_named(void **state)
{
    struct bench bench;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char path[96];
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)state;
    open_ranks(&bench);
    snprintf(path, sizeof(path), "%s/pipe", bench.folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_refused(path, "/pipe: it is a pipe, not a file: " WANTED);
    snprintf(path, sizeof(path), "%s/socket", bench.folder);
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    assert_int_equal(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    assert_refused(path, "/socket: it is a socket, not a file: " WANTED);
    close(fd);
    close_ranks(&bench);
}

static void make_file(const char *path, off_t len)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, len), 0);
    close(fd);
}

static void an_empty_and_a_huge_file_are_named(void **state)
{
    struct bench bench;
    char path[96];
    (void)state;
    open_ranks(&bench);
    snprintf(path, sizeof(path), "%s/0.dump", bench.folder);
    make_file(path, 0);
    assert_refused(path, "/0.dump: it is empty: " WANTED);
    make_file(path, (off_t)1 << 34); /* all of it a hole */
    assert_refused(path, "/0.dump: it is larger than any dump of a flight recorder: " WANTED);
    close_ranks(&bench);
}

static void a_name_does_not_move_the_cursor(void **state)
{
    struct bench bench;
    char path[96];
    (void)state;
    open_ranks(&bench);
    snprintf(path, sizeof(path), "%s/x\033[31m\n.dump", bench.folder);
    make_file(path, 0);
    assert_refused(bench.folder, "/x?[31m?.dump: it is empty: " WANTED);
    close_ranks(&bench);
}

static void folders_are_not_searched(void **state)
{
    struct bench bench;
    char path[96];
    (void)state;
    open_ranks(&bench);
    assert_refused(bench.folder, ": no file in it ends with .dump: " WANTED);
    for (int i = 0; i < 8; i++) { /* around and around, in 8 ways each time */
        snprintf(path, sizeof(path), "%s/%d.dump", bench.folder, i);
        assert_int_equal(symlink(".", path), 0);
    }
    assert_refused(bench.folder, "/7.dump: it is a folder in a folder: name it itself");
    close_ranks(&bench);
}

/* … nor does it stop there. */
static void a_pipe_among_dumps_does_not_hide_them(void **state)
{
    struct bench bench;
    struct cli cli;
    char path[96];
    (void)state;
    open_ranks(&bench);
    do_all(&bench, 2);
    save_all(&bench, WEFT_RECORD_ASKED);
    snprintf(path, sizeof(path), "%s/pipe.dump", bench.folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    cli_run(&cli, "inspect", bench.folder);
    assert_int_equal(cli.status, 1);
    assert_says(&cli, "No divergence: all recorded ranks have ended #1");
    assert_says(&cli, "/pipe.dump: it is a pipe, not a file: " WANTED);
    assert_width(cli.out);
    cli_close(&cli);
    close_ranks(&bench);
}

/* Root may read everything: then it is somebody else who is refused. */
static void a_file_that_may_not_be_read_says_who_may(void **state)
{
    struct bench bench;
    struct cli cli;
    char path[96];
    int fd, status;
    pid_t child;
    (void)state;
    open_ranks(&bench);
    snprintf(path, sizeof(path), "%s/0.dump", bench.folder);
    make_file(path, 9216);
    assert_int_equal(chmod(path, 0), 0);
    assert_int_equal(chmod(bench.folder, 0755), 0);
    fd = memfd_create("said", MFD_CLOEXEC);
    child = fork();
    assert_true(fd >= 0 && child >= 0);
    if (child == 0) {
        dup2(fd, 2);
        if (geteuid() == 0 && setuid(65534) != 0) {
            _exit(126);
        }
        execl(WEFT_CLI_PATH, "weft", "inspect", path, (char *)NULL);
        _exit(127);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    cli = (struct cli){.err = support_slurp(fd)};
    close(fd);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127) {
        print_message("[  SKIPPED ] another user may not run %s\n", WEFT_CLI_PATH);
    } else {
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
        assert_has(cli.err, "/0.dump: it may not be read: be its owner, or root");
    }
    free(cli.err);
    close_ranks(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_are_not_opened),
        cmocka_unit_test(a_pipe_or_a_socket_is_named),
        cmocka_unit_test(a_name_does_not_move_the_cursor),
        cmocka_unit_test(an_empty_and_a_huge_file_are_named),
        cmocka_unit_test(folders_are_not_searched),
        cmocka_unit_test(a_pipe_among_dumps_does_not_hide_them),
        cmocka_unit_test(a_file_that_may_not_be_read_says_who_may),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
