/* SPDX-License-Identifier: Apache-2.0 */
/* What this host says of other ranks' processes: /proc of their numbers, and the sockets where they listen. */
#include "control/heal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define STAT_LEN 512
#define FLAGS_AT 6 /* words behind the state */
#define THREADS_AT 17
#define STARTED_AT 19
/* It may have been stopped, or without descriptors, just when it was to listen. */
#define REFUSING_MS 450

/* "S 1 …": state, and what else there is of a process behind its name. "": there is none. "?": nobody knows. */
static void process_facts(pid_t pid, char facts[STAT_LEN])
{
    char path[32];
    char stat[STAT_LEN];
    const char *state;
    ssize_t len = -1;
    int fd;
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        len = read(fd, stat, sizeof(stat) - 1);
    }
    snprintf(facts, STAT_LEN, "%s", len < 0 && (errno == ENOENT || errno == ESRCH) ? "" : "?");
    if (fd >= 0) {
        close(fd);
    }
    stat[len > 0 ? len : 0] = '\0';
    state = strrchr(stat, ')'); /* pid (name) state …; a name may hold anything */
    if (state != NULL && state[1] == ' ') {
        snprintf(facts, STAT_LEN, "%s", state + 2);
    }
}

/* 0: not known */
static uint64_t fact(const char *facts, int at)
{
    for (int i = 0; i < at && facts != NULL; i++) {
        facts = strchr(facts, ' ');
        facts += facts != NULL;
    }
    return facts != NULL ? strtoull(facts, NULL, 10) : 0;
}

uint64_t weft_control_ticks_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * (uint64_t)sysconf(_SC_CLK_TCK) +
           (uint64_t)now.tv_nsec * (uint64_t)sysconf(_SC_CLK_TCK) / 1000000000u;
}

bool weft_control_process_has_ended(pid_t pid, uint64_t lived_ticks)
{
    char facts[STAT_LEN];
    bool is_over;
    process_facts(pid, facts);
    is_over = facts[0] == 'Z' || facts[0] == 'X';
    /* its first thread may have ended alone */
    return facts[0] == '\0' || (is_over && fact(facts, THREADS_AT) <= 1) ||
           fact(facts, STARTED_AT) > lived_ticks + 1; /* another one has its number now */
}

bool weft_control_process_is_ending(pid_t pid, uint64_t lived_ticks)
{
    enum { EXITING = 4 }; /* the kernel's PF_EXITING: set before anything is closed */
    char facts[STAT_LEN];
    process_facts(pid, facts);
    /* the first thread may have ended alone */
    return (facts[0] != 'Z' && (fact(facts, FLAGS_AT) & EXITING) != 0) ||
           weft_control_process_has_ended(pid, lived_ticks);
}

bool weft_control_process_is_stopped(pid_t pid)
{
    char facts[STAT_LEN];
    process_facts(pid, facts);
    return facts[0] == 'T' || facts[0] == 't';
}

/* ---- of ranks ---- */

/* Does the number of its process say anything here? */
static bool is_pid_known(const struct weft_control *control, uint32_t rank)
{
    const uint32_t *pid = control->table.pid;
    return ((pid[rank] | pid[control->self.rank]) & WEFT_WIRE_PID_FOREIGN) == 0;
}

/* A rank that has made no call yet does not listen, and lives. */
bool weft_heal_has_ended(const struct weft_control *control, uint32_t rank)
{
    return is_pid_known(control, rank) &&
           weft_control_process_has_ended((pid_t)control->table.pid[rank],
                                          control->heal->lived_ticks);
}

bool weft_heal_is_stopped(const struct weft_control *control, uint32_t rank)
{
    return is_pid_known(control, rank) && weft_heal_is_near(control, rank) &&
           weft_control_process_is_stopped((pid_t)control->table.pid[rank]);
}

/* It took part in a call that needs everybody: a moment after the start it listened, until it closed. */
static bool has_called(const struct weft_control *control, uint32_t rank)
{
    for (struct weft_list *node = control->channels.next; node != &control->channels;
         node = node->next) {
        const struct weft_control_channel *channel =
            WEFT_CONTAINER_OF(node, struct weft_control_channel, node);
        uint32_t its_rank;
        if (channel->have_all_called && weft_control_channel_is_member(channel, rank, &its_rank)) {
            return true;
        }
    }
    return false;
}

/* Though its process goes on, as far as its number says anything. */
static bool is_refusing(const struct weft_control *control, uint32_t rank)
{
    char name[WEFT_WIRE_NAME_LEN];
    struct weft_net_dial dial;
    weft_status_t status;
    if (!weft_heal_is_near(control, rank) || weft_heal_is_stopped(control, rank) ||
        !has_called(control, rank)) {
        return false;
    }
    weft_heal_local_name(control, rank, name);
    status = weft_net_connect_local(name, weft_clock_ns(), &dial);
    if (status == WEFT_OK) {
        weft_fd_close(dial.fd);
    }
    return status == WEFT_ERR_NETWORK &&
           !(is_pid_known(control, rank) &&
             weft_control_process_is_ending((pid_t)control->table.pid[rank],
                                            control->heal->lived_ticks));
}

bool weft_heal_has_left(struct weft_control *control, uint32_t rank)
{
    struct weft_control_heal *heal = control->heal;
    uint64_t *since_ns;
    if (heal->refusing_ns == NULL) {
        heal->refusing_ns = calloc(control->self.ranks, sizeof(*heal->refusing_ns));
    }
    if (heal->refusing_ns == NULL) {
        return false;
    }
    since_ns = &heal->refusing_ns[rank];
    if (!is_refusing(control, rank)) {
        *since_ns = 0;
    } else if (*since_ns == 0) {
        *since_ns = weft_clock_ns();
    }
    return *since_ns != 0 && weft_clock_ns() >= *since_ns + REFUSING_MS * WEFT_NS_PER_MS;
}

bool weft_heal_is_leaving(const struct weft_control *control, uint32_t rank)
{
    const uint64_t *since_ns = control->heal->refusing_ns;
    return since_ns != NULL && since_ns[rank] != 0;
}

bool weft_heal_has_closed(struct weft_control *control, uint32_t rank)
{
    return is_pid_known(control, rank) && weft_heal_has_left(control, rank);
}
