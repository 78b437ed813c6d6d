/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starting the ranks. The secret goes into a sealed memfd that every rank inherits: it is in no
 * argument, no variable and no file. Rank 0 also inherits the socket that the others will call,
 * which therefore exists before any of them runs; we drop our copy, so that it dies with rank 0.
 */
#include "run.h"

#include "comm/launch.h"
#include "wire/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define BACKLOG 4096
#define EXEC_FAILED 127

static bool fail_errno(struct weft_run_job *job, const char *what)
{
    weft_fail_errno("%s", what);
    weft_run_fail(job, -1, "%s", weft_error_text());
    return false;
}

static bool seal_secret(struct weft_run_job *job, const uint8_t *secret)
{
    job->secret_fd = memfd_create("weft-secret", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (job->secret_fd < 0) {
        return fail_errno(job, "making memory for the secret");
    }
    signal(SIGXFSZ, SIG_IGN); /* a limit of file sizes is seen by write() */
    if (write(job->secret_fd, secret, WEFT_SECRET_LEN) != WEFT_SECRET_LEN) {
        return fail_errno(job, "writing the secret");
    }
    if (fcntl(job->secret_fd, F_ADD_SEALS,
              F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) != 0) {
        return fail_errno(job, "sealing the secret");
    }
    return true;
}

static bool open_listener(struct weft_run_job *job, const uint8_t *key, const uint8_t *id)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    char name[WEFT_WIRE_NAME_LEN];

    weft_wire_local_name(key, id, 0, "root", 0, name);
    size_t len = strlen(name);
    memcpy(addr.sun_path + 1, name, len); /* behind a zero: an abstract name */
    job->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (job->listen_fd < 0) {
        return fail_errno(job, "opening rank 0's socket");
    }
    socklen_t addr_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len);
    if (bind(job->listen_fd, (struct sockaddr *)&addr, addr_len) != 0 ||
        listen(job->listen_fd, BACKLOG) != 0) {
        return fail_errno(job, "listening on rank 0's socket");
    }
    return true;
}

/* vault: 64 bytes that no core dump holds; the secret, then the key */
static bool make_identity(struct weft_run_job *job, uint8_t *vault)
{
    uint8_t name[8], id[16];
    uint8_t *secret = vault;
    uint8_t *key = vault + WEFT_SECRET_LEN;

    if (weft_random(secret, WEFT_SECRET_LEN) != WEFT_OK ||
        weft_random(name, sizeof(name)) != WEFT_OK) {
        weft_run_fail(job, -1, "%s", weft_error_text());
        return false;
    }
    int len = snprintf(job->name, sizeof(job->name), "run-");
    for (size_t i = 0; i < sizeof(name); i++) {
        len += snprintf(job->name + len, sizeof(job->name) - (size_t)len, "%02x", name[i]);
    }
    if (weft_comm_job_key(secret, job->name, id, key) != WEFT_OK) {
        weft_run_fail(job, -1, "%s", weft_error_text());
        return false;
    }
    return seal_secret(job, secret) && (job->ground != NULL || open_listener(job, key, id));
}

/* Blocks what we pass on or handle; the ranks get the old mask back. */
static bool open_loop(struct weft_run_job *job)
{
    static const int passed_on[] = {SIGINT,  SIGTERM, SIGHUP,  SIGQUIT,
                                    SIGUSR1, SIGUSR2, SIGCONT, SIGTSTP};
    sigset_t mask;

    sigemptyset(&mask);
    for (size_t i = 0; i < WEFT_COUNT_OF(passed_on); i++) {
        sigaddset(&mask, passed_on[i]);
    }
    sigprocmask(SIG_BLOCK, &mask, &job->old_mask);
    signal(SIGPIPE, SIG_IGN); /* a reader that left is seen by write() */
    job->signal_fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
    job->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (job->signal_fd < 0 || job->epoll_fd < 0 ||
        !weft_run_listen(job, job->signal_fd, WEFT_RUN_SIGNAL, 0)) {
        return fail_errno(job, "watching for signals");
    }
    if (!weft_run_sinks_open(job)) {
        return fail_errno(job, "watching the ranks' output");
    }
    return true;
}

/* Up to three descriptors per rank; only ours, the ranks get the old limit. */
static void raise_file_limit(struct weft_run_job *job)
{
    if (getrlimit(RLIMIT_NOFILE, &job->old_files) == 0) {
        struct rlimit raised = {job->old_files.rlim_max, job->old_files.rlim_max};
        setrlimit(RLIMIT_NOFILE, &raised); /* if not, opening says so */
    }
}

/* A closed stdin, stdout or stderr would let one of ours take its number, to be replaced in the
 * child. */
static bool fill_standard_fds(void)
{
    int fd = STDIN_FILENO;

    while (fd >= 0 && fd <= STDERR_FILENO) {
        fd = open("/dev/null", O_RDWR);
    }
    return fd >= 0 && close(fd) == 0;
}

/* stdout and stderr are the same file: two sinks would cut each other's lines. */
static bool is_one_output(void)
{
    struct stat out, err;

    return fstat(STDOUT_FILENO, &out) == 0 && fstat(STDERR_FILENO, &err) == 0 &&
           out.st_dev == err.st_dev && out.st_ino == err.st_ino;
}

bool weft_run_prepare(struct weft_run_job *job)
{
    if (!fill_standard_fds()) {
        return fail_errno(job, "opening /dev/null");
    }
    uint8_t *vault = weft_secret_take();
    if (vault == NULL) {
        weft_run_fail(job, -1, "no memory for the secret");
        return false;
    }
    struct weft_run_sink *out = &job->sink[job->is_json || is_one_output() ? 1 : 0];
    job->rank = weft_cli_alloc((size_t)job->ranks, sizeof(*job->rank));
    for (int i = 0; i < job->ranks; i++) {
        job->rank[i].pidfd = -1;
        job->rank[i].stream[0] = (struct weft_run_stream){.fd = -1, .sink = out, .rank = i};
        job->rank[i].stream[1] =
            (struct weft_run_stream){.fd = -1, .sink = &job->sink[1], .rank = i};
    }
    raise_file_limit(job);
    bool is_ready = make_identity(job, vault) && open_loop(job);
    weft_secret_give(vault);
    return is_ready;
}

void weft_run_release(struct weft_run_job *job)
{
    int fds[] = {job->secret_fd, job->listen_fd, job->epoll_fd, job->signal_fd};

    for (size_t i = 0; i < WEFT_COUNT_OF(fds); i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
    weft_run_sinks_close(job);
    free(job->rank);
}

static void set_number(const char *name, int number)
{
    char text[16];

    snprintf(text, sizeof(text), "%d", number);
    setenv(name, text, 1);
}

/* Ours come first when a rank looks for its launcher; what would contradict them goes. */
static void set_environment(const struct weft_run_job *job, int rank)
{
    static const char *const stale[] = {"WEFT_ROOT", "WEFT_ID", "WEFT_SECRET_FILE",
                                        "WEFT_LISTEN_FD"};

    for (size_t i = 0; i < WEFT_COUNT_OF(stale); i++) {
        unsetenv(stale[i]);
    }
    set_number("WEFT_RANK", rank);
    set_number("WEFT_RANKS", job->ranks);
    set_number("WEFT_LOCAL_RANK", rank);
    set_number("WEFT_LOCAL_RANKS", job->ranks);
    set_number("WEFT_SECRET_FD", job->secret_fd);
    setenv("WEFT_JOB", job->name, 1);
    if (rank == 0 && job->listen_fd >= 0) {
        set_number("WEFT_LISTEN_FD", job->listen_fd);
    }
}

static bool set_streams(const struct weft_run_job *job, int rank, const int out[2])
{
    if (rank > 0) {
        int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (null < 0 || dup2(null, STDIN_FILENO) < 0) {
            return false;
        }
    }
    if (job->is_tagged) {
        return dup2(out[0], STDOUT_FILENO) >= 0 && dup2(out[1], STDERR_FILENO) >= 0;
    }
    return !job->is_json || dup2(STDERR_FILENO, STDOUT_FILENO) >= 0;
}

/* In the child; returns only when something failed, with errno. */
static void become_rank(const struct weft_run_job *job, int rank, pid_t runner, const int out[2])
{
    /* no rank outlives us; if we have died already, the signal was missed; from a ground with PIDs
     * of its own we are seen as 0 */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != (job->ground != NULL ? 0 : runner)) {
        return;
    }
    if (job->rank[rank].has_group && setpgid(0, 0) != 0) {
        return;
    }
    if (!set_streams(job, rank, out) || fcntl(job->secret_fd, F_SETFD, 0) != 0 ||
        (rank == 0 && job->listen_fd >= 0 && fcntl(job->listen_fd, F_SETFD, 0) != 0)) {
        return;
    }
    set_environment(job, rank);
    if (job->ground != NULL && !job->ground->enter(job->ground->context, rank)) {
        return;
    }
    setrlimit(RLIMIT_NOFILE, &job->old_files);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    sigprocmask(SIG_SETMASK, &job->old_mask, NULL);
    execvp(job->argv[0], job->argv);
}

/* The write ends of a rank's streams, read ends into the job; -1 where lines are not tagged. */
static bool open_streams(struct weft_run_job *job, int rank, int out[2])
{
    out[0] = out[1] = -1;
    for (int i = 0; i < 2 && job->is_tagged; i++) {
        struct weft_run_stream *stream = &job->rank[rank].stream[i];
        int ends[2];
        if (pipe2(ends, O_CLOEXEC) != 0) {
            return false;
        }
        stream->fd = ends[0];
        out[i] = ends[1];
        if (fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0 ||
            !weft_run_sink_add(stream->sink, ends[0], (unsigned)(2 * rank + i))) {
            return false;
        }
    }
    return true;
}

/* Forks; in the parent waits until the child runs the program, or returns what kept it from that.
 */
static bool fork_rank(struct weft_run_job *job, int rank, const int out[2], int *exec_errno_p)
{
    struct weft_run_rank *self = &job->rank[rank];
    pid_t runner = getpid();
    int report[2], error = 0;
    ssize_t got;

    if (pipe2(report, O_CLOEXEC) != 0) {
        return false;
    }
    /* rank 0 may read the terminal only from the terminal's own process group */
    self->has_group = rank > 0 || isatty(STDIN_FILENO) == 0;
    self->pid = job->ground != NULL ? job->ground->fork(job->ground->context, rank) : fork();
    if (self->pid == 0) {
        become_rank(job, rank, runner, out);
        error = errno;
        /* nobody reads it if the runner has died; then nothing is lost */
        if (write(report[1], &error, sizeof(error)) < 0) {
            _exit(EXEC_FAILED);
        }
        _exit(EXEC_FAILED);
    }
    close(report[1]);
    do {
        got = self->pid > 0 ? read(report[0], &error, sizeof(error)) : 0;
    } while (got < 0 && errno == EINTR);
    int saved = errno;
    close(report[0]);
    errno = saved;
    *exec_errno_p = got == (ssize_t)sizeof(error) ? error : 0;
    return self->pid > 0;
}

/* A rank that runs is watched from here on, also when the job fails to start. */
static bool adopt_rank(struct weft_run_job *job, int rank)
{
    struct weft_run_rank *self = &job->rank[rank];

    self->pidfd = pidfd_open(self->pid, 0);
    if (self->pidfd < 0 || !weft_run_listen(job, self->pidfd, WEFT_RUN_EXIT, (unsigned)rank)) {
        int saved = errno;
        kill(self->pid, SIGKILL);
        waitpid(self->pid, &self->wait_status, 0);
        errno = saved;
        return false;
    }
    job->alive++;
    return true;
}

static bool start_rank(struct weft_run_job *job, int rank, int *exec_errno_p)
{
    int out[2];
    bool is_running = open_streams(job, rank, out) && fork_rank(job, rank, out, exec_errno_p);
    int saved = errno;

    for (int i = 0; i < 2; i++) {
        if (out[i] >= 0) {
            close(out[i]);
        }
    }
    errno = saved;
    if (is_running && *exec_errno_p != 0) {
        waitpid(job->rank[rank].pid, &job->rank[rank].wait_status, 0);
        errno = *exec_errno_p;
        weft_fail_errno("cannot start %s", job->argv[0]);
        weft_run_fail(job, rank, "%s", weft_error_text());
        return false;
    }
    if (!is_running || !adopt_rank(job, rank)) {
        char what[48];
        snprintf(what, sizeof(what), "starting rank %d", rank);
        return fail_errno(job, what);
    }
    return true;
}

bool weft_run_start(struct weft_run_job *job, int *exec_errno_p)
{
    for (int i = 0; i < job->ranks; i++) {
        if (!start_rank(job, i, exec_errno_p)) {
            return false;
        }
        if (i == 0 && job->listen_fd >= 0) {
            close(job->listen_fd);
            job->listen_fd = -1;
        }
    }
    return true;
}
