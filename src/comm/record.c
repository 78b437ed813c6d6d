/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rank's flight recorder: opened with its first operation (a start has no time for it), and written to a
 * file when somebody asks for it or a communicator fails.
 */
#include "comm/internal.h"
#include "topo/topo.h"
#include "wire/dump.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define AGAIN_NS UINT64_C(1000000000) /* what fails right after another is in that dump already */
#define PATH_LEN 4096
#define START_CALLS                                                                                \
    4 /* control calls that belong to the start of a program: memory for them can wait */

static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

/* ---- operations ---- */

static void open_recorder(struct weft_job *job)
{
    char host[64];
    uint8_t
        hash[32]; /* the job's id is not for everybody who reads the recorder or a file's name */
    struct weft_recorder_spec spec = {.entries = (uint32_t)job->params.number[WEFT_PARAM_RECORDER],
                                      .epoch = job->self.epoch,
                                      .rank = job->self.rank,
                                      .ranks = job->self.ranks,
                                      .host = host};
    weft_topo_hostname(host);
    weft_wire_derive(job->key, "recorder", job->self.job, sizeof(job->self.job), hash);
    memcpy(spec.job, hash, sizeof(spec.job));
    weft_recorder_open(&spec, &job->recorder);
    atomic_store(&job->is_recorded, true);
}

struct weft_recorder *weft_comm_recorder(struct weft_comm *comm)
{
    struct weft_recorder *recorder = &comm->job->recorder;
    if (atomic_load_explicit(&comm->is_recorded, memory_order_acquire)) {
        return recorder;
    }
    pthread_mutex_lock(&opening);
    if (!atomic_load(&comm->job->is_recorded)) {
        open_recorder(comm->job);
    }
    if (!atomic_load(&comm->is_recorded)) {
        weft_recorder_comm_open(recorder, comm->id, comm->rank, comm->ranks);
        atomic_store(&comm->is_recorded, true);
    }
    pthread_mutex_unlock(&opening);
    return recorder;
}

void weft_comm_record_control(struct weft_comm *comm, enum weft_record_kind kind, size_t count,
                              uint32_t peer, uint32_t tag)
{
    bool is_numbered = weft_record_is_control((uint8_t)kind);
    const struct weft_record_call call = {
        .comm = comm->id,
        .count = count,
        .what = weft_record_what(kind, WEFT_U8, 0, 0, peer),
        .number = is_numbered ? comm->control_calls++ : 0,
        .signature = ((uint32_t)kind * 31 + (uint32_t)count) * 31 + peer + 1,
        .chain = tag};
    if (atomic_load(&comm->job->is_recorded) || comm->control_calls > START_CALLS) {
        comm->control_record = weft_recorder_begin(weft_comm_recorder(comm), &call);
    }
}

void weft_comm_record_control_end(struct weft_comm *comm, weft_status_t status)
{
    weft_recorder_end(&comm->job->recorder, comm->control_record, status);
    comm->control_record = 0;
}

/* ---- files ---- */

/* A new one under another name first: nobody finds half of it, and no link is followed. */
static weft_status_t write_file(const char *path, const void *bytes, size_t len)
{
    char draft[PATH_LEN + 16];
    size_t done = 0;
    int fd;
    snprintf(draft, sizeof(draft), "%s.%d", path, (int)getpid());
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
    const char *text;
};

static weft_status_t dump(struct weft_job *job, const char *path, const struct reason *reason)
{
    size_t len = weft_recorder_len(&job->recorder);
    struct weft_recording *copy;
    weft_status_t status;
    copy = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED) {
        return weft_fail(WEFT_ERR_MEMORY, "no memory to copy the flight recorder, %zu bytes", len);
    }
    weft_recorder_copy(&job->recorder, copy);
    copy->head.reason = reason->reason;
    copy->head.status = reason->status;
    snprintf(copy->head.text, sizeof(copy->head.text), "%s", reason->text);
    weft_wire_dump_seal(copy, len);
    status = write_file(path, copy, len);
    munmap(copy, len);
    return status;
}

/* "DIR/weft-0123456789abcdef-rank-3.dump"; false: too long. */
static bool name_file(const struct weft_job *job, const char *folder, char *path)
{
    const uint8_t *id = job->recorder.image->head.job;
    return snprintf(path, PATH_LEN, "%s/weft-%02x%02x%02x%02x%02x%02x%02x%02x-rank-%u.dump", folder,
                    id[0], id[1], id[2], id[3], id[4], id[5], id[6], id[7],
                    job->self.rank) < PATH_LEN;
}

weft_status_t weft_comm_dump(struct weft_comm *comm, const char *path)
{
    struct weft_job *job = comm->job;
    const struct reason asked = {.reason = WEFT_RECORD_ASKED, .text = ""};
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
    return strlen(path) < PATH_LEN ? dump(job, path, &asked)
                                   : weft_fail(WEFT_ERR_INVALID, "weft_dump: the path is too long");
}

/* ---- failures ---- */

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

/* Its caller holds the lock: a directory that is slow makes the failure slow, so it is only done where it
 * was asked for. */
void weft_comm_dump_failure(struct weft_job *job, weft_status_t status, const char *text)
{
    const struct reason failed = {.reason = WEFT_RECORD_FAILED, .status = status, .text = text};
    const char *folder = job->params.text[WEFT_PARAM_DUMP];
    char path[PATH_LEN], before[WEFT_ERROR_TEXT_LEN];
    uint64_t now_ns = weft_clock_ns();
    if (!atomic_load(&job->is_recorded) || job->recorder.image == NULL) {
        return; /* nothing was done yet, or it is off */
    }
    if (folder[0] == '\0') {
        say_how();
        return;
    }
    if (job->dumped_ns != 0 && now_ns - job->dumped_ns < AGAIN_NS) {
        return;
    }
    job->dumped_ns = now_ns;
    snprintf(before, sizeof(before), "%s", weft_error_text());
    (void)mkdir(folder, 0700); /* mostly it is there */
    if (!name_file(job, folder, path) || dump(job, path, &failed) != WEFT_OK) {
        weft_log(watch, WARN, "%s", weft_error_text());
        weft_fail_record(status, "%s", before); /* the driver's words, which text may be */
    } else if (job->self.rank != 0) {
        weft_log(watch, INFO, "the rank's latest operations are in %s", path);
    } else { /* one of them says it for all */
        weft_log(watch, WARN, "the rank's latest operations are in %s; run `weft inspect %s/*`",
                 path, folder);
    }
}
