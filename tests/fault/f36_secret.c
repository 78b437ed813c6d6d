/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The job's secret is in no argument, no variable, no log at any level, and in no memory that a
 * core dump would hold. This program is its own rank: `weft run` starts it with --rank, and each
 * rank searches itself and its launcher. It keeps what it looks for masked, so that it does not
 * find itself.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "comm/launch.h"
#include "fault/job.h"
#include "wire/wire.h"

#include <signal.h>
#include <sys/wait.h>

#define LEN WEFT_SECRET_LEN
#define MASK 0xa5
#define CHUNK (64 << 10)
#define RANKS 3
#define COPY_FD_VARIABLE "TEST_MASKED_FD"
#define PIECE_LEN 8 /* so much of it in a row would already be a leak */

/* ---- searching ---- */

struct needle {
    uint8_t masked[LEN];
};

static bool is_piece_at(const struct needle *needle, size_t from, const uint8_t *at, size_t len)
{
    size_t i = 0;
    while (i < len && (uint8_t)(at[i] ^ MASK) == needle->masked[from + i]) {
        i++;
    }
    return i == len;
}

static bool is_in(const struct needle *needle, const uint8_t *bytes, size_t len)
{
    for (size_t i = 0; i + LEN <= len; i++) {
        if (is_piece_at(needle, 0, bytes + i, LEN)) {
            return true;
        }
    }
    return false;
}

struct region {
    unsigned long start, end;
    bool is_readable, is_dumped;
    char name[128];
};

/* "start-end perms offset dev inode name"; false: another kind of line */
static bool read_head(const char *line, struct region *region)
{
    char *at;
    unsigned long start = strtoul(line, &at, 16);
    if (at == line || *at != '-') {
        return false;
    }
    region->start = start;
    region->end = strtoul(at + 1, &at, 16);
    region->is_readable = at[0] == ' ' && at[1] == 'r';
    snprintf(region->name, sizeof(region->name), "%.100s", at);
    return true;
}

/* The next mapping of smaps; it is complete with its VmFlags line. */
static bool next_region(FILE *smaps, struct region *region)
{
    char line[512];
    memset(region, 0, sizeof(*region));
    while (fgets(line, sizeof(line), smaps) != NULL) {
        if (!read_head(line, region) && strncmp(line, "VmFlags:", 8) == 0) {
            region->is_dumped = strstr(line, " dd") == NULL;
            return true;
        }
    }
    return false;
}

struct findings {
    unsigned guarded, dumped, regions;
    char where[160];
};

/* window: CHUNK bytes that no core dump holds either */
static void search_region(const struct needle *needle, int memory, const struct region *region,
                          uint8_t *window, struct findings *findings)
{
    unsigned long at = region->start;
    while (at < region->end) {
        size_t left = region->end - at; /* what is behind it may be guarded otherwise */
        ssize_t got = pread(memory, window, left < CHUNK ? left : CHUNK, (off_t)at);
        if (got < LEN) {
            break;
        }
        for (ssize_t i = 0; i + LEN <= got; i++) {
            if (!is_piece_at(needle, 0, window + i, LEN)) {
                continue;
            }
            if (!region->is_dumped) {
                findings->guarded++;
            } else {
                findings->dumped++;
                snprintf(findings->where, sizeof(findings->where), "at %lx in %s",
                         at + (unsigned long)i, region->name);
            }
        }
        at += (unsigned long)got - (got == CHUNK ? LEN - 1 : 0);
        if (got < CHUNK) {
            break;
        }
    }
}

static bool search_process(const struct needle *needle, const char *process,
                           struct findings *findings)
{
    char path[64];
    struct region region;
    uint8_t *window = mmap(NULL, CHUNK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    snprintf(path, sizeof(path), "/proc/%s/mem", process);
    int memory = open(path, O_RDONLY | O_CLOEXEC);
    snprintf(path, sizeof(path), "/proc/%s/smaps", process);
    FILE *smaps = fopen(path, "re");
    memset(findings, 0, sizeof(*findings));
    if (window == MAP_FAILED || madvise(window, CHUNK, MADV_DONTDUMP) != 0 || memory < 0 ||
        smaps == NULL) {
        return false;
    }
    while (next_region(smaps, &region)) {
        bool is_window = region.start <= (uintptr_t)window && (uintptr_t)window < region.end;
        if (region.is_readable && !(is_window && strcmp(process, "self") == 0)) {
            findings->regions++;
            search_region(needle, memory, &region, window, findings);
        }
    }
    explicit_bzero(window, CHUNK);
    munmap(window, CHUNK);
    fclose(smaps);
    close(memory);
    return true;
}

/* ---- the rank ---- */

static _Noreturn void rank_fails(const char *what, const char *detail)
{
    fprintf(stderr, "secret test: %s: %s\n", what, detail);
    _exit(3);
}

static int fd_of(const char *variable)
{
    const char *text = getenv(variable);
    return text != NULL ? (int)strtol(text, NULL, 10) : -1;
}

/* Byte by byte: the whole is never anywhere. */
static void read_secret(struct needle *secret)
{
    int fd = fd_of("WEFT_SECRET_FD");
    for (off_t i = 0; i < LEN; i++) {
        uint8_t byte;
        if (pread(fd, &byte, 1, i) != 1) {
            rank_fails("the secret cannot be read", "WEFT_SECRET_FD");
        }
        secret->masked[i] = byte ^ MASK;
    }
}

/* What the secret becomes for this job opens the same door. */
static bool derive_in(uint8_t *vault, const struct needle *secret, struct needle *key)
{
    uint8_t job[16];
    for (int i = 0; i < LEN; i++) {
        vault[i] = secret->masked[i] ^ MASK;
    }
    weft_status_t status = weft_comm_job_key(vault, getenv("WEFT_JOB"), job, vault + LEN);
    for (int i = 0; i < LEN; i++) {
        key->masked[i] = vault[LEN + i] ^ MASK;
    }
    return status == WEFT_OK;
}

static void derive_key(const struct needle *secret, struct needle *key)
{
    uint8_t *vault = weft_secret_take();
    if (vault == NULL || !derive_in(vault, secret, key)) {
        rank_fails("no key", weft_error_text());
    }
    weft_secret_give(vault);
}

static void check_memory(const struct needle *needle, const char *what, bool must_be_there)
{
    struct findings findings;
    char where[256];
    if (!search_process(needle, "self", &findings)) {
        rank_fails("cannot search", what);
    }
    snprintf(where, sizeof(where), "%s, %u times, %s (%u in guarded memory, %u regions)", what,
             findings.dumped, findings.where, findings.guarded, findings.regions);
    if (findings.dumped > 0) {
        rank_fails("found in memory that a core dump holds", where);
    }
    if (findings.regions < 5 || (must_be_there && findings.guarded == 0)) {
        rank_fails("not found where it should be", where);
    }
}

static void check_file(const struct needle *secret, const char *process, const char *name)
{
    static uint8_t bytes[1 << 20];
    char path[64];
    snprintf(path, sizeof(path), "/proc/%s/%s", process, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t len = 0, got;
    while (fd >= 0 && (got = read(fd, bytes + len, sizeof(bytes) - (size_t)len)) > 0) {
        len += got;
    }
    if (fd < 0 || len == 0) {
        rank_fails("cannot read", path);
    }
    close(fd);
    for (ssize_t i = 0; i + PIECE_LEN <= len; i++) {
        for (size_t from = 0; from + PIECE_LEN <= LEN; from += PIECE_LEN) {
            if (is_piece_at(secret, from, bytes + i, PIECE_LEN)) {
                rank_fails("found in", path);
            }
        }
    }
}

static void check_launcher(const struct needle *secret)
{
    struct findings findings;
    char launcher[16];
    snprintf(launcher, sizeof(launcher), "%d", (int)getppid());
    check_file(secret, launcher, "cmdline");
    check_file(secret, launcher, "environ");
    /* where the system lets us look */
    if (search_process(secret, launcher, &findings) && findings.dumped > 0) {
        rank_fails("found in the launcher's memory", findings.where);
    }
}

static int be_rank(bool searches_memory)
{
    struct needle secret, key;
    weft_comm_t comm;
    weft_id_t id;
    read_secret(&secret);
    if (pwrite(fd_of(COPY_FD_VARIABLE), secret.masked, LEN, 0) != LEN) {
        rank_fails("cannot hand the masked secret over", COPY_FD_VARIABLE);
    }
    check_file(&secret, "self", "cmdline");
    check_file(&secret, "self", "environ");
    derive_key(&secret, &key);
    if (weft_init(NULL, &comm) != WEFT_OK || weft_control_barrier(comm) != WEFT_OK) {
        rank_fails("no job", weft_error_text());
    }
    weft_id_parse("no id", &id); /* at its loudest the log tells of this */
    check_file(&secret, "self", "environ");
    if (searches_memory) {
        check_memory(&secret, "the secret", true);
        check_memory(&key, "the job's key", true);
        check_launcher(&secret);
    }
    if (weft_control_barrier(comm) != WEFT_OK || weft_comm_close(comm) != WEFT_OK) {
        rank_fails("the job failed", weft_error_text());
    }
    if (searches_memory) {
        check_memory(&secret, "the secret, after closing", true);
        check_memory(&key, "the job's key, after closing", false);
    }
    return 0;
}

/* ---- the maker of an id ---- */

/* Where in an id the secret is. */
static size_t place_of_secret(void)
{
    struct weft_wire_id marked = {.flags = WEFT_WIRE_ID_AUTHENTICATED};
    weft_id_t id;
    size_t at = 0;
    memset(marked.secret, 0xee, LEN);
    weft_wire_id_encode(&marked, &id);
    while (at + LEN < sizeof(id.bytes) && memcmp(id.bytes + at, marked.secret, LEN) != 0) {
        at++;
    }
    return at;
}

/* Of memory that a core dump holds, only the caller's own id may have it. */
static void check_only_in_id(const struct needle *secret, const char *when)
{
    struct findings findings;
    char where[256];
    if (!search_process(secret, "self", &findings)) {
        rank_fails("cannot search", when);
    }
    snprintf(where, sizeof(where), "%u times, latest %s, %s", findings.dumped, findings.where,
             when);
    if (findings.dumped != 1) {
        rank_fails("expected once, in the caller's id", where);
    }
}

static int make_id(void)
{
    static weft_id_t id;
    struct needle secret;
    weft_config_t config = job_config(0, 0);
    size_t at = place_of_secret();
    if (weft_id_create(&config, &id) != WEFT_OK) {
        rank_fails("no id", weft_error_text());
    }
    for (size_t i = 0; i < LEN; i++) {
        secret.masked[i] = id.bytes[at + i] ^ MASK;
    }
    check_only_in_id(&secret, "after weft_id_create()");
    weft_id_destroy(&id);
    check_only_in_id(&secret, "after weft_id_destroy()");
    explicit_bzero(&id, sizeof(id));
    check_memory(&secret, "an id's secret", false);
    return 0;
}

/* ---- the test ---- */

struct run {
    int status;
    struct needle secret;
    char log[1 << 20];
    size_t log_len;
};

static bool is_ended(void *arg)
{
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)(*(const pid_t *)arg), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid != 0;
}

static void run_job(struct run *run)
{
    int log = memfd_create("log", 0), copy = memfd_create("copy", 0);
    char self[256], copy_text[16];
    ssize_t self_len = readlink("/proc/self/exe", self, sizeof(self) - 1);
    assert_true(log >= 0 && copy >= 0 && self_len > 0);
    assert_int_equal(fcntl(log, F_SETFL, O_APPEND), 0);
    self[self_len] = '\0';
    snprintf(copy_text, sizeof(copy_text), "%d", copy);
    pid_t pid = fork();
    if (pid == 0) {
        setenv(COPY_FD_VARIABLE, copy_text, 1);
        setenv("WEFT_LOG", "trace", 1);
        dup2(log, STDOUT_FILENO);
        dup2(log, STDERR_FILENO);
        execl(WEFT_CLI_PATH, "weft", "run", "-n", "3", "--", self, "--rank", (char *)NULL);
        _exit(127);
    }
    if (!harness_wait_until(is_ended, &pid, 60000)) {
        kill(pid, SIGKILL);
    }
    assert_int_equal(waitpid(pid, &run->status, 0), pid);
    ssize_t len = pread(log, run->log, sizeof(run->log) - 1, 0);
    assert_true(len > 0);
    run->log[len] = '\0';
    run->log_len = (size_t)len;
    assert_int_equal(pread(copy, run->secret.masked, LEN, 0), LEN);
    close(log);
    close(copy);
}

static struct run *the_run; /* one job, looked at from several sides */

static int start(void **state)
{
    (void)state;
    the_run = calloc(1, sizeof(*the_run));
    assert_non_null(the_run);
    run_job(the_run);
    return 0;
}

static int end(void **state)
{
    (void)state;
    free(the_run);
    return 0;
}

static void no_argument_no_variable_and_no_dumped_memory_holds_it(void **state)
{
    (void)state;
    if (!WIFEXITED(the_run->status) || WEXITSTATUS(the_run->status) != 0) {
        const char *why = strstr(the_run->log, "secret test:");
        fail_msg("%.400s", why != NULL ? why : the_run->log);
    }
}

static void the_log_at_its_loudest_does_not_hold_it(void **state)
{
    static const char digits[2][17] = {"0123456789abcdef", "0123456789ABCDEF"};
    const struct run *run = the_run;
    (void)state;
    assert_non_null(strstr(run->log, "weft ")); /* it was loud */
    assert_false(is_in(&run->secret, (const uint8_t *)run->log, run->log_len));
    for (size_t from = 0; from + PIECE_LEN <= LEN; from += PIECE_LEN) {
        for (int kind = 0; kind < 2; kind++) {
            char hex[2 * PIECE_LEN + 1] = "";
            for (size_t i = 0; i < PIECE_LEN; i++) {
                uint8_t byte = run->secret.masked[from + i] ^ MASK;
                hex[2 * i] = digits[kind][byte >> 4];
                hex[2 * i + 1] = digits[kind][byte & 15];
            }
            assert_null(strstr(run->log, hex));
        }
    }
}

static void after_an_id_is_made_only_the_caller_s_copy_holds_its_secret(void **state)
{
    char words[400] = "";
    int log = memfd_create("log", MFD_CLOEXEC), status;
    (void)state;
    if (JOB_SLOWNESS != 1) {
        skip();
    }
    assert_true(log >= 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(log, STDERR_FILENO);
        execl("/proc/self/exe", "test", "--id", (char *)NULL);
        _exit(127);
    }
    if (!harness_wait_until(is_ended, &pid, 60000)) {
        kill(pid, SIGKILL);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(pread(log, words, sizeof(words) - 1, 0) >= 0);
    close(log);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        fail_msg("status %d: %s", status, words);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_argument_no_variable_and_no_dumped_memory_holds_it),
        cmocka_unit_test(the_log_at_its_loudest_does_not_hold_it),
        cmocka_unit_test(after_an_id_is_made_only_the_caller_s_copy_holds_its_secret),
    };
    if (argc > 1 && strcmp(argv[1], "--rank") == 0) {
        return be_rank(JOB_SLOWNESS == 1); /* sanitizers keep terabytes and copies of their own */
    }
    if (argc > 1 && strcmp(argv[1], "--id") == 0) {
        return make_id();
    }
    return cmocka_run_group_tests(tests, start, end);
}
