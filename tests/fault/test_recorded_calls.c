/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whatever a rank hangs in, its flight recorder says so: every call of weft.h that can block is made with a rank
 * that does not answer, and is looked for in the memory of the one that waits. Calls that weft.h has and nobody
 * listed here fail the test.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fault/messages.h"
#include "wire/dump.h"

#include <dirent.h>

#define READY 0
#define GO 1
#define OVER 2
#define LARGE ((size_t)64 << 20) /* more than sockets hold */
#define MAPPED ((size_t)1 << 20)
#define FILE_MAX ((size_t)1 << 20)
#define TAG 7

/* What the one that waits has: the other one's memory, and its own. */
struct desk {
    weft_comm_t comm;
    weft_mem_t mem;
    uint8_t *bytes; /* LARGE, twice */
    size_t len;     /* of the other one's memory */
    weft_request_t request;
    const char *folder;
};

struct hang {
    const char *name;
    weft_status_t (*call)(struct desk *desk);
    int kind;
    const char *path;
    enum {
        USED,
        FRESH,
        ANEW
    } state;         /* FRESH: it is the job's first call; ANEW: the first message */
    bool is_stopped; /* the other one is: it would answer by itself */
    bool is_short;   /* it ends by itself, and leaves a line */
    bool is_mapped;  /* the other one's memory is from weft_alloc() */
};

struct plan {
    struct hang hang;
    char folder[64]; /* for a dump */
};

/* ---- calls ---- */

static weft_status_t split(struct desk *desk)
{
    weft_comm_t comm;
    return weft_comm_split(desk->comm, 0, 0, &comm);
}
static weft_status_t duplicate(struct desk *desk)
{
    weft_comm_t comm;
    return weft_comm_duplicate(desk->comm, &comm);
}
static weft_status_t shrink(struct desk *desk)
{
    weft_comm_t comm;
    return weft_comm_shrink(desk->comm, &comm);
}
static weft_status_t control_barrier(struct desk *desk)
{
    return weft_control_barrier(desk->comm);
}
static weft_status_t control_allgather(struct desk *desk)
{
    return weft_control_allgather(desk->comm, desk->bytes, 8, desk->bytes + 8);
}
static weft_status_t control_broadcast(struct desk *desk)
{
    return weft_control_broadcast(desk->comm, desk->bytes, 8, 1);
}
static weft_status_t control_send(struct desk *desk)
{
    weft_status_t status = WEFT_OK;
    while (status == WEFT_OK) {
        status = weft_control_send(desk->comm, 1, TAG, desk->bytes, WEFT_CONTROL_MAX);
    }
    return status;
}
static weft_status_t control_recv(struct desk *desk)
{
    return weft_control_recv(desk->comm, 1, TAG, desk->bytes, 8, NULL);
}
static weft_status_t send_large(struct desk *desk)
{
    return weft_send(desk->comm, desk->bytes, LARGE, 1, TAG, NULL);
}
static weft_status_t receive(struct desk *desk)
{
    return weft_recv(desk->comm, desk->bytes, 8, 1, TAG, NULL, NULL);
}
static weft_status_t probe(struct desk *desk)
{
    weft_message_t message;
    return weft_probe(desk->comm, 1, TAG, MESSAGES_TIMEOUT_MS, &message);
}
static weft_status_t begin_receive(struct desk *desk)
{
    return weft_recv(desk->comm, desk->bytes, 8, 1, TAG, NULL, &desk->request);
}
static weft_status_t wait_for_one(struct desk *desk)
{
    begin_receive(desk);
    return weft_wait(&desk->request, WEFT_NO_LIMIT);
}
static weft_status_t wait_for_any(struct desk *desk)
{
    int index;
    begin_receive(desk);
    return weft_wait_any(&desk->request, 1, WEFT_NO_LIMIT, &index);
}
static weft_status_t wait_for_all(struct desk *desk)
{
    begin_receive(desk);
    return weft_wait_all(&desk->request, 1, WEFT_NO_LIMIT);
}
static weft_status_t end_group(struct desk *desk)
{
    weft_group_begin(desk->comm);
    receive(desk);
    return weft_group_end(desk->comm);
}
static weft_status_t put_large(struct desk *desk)
{
    return weft_put(desk->comm, &desk->mem, 0, desk->bytes, desk->len);
}
static weft_status_t get_large(struct desk *desk)
{
    weft_get(desk->comm, &desk->mem, 0, desk->bytes, desk->len);
    return weft_quiet(desk->comm);
}
static weft_status_t put_signal(struct desk *desk)
{
    return weft_put_signal(desk->comm, &desk->mem, 0, desk->bytes, LARGE - 8, &desk->mem, LARGE - 8,
                           1);
}
static weft_status_t wait_signal(struct desk *desk)
{
    uint64_t *word = (uint64_t *)(void *)desk->bytes;
    return weft_wait_signal(desk->comm, word, 1, MESSAGES_TIMEOUT_MS);
}
static weft_status_t fence(struct desk *desk)
{
    weft_put(desk->comm, &desk->mem, 0, desk->bytes, 8);
    return weft_fence(desk->comm);
}
static weft_status_t quiet(struct desk *desk)
{
    weft_put(desk->comm, &desk->mem, 0, desk->bytes, 8);
    return weft_quiet(desk->comm);
}
static weft_status_t allreduce(struct desk *desk)
{
    return weft_allreduce(desk->comm, desk->bytes, desk->bytes, 8, WEFT_F32, WEFT_SUM, NULL);
}
static weft_status_t reduce_scatter(struct desk *desk)
{
    return weft_reduce_scatter(desk->comm, desk->bytes, desk->bytes + LARGE, 8, WEFT_F32, WEFT_SUM,
                               NULL);
}
static weft_status_t allgather(struct desk *desk)
{
    return weft_allgather(desk->comm, desk->bytes, desk->bytes + LARGE, 8, WEFT_F32, NULL);
}
static weft_status_t broadcast(struct desk *desk)
{
    return weft_broadcast(desk->comm, desk->bytes, desk->bytes, 8, WEFT_F32, 1, NULL);
}
static weft_status_t reduce(struct desk *desk)
{
    return weft_reduce(desk->comm, desk->bytes, desk->bytes + LARGE, 8, WEFT_F32, WEFT_SUM, 0,
                       NULL);
}
static weft_status_t gather(struct desk *desk)
{
    return weft_gather(desk->comm, desk->bytes, desk->bytes + LARGE, 8, WEFT_F32, 0, NULL);
}
static weft_status_t scatter(struct desk *desk)
{
    return weft_scatter(desk->comm, desk->bytes, desk->bytes + LARGE, 8, WEFT_F32, 1, NULL);
}
static weft_status_t alltoall(struct desk *desk)
{
    return weft_alltoall(desk->comm, desk->bytes, desk->bytes + LARGE, 8, WEFT_F32, NULL);
}
static weft_status_t barrier(struct desk *desk)
{
    return weft_barrier(desk->comm, NULL);
}
static weft_status_t collective(struct desk *desk)
{
    const weft_call_t call = WEFT_CALL_INIT;
    return weft_collective(desk->comm, &call, NULL);
}
static weft_status_t wait_for_op(struct desk *desk)
{
    const weft_call_t call = WEFT_CALL_INIT;
    weft_op_t op;
    weft_status_t status = weft_op_create(desk->comm, &call, &op);
    status = status == WEFT_OK ? weft_op_start(op) : status;
    return status == WEFT_OK ? weft_op_wait(op, WEFT_NO_LIMIT) : status;
}
static weft_status_t close_own(struct desk *desk)
{
    weft_comm_t comm;
    weft_status_t status = weft_comm_split(desk->comm, 0, 0, &comm);
    status = status == WEFT_OK ? weft_comm_close(comm) : status;
    return status == WEFT_OK ? weft_control_barrier(desk->comm) : status;
}
static weft_status_t dump(struct desk *desk)
{
    weft_status_t status = weft_dump(desk->comm, desk->folder);
    return status == WEFT_OK ? weft_control_barrier(desk->comm) : status;
}

static const struct hang hangs[] = {
    {"weft_comm_split", split, WEFT_RECORD_SPLIT, "shm", USED, 0, 0, 0},
    {"weft_comm_split", split, WEFT_RECORD_SPLIT, "shm", FRESH, 0, 0, 0},
    {"weft_comm_duplicate", duplicate, WEFT_RECORD_DUPLICATE, "shm", USED, 0, 0, 0},
    {"weft_comm_duplicate", duplicate, WEFT_RECORD_DUPLICATE, "shm", FRESH, 0, 0, 0},
    {"weft_comm_shrink", shrink, WEFT_RECORD_SHRINK, "shm", USED, 0, 0, 0},
    {"weft_comm_shrink", shrink, WEFT_RECORD_SHRINK, "shm", FRESH, 0, 0, 0},
    {"weft_control_barrier", control_barrier, WEFT_RECORD_CONTROL_BARRIER, "shm", USED, 0, 0, 0},
    {"weft_control_barrier", control_barrier, WEFT_RECORD_CONTROL_BARRIER, "shm", FRESH, 0, 0, 0},
    {"weft_control_allgather", control_allgather, WEFT_RECORD_CONTROL_ALLGATHER, "shm", USED, 0, 0,
     0},
    {"weft_control_broadcast", control_broadcast, WEFT_RECORD_CONTROL_BROADCAST, "shm", FRESH, 0, 0,
     0},
    {"weft_control_send", control_send, WEFT_RECORD_CONTROL_SEND, "shm", USED, 0, 0, 0},
    {"weft_control_send", control_send, WEFT_RECORD_CONTROL_SEND, "shm", FRESH, 0, 0, 0},
    {"weft_control_recv", control_recv, WEFT_RECORD_CONTROL_RECV, "shm", FRESH, 0, 0, 0},
    {"weft_send", send_large, WEFT_RECORD_SEND, "shm", USED, 0, 0, 0},
    {"weft_send", send_large, WEFT_RECORD_SEND, "tcp", FRESH, 0, 0, 0},
    {"weft_recv", receive, WEFT_RECORD_RECV, "shm", USED, 0, 0, 0},
    {"weft_recv", receive, WEFT_RECORD_RECV, "tcp", FRESH, 0, 0, 0},
    {"weft_probe", probe, WEFT_RECORD_PROBE, "shm", USED, 0, 0, 0},
    {"weft_wait", wait_for_one, WEFT_RECORD_RECV, "shm", USED, 0, 0, 0},
    {"weft_wait_any", wait_for_any, WEFT_RECORD_RECV, "shm", USED, 0, 0, 0},
    {"weft_wait_all", wait_for_all, WEFT_RECORD_RECV, "shm", USED, 0, 0, 0},
    {"weft_group_end", end_group, WEFT_RECORD_RECV, "shm", USED, 0, 0, 0},
    {"weft_put", put_large, WEFT_RECORD_PUT, "tcp", USED, true, 0, 0},
    {"weft_put", put_large, WEFT_RECORD_PUT, "shm", ANEW, true, 0, true},
    {"weft_get", get_large, WEFT_RECORD_GET, "tcp", USED, true, 0, 0},
    {"weft_get", get_large, WEFT_RECORD_GET, "shm", ANEW, true, 0, true},
    {"weft_put_signal", put_signal, WEFT_RECORD_PUT, "tcp", USED, true, 0, 0},
    {"weft_wait_signal", wait_signal, WEFT_RECORD_WAIT_SIGNAL, "shm", USED, 0, 0, 0},
    {"weft_fence", fence, WEFT_RECORD_FENCE, "shm", USED, true, 0, 0},
    {"weft_quiet", quiet, WEFT_RECORD_QUIET, "tcp", USED, true, 0, 0},
    {"weft_allreduce", allreduce, WEFT_ALLREDUCE, "shm", USED, 0, 0, 0},
    {"weft_allreduce", allreduce, WEFT_ALLREDUCE, "tcp", FRESH, 0, 0, 0},
    {"weft_reduce_scatter", reduce_scatter, WEFT_REDUCE_SCATTER, "shm", USED, 0, 0, 0},
    {"weft_allgather", allgather, WEFT_ALLGATHER, "shm", USED, 0, 0, 0},
    {"weft_broadcast", broadcast, WEFT_BROADCAST, "shm", USED, 0, 0, 0},
    {"weft_reduce", reduce, WEFT_REDUCE, "shm", USED, 0, 0, 0},
    {"weft_gather", gather, WEFT_GATHER, "shm", USED, 0, 0, 0},
    {"weft_scatter", scatter, WEFT_SCATTER, "shm", USED, 0, 0, 0},
    {"weft_alltoall", alltoall, WEFT_ALLTOALL, "shm", USED, 0, 0, 0},
    {"weft_barrier", barrier, WEFT_BARRIER, "shm", USED, 0, 0, 0},
    {"weft_collective", collective, WEFT_BARRIER, "shm", USED, 0, 0, 0},
    {"weft_op_wait", wait_for_op, WEFT_BARRIER, "shm", USED, 0, 0, 0},
    {"weft_comm_close", close_own, WEFT_RECORD_CLOSE, "shm", USED, 0, true, 0},
    {"weft_dump", dump, WEFT_RECORD_DUMP, "shm", USED, 0, true, 0},
};

/* Before these there is no rank that could record, … */
static const char *const starts[] = {"weft_comm_create", "weft_comm_create_scalable", "weft_init"};
/* … these wait for nobody (weft_abort: for a fifth of a second), and these begin what others wait for. */
static const char *const others[] = {
    "weft_id_create",
    "weft_id_print",
    "weft_id_print_public",
    "weft_id_parse",
    "weft_comm_rank",
    "weft_comm_ranks",
    "weft_comm_local",
    "weft_comm_status",
    "weft_comm_get_error",
    "weft_comm_error_fd",
    "weft_abort",
    "weft_test",
    "weft_cancel",
    "weft_comm_set_timeout",
    "weft_request_set_timeout",
    "weft_group_begin",
    "weft_alloc",
    "weft_free",
    "weft_mem_register",
    "weft_mem_deregister",
    "weft_op_create",
    "weft_op_start",
    "weft_op_destroy",
};

#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

/* ---- ranks ---- */

static weft_status_t share_memory(struct desk *desk, int rank, bool is_mapped)
{
    weft_mem_t mems[2];
    void *memory = desk->bytes;
    weft_status_t status = is_mapped ? weft_alloc(MAPPED, &memory) : WEFT_OK;
    desk->len = is_mapped ? MAPPED : LARGE;
    status =
        status == WEFT_OK ? weft_mem_register(desk->comm, memory, desk->len, &desk->mem) : status;
    status = status == WEFT_OK
                 ? weft_control_allgather(desk->comm, &desk->mem, sizeof(mems[0]), mems)
                 : status;
    desk->mem = mems[1 - rank];
    return status;
}

/* Both have done something together before, unless it is about the first call. */
static weft_status_t prepare(struct desk *desk, const struct hang *hang, int rank)
{
    uint64_t word = 0;
    weft_status_t status = WEFT_OK;
    if (hang->state != FRESH) {
        status = share_memory(desk, rank, hang->is_mapped);
    }
    if (hang->state == USED && status == WEFT_OK) {
        status = weft_barrier(desk->comm, NULL);
        status = status == WEFT_OK && rank == 0
                     ? weft_send(desk->comm, &word, sizeof(word), 1, TAG, NULL)
                     : status;
        status = status == WEFT_OK && rank == 1
                     ? weft_recv(desk->comm, &word, sizeof(word), 0, TAG, NULL, NULL)
                     : status;
    }
    return status;
}

static int body(int rank, struct harness_shared *shared, void *arg)
{
    const struct plan *plan = arg;
    const struct hang *hang = &plan->hang;
    struct desk desk = {.bytes = messages_buffer(2 * LARGE), .folder = plan->folder};
    weft_comm_t mine;
    weft_status_t status = messages_join(rank, shared, hang->path, MESSAGES_TIMEOUT_MS, &desk.comm);
    status = status == WEFT_OK ? prepare(&desk, hang, rank) : status;
    if (status != WEFT_OK) {
        return harness_say(shared, rank, -1, "could not prepare: %s", weft_error_text());
    }
    atomic_fetch_add(&shared->word[READY], 1);
    harness_wait_reach(&shared->word[GO], 1, MESSAGES_WAIT_MS);
    if (rank == 0) {
        status = hang->call(&desk);
        return harness_say(shared, rank, (int)status, "it returned: %s", weft_error_text());
    }
    if (hang->kind == WEFT_RECORD_CLOSE && weft_comm_split(desk.comm, 0, 0, &mine) != WEFT_OK) {
        return harness_say(shared, rank, -1, "could not split: %s", weft_error_text());
    }
    harness_wait_reach(&shared->word[OVER], 1, MESSAGES_WAIT_MS);
    return 0;
}

/* ---- the test's side ---- */

struct look {
    const struct hang *hang;
    pid_t pid;
    bool has_recorder;
};

static bool has_line(const struct hang *hang, const uint8_t *bytes, size_t len)
{
    struct weft_recorder_time now = weft_recorder_now();
    struct weft_dump_entry entry;
    struct weft_dump dump;
    bool is_there = false;
    if (weft_wire_dump_open(bytes, len, &now, &dump) != WEFT_OK) {
        return false;
    }
    for (uint32_t slot = 0; slot < dump.entries; slot++) {
        is_there |=
            weft_wire_dump_entry(&dump, slot, &entry) && entry.kind == hang->kind &&
            (entry.state == WEFT_DUMP_GOING || (entry.state == WEFT_DUMP_ENDED && hang->is_short));
    }
    return is_there;
}

static bool is_recorded(void *arg)
{
    static uint8_t bytes[FILE_MAX];
    struct look *look = arg;
    char folder[64], path[sizeof(folder) + 256], target[256];
    const struct dirent *entry;
    bool is_there = false;
    snprintf(folder, sizeof(folder), "/proc/%d/fd", (int)look->pid);
    DIR *fds = opendir(folder);
    while (fds != NULL && (entry = readdir(fds)) != NULL) {
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        ssize_t len = readlink(path, target, sizeof(target) - 1);
        target[len > 0 ? len : 0] = '\0';
        if (strncmp(target, "/memfd:" WEFT_RECORD_MEMFD, strlen("/memfd:" WEFT_RECORD_MEMFD)) ==
            0) {
            int fd = open(path, O_RDONLY | O_CLOEXEC);
            ssize_t count = fd >= 0 ? pread(fd, bytes, sizeof(bytes), 0) : -1;
            is_there = count > 0 && has_line(look->hang, bytes, (size_t)count);
            look->has_recorder = true;
            close(fd);
        }
    }
    if (fds != NULL) {
        closedir(fds);
    }
    return is_there;
}

static void remove_folder(const char *path)
{
    const struct dirent *entry;
    DIR *folder = opendir(path);
    assert_non_null(folder);
    while ((entry = readdir(folder)) != NULL) {
        unlinkat(dirfd(folder), entry->d_name, 0);
    }
    closedir(folder);
    assert_int_equal(rmdir(path), 0);
}

static void check(const struct hang *hang)
{
    struct plan plan = {.hang = *hang, .folder = "/tmp/weft-test-calls-XXXXXX"};
    assert_non_null(mkdtemp(plan.folder));
    struct harness *harness = harness_start(2, body, &plan);
    struct harness_shared *shared = harness_shared(harness);
    struct look look = {.hang = hang, .pid = harness_pid(harness, 0)};
    assert_harness(harness, harness_wait_reach(&shared->word[READY], 2, MESSAGES_WAIT_MS));
    if (hang->is_stopped) {
        assert_harness(harness, harness_stop(harness, 1));
    }
    atomic_store(&shared->word[GO], 1);
    if (!harness_wait_until(is_recorded, &look, MESSAGES_WAIT_MS)) {
        fail_msg("%s over %s%s: %s; the rank says \"%s\"", hang->name, hang->path,
                 hang->state == FRESH ? ", the first call" : "",
                 look.has_recorder ? "its recorder does not have it" : "there is no recorder",
                 harness_result(harness, 0)->text);
    }
    harness_close(harness);
    remove_folder(plan.folder);
}

static void every_call_that_blocks_is_in_the_recorder(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(hangs); i++) {
        check(&hangs[i]);
    }
}

static bool is_listed(const char *name)
{
    bool is_found = false;
    for (size_t i = 0; i < COUNT(hangs); i++) {
        is_found |= strcmp(hangs[i].name, name) == 0;
    }
    for (size_t i = 0; i < COUNT(starts); i++) {
        is_found |= strcmp(starts[i], name) == 0;
    }
    for (size_t i = 0; i < COUNT(others); i++) {
        is_found |= strcmp(others[i], name) == 0;
    }
    return is_found;
}

static void every_call_of_the_header_is_listed(void **state)
{
    static const char before[] = "weft_status_t weft_";
    FILE *header = fopen(WEFT_HEADER_PATH, "re");
    char line[512], name[128];
    unsigned count = 0;
    (void)state;
    assert_non_null(header);
    while (fgets(line, sizeof(line), header) != NULL) {
        size_t len = strcspn(line, "(");
        if (strncmp(line, before, strlen(before)) != 0 || line[len] != '(') {
            continue;
        }
        assert_in_range(len, 1, sizeof(name));
        snprintf(name, sizeof(name), "%.*s", (int)(len - strlen("weft_status_t ")),
                 line + strlen("weft_status_t "));
        if (!is_listed(name)) {
            fail_msg("%s: does it block? Then the recorder must have it", name);
        }
        count++;
    }
    fclose(header);
    assert_in_range(count, 50, 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_of_the_header_is_listed),
        cmocka_unit_test(every_call_that_blocks_is_in_the_recorder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
