/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lab's namespaces. None has a name in the file system, so there is nothing to forget: a place
 * lives while its keeper does, and a keeper dies with us in three ways of which each is enough. The
 * kernel kills it when we die (PDEATHSIG); it leaves when the leash, a pipe whose other end only we
 * hold, is let go; and weft_lab_close() ends it. A keeper is PID 1 of its place, so its end is the
 * end of every process there, whoever started it, and with the last of them go links, qdiscs and
 * rules.
 *
 * Ranks of different hosts must not take each other for neighbours: abstract sockets, host name,
 * PIDs, IPC and /dev/shm are the host's own. /sys is mounted anew, because it shows the interfaces
 * of whoever mounted it.
 */
#include "lab.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define NEW_PLACE UINT_MAX /* for weft_lab_fork(): PIDs that nobody has yet */
#define KEEPER_NICE (-10)  /* it delays packets: ranks that spin must not hold it up */

/* What a new keeper says: its place is ready, or what failed. */
struct report {
    int error;
    char what[64];
};

bool weft_lab_fail(struct weft_lab *lab, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vsnprintf(lab->reason, sizeof(lab->reason), fmt, args);
    va_end(args);
    return false;
}

const char *weft_lab_place_name(const struct weft_lab *lab, unsigned index, char text[16])
{
    if (index == lab->spec.hosts) {
        snprintf(text, 16, "switch");
    } else {
        snprintf(text, 16, "h%u", index);
    }
    return text;
}

/* setns() and unshare() move only our next children's PIDs, until home_fd sets it right. */
pid_t weft_lab_fork(struct weft_lab *lab, unsigned index)
{
    int moved =
        index == NEW_PLACE ? unshare(CLONE_NEWPID) : setns(lab->place[index].pidfd, CLONE_NEWPID);
    if (moved != 0) {
        return -1;
    }
    pid_t pid = fork();
    if (pid == 0) {
        return 0;
    }
    int saved = errno;
    if (setns(lab->home_fd, CLONE_NEWPID) != 0 && pid > 0) {
        saved = errno;
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        pid = -1;
    }
    errno = saved;
    return pid;
}

/* ---- a keeper ---- */

/* The new sysfs would hide cgroups, which say how many CPUs a rank has. */
static bool mount_sys(void)
{
    char path[32];
    int cgroup_fd = open("/sys/fs/cgroup", O_PATH | O_CLOEXEC);

    if (mount("sysfs", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) != 0) {
        return false;
    }
    if (cgroup_fd >= 0) {
        snprintf(path, sizeof(path), "/proc/self/fd/%d", cgroup_fd);
        mount(path, "/sys/fs/cgroup", NULL, MS_BIND | MS_REC, NULL); /* if not: as without limits */
        close(cgroup_fd);
    }
    return true;
}

static const char *settle(const struct weft_lab *lab, unsigned index)
{
    char name[16];

    if (unshare(CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWNS | CLONE_NEWIPC) != 0) {
        return "making namespaces";
    }
    weft_lab_place_name(lab, index, name);
    if (sethostname(name, strlen(name)) != 0) {
        return "setting the host name";
    }
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) {
        return "making mounts private";
    }
    if (!mount_sys()) {
        return "mounting /sys";
    }
    if (mount("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, NULL) != 0 && errno != ENOENT) {
        return "mounting /dev/shm";
    }
    return NULL;
}

/* Nobody's terminal and nobody's pipe hangs on a keeper. */
static bool let_go_of_streams(void)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (null < 0 || dup2(null, fd) < 0) {
            return false;
        }
    }
    return setsid() >= 0;
}

static bool has_queue(const struct weft_lab *lab, unsigned index)
{
    return index < lab->spec.hosts && (lab->spec.delay_ns > 0 || lab->spec.reorder_ppm > 0);
}

static _Noreturn void keep(struct weft_lab *lab, unsigned index, int report_fd)
{
    struct report report = {0};
    char name[16], title[16];
    int queue_fd = -1;
    const char *failed = NULL;

    close(lab->leash[1]);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGCHLD, SIG_IGN); /* orphans end up here: the kernel buries them */
    snprintf(title, sizeof(title), "weft-lab-%s", weft_lab_place_name(lab, index, name));
    prctl(PR_SET_NAME, title);
    if (!let_go_of_streams()) {
        failed = "opening /dev/null";
    } else {
        failed = settle(lab, index);
    }
    if (failed == NULL && has_queue(lab, index) && !weft_lab_queue_open(&queue_fd)) {
        failed = "opening the packet queue (NFQUEUE) for --delay";
    }
    if (failed != NULL) {
        report.error = errno;
        snprintf(report.what, sizeof(report.what), "%s", failed);
    }
    if (write(report_fd, &report, sizeof(report)) != (ssize_t)sizeof(report) || failed != NULL) {
        _exit(1);
    }
    close(report_fd);
    if (queue_fd >= 0) {
        setpriority(PRIO_PROCESS, 0, KEEPER_NICE); /* if not: delays are less exact */
        weft_lab_queue_serve(queue_fd, lab->leash[0], &lab->spec, index + 1);
    }
    struct pollfd leash = {.fd = lab->leash[0]};
    while (poll(&leash, 1, -1) < 0 && errno == EINTR) {
    }
    _exit(0);
}

/* ---- ours ---- */

static bool open_place(struct weft_lab *lab, unsigned index)
{
    struct weft_lab_place *place = &lab->place[index];
    struct report report = {0};
    char name[16];
    int ends[2];
    ssize_t got;

    place->pidfd = -1;
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return weft_lab_fail(lab, "opening a pipe: %s", strerror(errno));
    }
    place->pid = weft_lab_fork(lab, NEW_PLACE);
    if (place->pid == 0) {
        close(ends[0]);
        keep(lab, index, ends[1]);
    }
    int saved = errno;
    close(ends[1]);
    if (place->pid < 0) {
        place->pid = 0;
        close(ends[0]);
        return weft_lab_fail(lab, "making %s: %s", weft_lab_place_name(lab, index, name),
                             strerror(saved));
    }
    do {
        got = read(ends[0], &report, sizeof(report));
    } while (got < 0 && errno == EINTR);
    close(ends[0]);
    if (got != (ssize_t)sizeof(report) || report.error != 0) {
        return weft_lab_fail(lab, "making %s: %s: %s", weft_lab_place_name(lab, index, name),
                             report.error != 0 ? report.what : "its keeper",
                             report.error != 0 ? strerror(report.error) : "ended early");
    }
    place->pidfd = pidfd_open(place->pid, 0);
    return place->pidfd >= 0 || weft_lab_fail(lab, "watching a keeper: %s", strerror(errno));
}

bool weft_lab_open(struct weft_lab *lab)
{
    snprintf(lab->name, sizeof(lab->name), "weft-lab-%d", (int)getpid());
    lab->home_fd = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
    if (lab->home_fd < 0 || pipe2(lab->leash, O_CLOEXEC) != 0) {
        return weft_lab_fail(lab, "opening the keepers' leash: %s", strerror(errno));
    }
    if (getcwd(lab->folder, sizeof(lab->folder)) == NULL) {
        return weft_lab_fail(lab, "asking for the current folder: %s", strerror(errno));
    }
    for (unsigned i = 0; i <= lab->spec.hosts; i++) {
        weft_cli_progress("making host %u of %u", i + 1, lab->spec.hosts);
        if (!open_place(lab, i)) {
            return false;
        }
    }
    return true;
}

/* Waits: a keeper is gone only when everything in its place is. */
void weft_lab_close(struct weft_lab *lab)
{
    int fds[] = {lab->home_fd, lab->leash[0], lab->leash[1]};

    for (unsigned i = 0; i <= lab->spec.hosts; i++) {
        if (lab->place[i].pid > 0) {
            kill(lab->place[i].pid, SIGKILL);
        }
    }
    for (unsigned i = 0; i <= lab->spec.hosts; i++) {
        struct weft_lab_place *place = &lab->place[i];
        while (place->pid > 0 && waitpid(place->pid, NULL, 0) < 0 && errno == EINTR) {
        }
        if (place->pid > 0 && place->pidfd >= 0) {
            close(place->pidfd);
        }
    }
    for (size_t i = 0; i < WEFT_COUNT_OF(fds); i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
}

bool weft_lab_enter(const struct weft_lab *lab, unsigned index, int flags)
{
    if (setns(lab->place[index].pidfd, flags) != 0) {
        return false;
    }
    /* other mounts begin at their root */
    return (flags & CLONE_NEWNS) == 0 || chdir(lab->folder) == 0;
}

/* /proc by its own PIDs is the rank's alone: whoever enters a host from outside has PIDs from
 * outside, and finds the machine's /proc there. */
bool weft_lab_enter_as_rank(const struct weft_lab *lab, unsigned index)
{
    return weft_lab_enter(lab, index, CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWNS) &&
           unshare(CLONE_NEWNS) == 0 &&
           mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) == 0;
}
