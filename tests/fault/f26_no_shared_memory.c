/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared memory that cannot be had: with WEFT_PATH=auto messages go over tcp instead, with shm the
 * error has words; nobody dies of a signal, nothing is left behind. And memory of the other process
 * that may not be read (CMA): messages arrive all the same.
 *
 * The executable is linked so that these calls come through here.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fault/messages.h"

#include <dirent.h>
#include <errno.h>
#include <sys/uio.h>

#define TAG 4
#define LONG ((size_t)3 << 20)

/* ---- a system that refuses ---- */

enum call { CALL_MEMFD, CALL_TRUNCATE, CALL_ALLOCATE, CALL_MMAP, CALL_READV, CALLS };

static const char *const call_names[CALLS] = {"memfd_create", "ftruncate", "fallocate", "mmap",
                                              "process_vm_readv"};

static enum call refused_call = CALLS;
static int refused_errno;
static unsigned refused_after; /* how many are still allowed */
static bool is_once;
static _Atomic unsigned calls, refusals;

static bool is_refused(enum call call)
{
    if (call != refused_call) {
        return false;
    }
    unsigned number = atomic_fetch_add(&calls, 1);
    if (number < refused_after || (is_once && number > refused_after)) {
        return false;
    }
    atomic_fetch_add(&refusals, 1);
    errno = refused_errno;
    return true;
}

int __real_memfd_create(const char *name, unsigned flags);
int __wrap_memfd_create(const char *name, unsigned flags);
int __wrap_memfd_create(const char *name, unsigned flags)
{
    return is_refused(CALL_MEMFD) ? -1 : __real_memfd_create(name, flags);
}

int __real_ftruncate(int fd, off_t len);
int __wrap_ftruncate(int fd, off_t len);
int __wrap_ftruncate(int fd, off_t len)
{
    return is_refused(CALL_TRUNCATE) ? -1 : __real_ftruncate(fd, len);
}

int __real_fallocate(int fd, int mode, off_t offset, off_t len);
int __wrap_fallocate(int fd, int mode, off_t offset, off_t len);
int __wrap_fallocate(int fd, int mode, off_t offset, off_t len)
{
    return is_refused(CALL_ALLOCATE) ? -1 : __real_fallocate(fd, mode, offset, len);
}

void *__real_mmap(void *at, size_t len, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t len, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t len, int protection, int flags, int fd, off_t offset)
{
    return fd >= 0 && is_refused(CALL_MMAP) ? MAP_FAILED
                                            : __real_mmap(at, len, protection, flags, fd, offset);
}

ssize_t __real_process_vm_readv(pid_t pid, const struct iovec *here, unsigned long here_count,
                                const struct iovec *there, unsigned long there_count,
                                unsigned long flags);
ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *here, unsigned long here_count,
                                const struct iovec *there, unsigned long there_count,
                                unsigned long flags);
ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *here, unsigned long here_count,
                                const struct iovec *there, unsigned long there_count,
                                unsigned long flags)
{
    return is_refused(CALL_READV)
               ? -1
               : __real_process_vm_readv(pid, here, here_count, there, there_count, flags);
}

/* ---- two ranks that talk ---- */

struct plan {
    const char *path, *cma;
    enum call call;
    int error;
    unsigned after;
    bool is_once;
    int refused_rank; /* 2: both */
    bool is_recorded; /* the flight recorder has shared memory too, and does without */
};

#define RETURNED 1
#define REFUSED 0 /* ranks whose system has refused something */

/* The receive comes late: the message is announced, and the receiver chooses how to get it. */
static weft_status_t exchange(weft_comm_t comm, int rank, size_t len)
{
    uint8_t *out = messages_buffer(len), *in = messages_buffer(len);
    weft_request_t request = NULL;
    weft_message_t message;
    messages_fill(out, len, (uint64_t)rank);
    weft_status_t status = weft_send(comm, out, len, 1 - rank, TAG, &request);
    status = status == WEFT_OK ? weft_probe(comm, 1 - rank, TAG, 5000, &message) : status;
    status = status == WEFT_OK ? weft_recv(comm, in, len, 1 - rank, TAG, NULL, NULL) : status;
    weft_status_t sent = weft_wait(&request, WEFT_NO_LIMIT);
    status = status == WEFT_OK ? sent : status;
    if (status == WEFT_OK && !messages_are_right(in, len, (uint64_t)(1 - rank))) {
        status = WEFT_ERR_PROTOCOL;
    }
    free(out);
    free(in);
    return status;
}

static int body(int rank, struct harness_shared *shared, void *arg)
{
    const struct plan *plan = arg;
    weft_comm_t comm;
    setenv("WEFT_CMA", plan->cma, 1);
    setenv("WEFT_LOG", "off", 1);
    setenv("WEFT_RECORDER", plan->is_recorded ? "1024" : "0", 1);
    if (plan->refused_rank == rank || plan->refused_rank == 2) {
        refused_errno = plan->error;
        refused_after = plan->after;
        is_once = plan->is_once;
        refused_call = plan->call;
    }
    atomic_store(&calls, 0); /* the test's own do not count */
    atomic_store(&refusals, 0);
    if (messages_join(rank, shared, plan->path, 10000, &comm) != WEFT_OK) {
        return harness_say(shared, rank, -1, "could not join: %s", weft_error_text());
    }
    weft_status_t status = WEFT_OK;
    for (int i = 0; i < 3 && status == WEFT_OK; i++) {
        status = exchange(comm, rank, 16);
        status = status == WEFT_OK ? exchange(comm, rank, 5000) : status;
        status = status == WEFT_OK ? exchange(comm, rank, LONG) : status;
    }
    job_returned(rank, shared, status);
    atomic_fetch_add(&shared->word[REFUSED], atomic_load(&refusals) > 0);
    refused_call = CALLS;
    atomic_fetch_add(&shared->word[RETURNED], 1);
    harness_wait_for(&shared->word[RETURNED], 2, MESSAGES_WAIT_MS);
    job_close(rank, shared, comm);
    return (int)status;
}

/* Returns whether the system has refused anything: how often it is asked is not ours to say. */
static bool check(struct plan plan, bool is_fine)
{
    char what[96];
    struct harness *harness = harness_start(2, body, &plan);
    snprintf(what, sizeof(what), "%s over %s, call %u, rank %d", call_names[plan.call], plan.path,
             plan.after, plan.refused_rank);
    messages_wait(harness, MESSAGES_WAIT_MS, what);
    bool has_refused = atomic_load(&harness_shared(harness)->word[REFUSED]) > 0;
    for (int rank = 0; rank < 2; rank++) {
        const struct harness_result *result = harness_result(harness, rank);
        bool is_right = !has_refused || is_fine ? result->status == WEFT_OK
                                                : result->status == WEFT_ERR_SYSTEM ||
                                                      result->status == WEFT_ERR_NETWORK ||
                                                      result->status == WEFT_ERR_MEMORY ||
                                                      result->status == WEFT_ERR_PEER;
        bool has_words =
            result->status == WEFT_OK || strlen(result->text) > strlen("ERR_NETWORK: ");
        if (!result->is_returned || !is_right || !has_words) {
            fail_msg("%s: rank %d: signal %d, status %d: %s", what, rank, result->signal,
                     result->status, result->text);
        }
    }
    if (!harness_check_clean(harness)) {
        fail_msg("%s: %s", what, harness_error(harness));
    }
    harness_close(harness);
    return has_refused;
}

/* The first such call is refused, and all that follow. */
static void check_first(const char *path, enum call call, int error, bool is_fine)
{
    for (int refused_rank = 0; refused_rank < 3; refused_rank++) {
        if (!check((struct plan){path, "off", call, error, 0, false, refused_rank, false},
                   is_fine)) {
            fail_msg("%s is never called", call_names[call]);
        }
    }
}

/* The second, the third, … call, as often as there are such calls; and from then on, in turn. */
static void check_later(const char *path, enum call call, int error, bool is_fine)
{
    for (int refused_rank = 0; refused_rank < 3; refused_rank++) {
        unsigned after = 1;
        while (after < 20 && check((struct plan){path, "off", call, error, after, after % 2 == 1,
                                                 refused_rank, false},
                                   is_fine)) {
            after++;
        }
    }
}

static void without_shared_memory_messages_go_over_tcp(void **state)
{
    (void)state;
    check_first("auto", CALL_MEMFD, EMFILE, true);
    check_first("auto", CALL_TRUNCATE, ENOMEM, true);
    check_first("auto", CALL_ALLOCATE, ENOSPC, true);
    check_first("auto", CALL_MMAP, ENOMEM, true);
}

static void also_when_it_runs_out_later(void **state)
{
    (void)state;
    check_later("auto", CALL_MEMFD, EMFILE, true);
    check_later("auto", CALL_TRUNCATE, ENOMEM, true);
    check_later("auto", CALL_ALLOCATE, ENOSPC, true);
    check_later("auto", CALL_MMAP, ENOMEM, true);
}

static void without_any_other_path_the_error_says_so(void **state)
{
    (void)state;
    check_first("shm", CALL_MEMFD, ENFILE, false);
    check_first("shm", CALL_TRUNCATE, EIO, false);
    check_first("shm", CALL_ALLOCATE, ENOSPC, false);
    check_first("shm", CALL_MMAP, ENOMEM, false);
}

static void also_when_it_is_the_pool_that_is_missing(void **state)
{
    (void)state;
    check_later("shm", CALL_MEMFD, ENFILE, false);
    check_later("shm", CALL_TRUNCATE, EIO, false);
    check_later("shm", CALL_ALLOCATE, ENOSPC, false);
    check_later("shm", CALL_MMAP, ENOMEM, false);
}

/* Over tcp nobody else asks for such memory. */
static void without_memory_for_the_flight_recorder_all_goes_well(void **state)
{
    static const enum call refused[] = {CALL_MEMFD, CALL_TRUNCATE, CALL_ALLOCATE, CALL_MMAP};
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        assert_true(
            check((struct plan){"tcp", "off", refused[i], ENOMEM, 0, false, 2, true}, true));
    }
}

/* ---- memory of one's own to share ---- */

static void weft_alloc_says_what_the_system_refused(void **state)
{
    static const struct {
        enum call call;
        int error;
        weft_status_t status;
    } cases[] = {{CALL_MEMFD, EMFILE, WEFT_ERR_SYSTEM},
                 {CALL_TRUNCATE, EIO, WEFT_ERR_SYSTEM},
                 {CALL_ALLOCATE, ENOSPC, WEFT_ERR_MEMORY}};
    (void)state;
    unsigned fds = harness_count_fds();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        void *memory = &fds;
        refused_call = cases[i].call;
        refused_errno = cases[i].error;
        weft_status_t status = weft_alloc(1 << 20, &memory);
        refused_call = CALLS;
        assert_int_equal(status, cases[i].status);
        assert_ptr_equal(memory, &fds); /* outputs are written on success only */
        assert_true(strlen(weft_error_text()) > 0);
        assert_int_equal(harness_count_fds(), fds);
    }
}

/* ---- CMA ---- */

static void refused_reads_of_the_other_process_do_not_show(void **state)
{
    static const int errors[] = {EPERM, ENOSYS};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        for (int rank = 0; rank < 3; rank++) {
            assert_true(check(
                (struct plan){"shm", "on", CALL_READV, errors[i], 0, false, rank, false}, true));
        }
    }
}

/* The probe succeeds, and then the right is taken away. */
static void reads_that_are_refused_later_do_not_show_either(void **state)
{
    (void)state;
    for (unsigned after = 1; after < 4; after++) {
        for (int rank = 0; rank < 3; rank++) {
            struct plan plan = {"shm", "on", CALL_READV, EPERM, after, false, rank, false};
            assert_true(check(plan, true));
        }
    }
}

/* ---- what a killed rank leaves ---- */

static unsigned count_named(void)
{
    unsigned count = 0;
    DIR *dir = opendir("/dev/shm");
    const struct dirent *entry;
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        count += strstr(entry->d_name, "weft") != NULL;
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return count;
}

static int killed_body(int rank, struct harness_shared *shared, void *arg)
{
    weft_comm_t comm;
    void *memory;
    (void)arg;
    if (messages_join(rank, shared, "shm", 10000, &comm) != WEFT_OK ||
        weft_alloc(LONG, &memory) != WEFT_OK) {
        return harness_say(shared, rank, -1, "could not start: %s", weft_error_text());
    }
    weft_status_t status = exchange(comm, rank, LONG);
    if (status == WEFT_OK) { /* mapped on both sides */
        status = rank == 0 ? weft_send(comm, memory, LONG, 1, TAG, NULL)
                           : weft_recv(comm, memory, LONG, 0, TAG, NULL, NULL);
    }
    atomic_fetch_add(&shared->word[1], 1);
    status = status == WEFT_OK ? weft_recv(comm, memory, LONG, 1 - rank, TAG, NULL, NULL) : status;
    job_returned(rank, shared, status);
    job_close(rank, shared, comm);
    weft_free(memory);
    return (int)status;
}

static void a_killed_rank_leaves_nothing_behind(void **state)
{
    (void)state;
    unsigned before = count_named();
    struct harness *harness = harness_start(2, killed_body, NULL);
    struct harness_shared *shared = harness_shared(harness);
    assert_harness(harness, harness_wait_for(&shared->word[1], 2, MESSAGES_WAIT_MS));
    struct messages_verdict verdict = {WEFT_ERR_PEER, 1, NULL, harness_now_ns()};
    assert_harness(harness, harness_kill(harness, 1, SIGKILL));
    messages_wait(harness, MESSAGES_WAIT_MS, "killed");
    messages_check_verdict(harness, 0, &verdict, "killed");
    assert_harness(harness, harness_check_clean(harness));
    assert_int_equal(count_named(), before);
    harness_close(harness);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_shared_memory_messages_go_over_tcp),
        cmocka_unit_test(also_when_it_runs_out_later),
        cmocka_unit_test(without_any_other_path_the_error_says_so),
        cmocka_unit_test(also_when_it_is_the_pool_that_is_missing),
        cmocka_unit_test(without_memory_for_the_flight_recorder_all_goes_well),
        cmocka_unit_test(weft_alloc_says_what_the_system_refused),
        cmocka_unit_test(refused_reads_of_the_other_process_do_not_show),
        cmocka_unit_test(reads_that_are_refused_later_do_not_show_either),
        cmocka_unit_test(a_killed_rank_leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
