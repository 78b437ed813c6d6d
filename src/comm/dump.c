/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The flight recorder as a file: when somebody asks for it, and by itself when a communicator fails. A failure is
 * heard under the engine's lock, and a directory may hang for as long as it likes; so there the ring is only
 * copied, and a thread of its own writes it. Calls that return with the failure wait for the file, but not for
 * long: deadlines, abort and heartbeats do not depend on a disk.
 */
#include "wire/dump.h"
#include "comm/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define AGAIN_NS UINT64_C(1000000000) /* what fails right after another is in that dump already */
#define PATH_LEN 4096
#define CALL_MS 200  /* how long after a failure its file is waited for by calls, */
#define CLOSE_MS 500 /* … by closing */
#define STACK_LEN ((size_t)256 << 10) /* paths, with what sanitizers put around them */

/* ---- files ---- */

/* A new one under another name first: nobody finds half of it, and no link is followed. Several threads may
 * write the same one. */
static weft_status_t write_file(const char *path, const void *bytes, size_t len)
{
    static _Atomic unsigned drafts;
    char draft[PATH_LEN + 32];
    size_t done = 0;
    struct stat facts;
    int fd;
    if (lstat(path, &facts) == 0 && !S_ISREG(facts.st_mode)) {
        return weft_fail(WEFT_ERR_INVALID,
                         "%s is there, and is not a regular file: the flight "
                         "recorder would replace it",
                         path);
    }
    if (weft_file_exceeds_limit(len)) { /* else it would be a signal */
        return weft_fail(WEFT_ERR_SYSTEM,
                         "the flight recorder has %zu bytes, more than a file may "
                         "have here; raise the limit (ulimit -f)",
                         len);
    }
    snprintf(draft, sizeof(draft), "%s.%d.%u", path, (int)getpid(), atomic_fetch_add(&drafts, 1));
    (void)unlink(draft);
    fd = open(draft, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) {
        return weft_fail_errno("cannot write the flight recorder to %s", path);
    }
    while (done < len) {
        ssize_t count = write(fd, (const uint8_t *)bytes + done, len - done);
        if (count < 0 && errno != EINTR) {
            break;
        }
        done += count > 0 ? (size_t)count : 0;
    }
    if (done < len || rename(draft, path) != 0) {
        weft_status_t status = weft_fail_errno("cannot write the flight recorder to %s", path);
        close(fd);
        (void)unlink(draft);
        return status;
    }
    close(fd);
    return WEFT_OK;
}

/* What the head of a dump says of why it was made. */
struct reason {
    enum weft_record_reason reason;
    weft_status_t status;
    uint32_t blamed; /* of the job, or NO_RANK */
    const char *text;
};

/* What a file will hold, *len_p bytes; NULL: no memory. A forked child has nothing of it. */
static struct weft_recording *copy_recorder(struct weft_job *job, const struct reason *reason,
                                            size_t *len_p)
{
    size_t len = weft_recorder_len(&job->recorder);
    struct weft_recording *copy =
        mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED) {
        return NULL;
    }
    (void)madvise(copy, len, MADV_DONTFORK);
    weft_recorder_copy(&job->recorder, copy);
    copy->head.reason = reason->reason;
    copy->head.status = reason->status;
    copy->head.blamed = reason->blamed < job->self.ranks ? reason->blamed + 1 : 0;
    snprintf(copy->head.text, sizeof(copy->head.text), "%s", reason->text);
    weft_wire_dump_seal(copy, len);
    *len_p = len;
    return copy;
}

/* "DIR/weft-0123456789abcdef-rank-3.dump"; false: too long. */
static bool name_file(const struct weft_job *job, const char *folder, char *path)
{
    const uint8_t *id = job->recorder.image->head.job;
    return snprintf(path, PATH_LEN, "%s/weft-%02x%02x%02x%02x%02x%02x%02x%02x-rank-%u.dump", folder,
                    id[0], id[1], id[2], id[3], id[4], id[5], id[6], id[7],
                    job->self.rank) < PATH_LEN;
}

/* Somebody has asked for it, and waits in this call as long as it takes. */
static weft_status_t dump(struct weft_comm *comm, const char *path)
{
    const struct reason asked = {
        .reason = WEFT_RECORD_ASKED, .blamed = WEFT_WIRE_NO_RANK, .text = ""};
    const struct weft_record_call call = {
        .comm = comm->id, .what = weft_record_what(WEFT_RECORD_DUMP, WEFT_U8, 0, 0, 0)};
    struct weft_job *job = comm->job;
    size_t len = 0;
    struct weft_recording *copy = copy_recorder(job, &asked, &len);
    weft_status_t status;
    uint64_t record;
    if (copy == NULL) {
        return weft_fail(WEFT_ERR_MEMORY, "no memory to copy the flight recorder");
    }
    record = weft_recorder_begin(&job->recorder, &call);
    status = write_file(path, copy, len);
    weft_recorder_end(&job->recorder, record, status);
    munmap(copy, len);
    return status;
}

weft_status_t weft_comm_dump(struct weft_comm *comm, const char *path)
{
    struct weft_job *job = comm->job;
    char named[PATH_LEN];
    struct stat facts;
    if (weft_comm_recorder(comm)->image == NULL) {
        return weft_fail(WEFT_ERR_UNSUPPORTED,
                         "weft_dump: the flight recorder is off; see WEFT_RECORDER");
    }
    path = path != NULL ? path : job->params.text[WEFT_PARAM_DUMP];
    if (path[0] == '\0') {
        return weft_fail(WEFT_ERR_INVALID, "weft_dump: no path, and WEFT_DUMP names no directory");
    }
    if (stat(path, &facts) == 0 && S_ISDIR(facts.st_mode)) {
        if (!name_file(job, path, named)) {
            return weft_fail(WEFT_ERR_INVALID, "weft_dump: the path is too long");
        }
        path = named;
    }
    return strlen(path) < PATH_LEN ? dump(comm, path)
                                   : weft_fail(WEFT_ERR_INVALID, "weft_dump: the path is too long");
}

/* ---- failures ---- */

/* A file on its way. It outlives its job when the directory hangs. */
struct weft_comm_writer {
    _Atomic unsigned owners; /* its thread, the job, calls that wait for it */
    pthread_mutex_t lock;    /* of is_done */
    pthread_cond_t done;
    bool is_done;
    uint64_t begun_ns;
    struct weft_recording *copy; /* owned */
    size_t len;
    uint32_t rank;
    char folder[PATH_LEN], path[PATH_LEN];
};

static void let_go(struct weft_comm_writer *writer)
{
    if (atomic_fetch_sub(&writer->owners, 1) == 1) {
        munmap(writer->copy, writer->len);
        pthread_cond_destroy(&writer->done);
        pthread_mutex_destroy(&writer->lock);
        free(writer);
    }
}

static void *write_main(void *arg)
{
    struct weft_comm_writer *writer = arg;
    weft_log_set_rank((int)writer->rank);
    (void)mkdir(writer->folder, 0700); /* mostly it is there */
    if (write_file(writer->path, writer->copy, writer->len) != WEFT_OK) {
        weft_log(watch, WARN, "%s", weft_error_text());
    } else if (writer->rank != 0) {
        weft_log(watch, INFO, "the rank's latest operations are in %s", writer->path);
    } else { /* one of them says it for all */
        weft_log(watch, WARN, "the rank's latest operations are in %s; run `weft inspect %s/*`",
                 writer->path, writer->folder);
    }
    pthread_mutex_lock(&writer->lock);
    writer->is_done = true;
    pthread_cond_broadcast(&writer->done);
    pthread_mutex_unlock(&writer->lock);
    let_go(writer);
    return NULL;
}

static bool start_thread(struct weft_comm_writer *writer)
{
    const struct weft_thread spec = {
        .run = write_main, .arg = writer, .stack_len = STACK_LEN, .is_detached = true};
    pthread_t thread;
    return weft_thread_start(&spec, &thread) == 0;
}

/* Owned by the caller and the thread that it starts; NULL: no memory. */
static struct weft_comm_writer *make_writer(struct weft_job *job, const struct reason *reason)
{
    struct weft_comm_writer *writer = calloc(1, sizeof(*writer));
    pthread_condattr_t attr;
    if (writer == NULL || (writer->copy = copy_recorder(job, reason, &writer->len)) == NULL) {
        free(writer);
        return NULL;
    }
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&writer->done, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&writer->lock, NULL);
    atomic_store(&writer->owners, 2); /* its thread and the job */
    writer->begun_ns = weft_clock_ns();
    writer->rank = job->self.rank;
    return writer;
}

static bool is_writing(struct weft_comm_writer *writer)
{
    bool is_done = true;
    if (writer != NULL) {
        pthread_mutex_lock(&writer->lock);
        is_done = writer->is_done;
        pthread_mutex_unlock(&writer->lock);
    }
    return !is_done;
}

static void say_how(void)
{
    static _Atomic bool is_said;
    if (!atomic_exchange(&is_said, true)) {
        weft_log(
            watch, WARN,
            "to see what every rank did last, set WEFT_DUMP=DIR and run `weft inspect DIR/*`, or "
            "run `weft inspect --pid PID` while they hang");
    }
}

static void begin_writing(struct weft_job *job, const struct reason *reason, const char *folder)
{
    struct weft_comm_writer *writer = make_writer(job, reason);
    if (writer == NULL) {
        weft_log(watch, WARN, "no memory to copy the flight recorder");
        return;
    }
    snprintf(writer->folder, sizeof(writer->folder), "%s", folder);
    if (!name_file(job, folder, writer->path) || !start_thread(writer)) {
        weft_log(watch, WARN, "cannot write the flight recorder to %s: no thread for it", folder);
        atomic_store(&writer->owners, 1); /* there is no thread */
        let_go(writer);
        return;
    }
    if (job->writer != NULL) {
        let_go(job->writer);
    }
    job->writer = writer;
}

void weft_comm_dump_failure(struct weft_job *job, const struct weft_control_failure *failure)
{
    const struct reason failed = {.reason = WEFT_RECORD_FAILED,
                                  .status = failure->status,
                                  .blamed = failure->rank,
                                  .text = failure->text};
    const char *folder = job->params.text[WEFT_PARAM_DUMP];
    uint64_t now_ns = weft_clock_ns();
    if (!atomic_load(&job->is_recorded) || job->recorder.image == NULL) {
        return; /* nothing was done yet, or it is off */
    }
    if (folder[0] == '\0') {
        say_how();
        return;
    }
    if ((job->dumped_ns != 0 && now_ns - job->dumped_ns < AGAIN_NS) || is_writing(job->writer)) {
        return; /* one at a time: a directory that hangs does not get a thread for each failure */
    }
    job->dumped_ns = now_ns;
    begin_writing(job, &failed, folder);
}

/* ---- waiting for it ---- */

static void await(struct weft_comm_writer *writer, uint64_t limit_ms)
{
    uint64_t until_ns = writer->begun_ns + limit_ms * UINT64_C(1000000);
    const struct timespec until = {.tv_sec = (time_t)(until_ns / UINT64_C(1000000000)),
                                   .tv_nsec = (long)(until_ns % UINT64_C(1000000000))};
    pthread_mutex_lock(&writer->lock);
    while (!writer->is_done &&
           pthread_cond_timedwait(&writer->done, &writer->lock, &until) != ETIMEDOUT) {
    }
    pthread_mutex_unlock(&writer->lock);
}

void weft_comm_dump_await(struct weft_job *job)
{
    struct weft_comm_writer *writer;
    if (job->params.text[WEFT_PARAM_DUMP][0] == '\0') {
        return;
    }
    weft_engine_lock(job->engine); /* whoever ends a communicator lets calls go before it is here */
    writer = job->writer;
    if (writer != NULL) {
        atomic_fetch_add(&writer->owners, 1);
    }
    weft_engine_unlock(job->engine);
    if (writer != NULL) {
        await(writer, CALL_MS);
        let_go(writer);
    }
}

void weft_comm_dump_leave(struct weft_job *job)
{
    if (job->writer != NULL) {
        await(job->writer, CLOSE_MS);
        let_go(job->writer);
        job->writer = NULL;
    }
}
