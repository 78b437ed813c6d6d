/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signs of life. Each neighbour hears from us at least once per heartbeat, whatever the application
 * does.
 *
 *   gone       the end of the connection, or of a local process: its pidfd, because a forked copy of
 *              the process may hold the socket open
 *   path dead  our bytes unacknowledged by the peer's kernel for WEFT_PATH_TIMEOUT: ERR_NETWORK
 *   silent     its kernel answers, its engine does not: one warning, never a verdict; deadlines
 *              decide. A local leaf that has not called anything yet has no thread to beat with:
 *              the kernel tells whether it is stopped.
 */
#include "control/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LATE_MS 50    /* a beat of ours that is later has slept */
#define OVERDUE_MS 75 /* LATE_MS, and a little */
#define SLEPT_MS 1000
#define WAKE_MS 30  /* so long it takes to read what was said meanwhile */
#define TOLD_MS 150 /* who stands still on the way has been gone around by then */
#define VERDICT_MS_MIN 600
#define VERDICT_MS_MAX 2000 /* however rarely hearts beat */

struct weft_control_watch {
    struct weft_engine_source source; /* pidfd, -1: none */
    struct weft_control *control;
    uint32_t rank;
    bool is_detoured; /* its connection is dead, but messages reach it */
    bool is_silent;
    uint64_t stopped_ns; /* when it was first seen stopped */
};

void weft_control_neighbour_ended(struct weft_control *control, uint32_t rank)
{
    struct weft_net_conn *conn;
    int unread = 1;
    /* what it said last, perhaps its good-bye */
    while ((conn = weft_control_conn_to(control, rank)) != NULL && unread > 0) {
        conn->source.ready(&conn->source, EPOLLIN);
        unread = 0;
        if (weft_control_conn_to(control, rank) == conn) {
            (void)ioctl(conn->source.fd, FIONREAD, &unread);
        }
    }
    if (conn != NULL) {
        weft_control_neighbour_lost(control, conn, WEFT_ERR_PEER, "closed (its process has ended)");
    }
}

static void process_ended(struct weft_engine_source *source, uint32_t events)
{
    struct weft_control_watch *watch = WEFT_CONTAINER_OF(source, struct weft_control_watch, source);
    int fd = source->fd;
    (void)events;
    weft_engine_remove(watch->control->engine, source);
    weft_fd_close(fd);
    weft_control_neighbour_ended(watch->control, watch->rank);
}

/* Not needed for the first moments of a job, so they wait for the first beat. */
static void open_pidfd(struct weft_control_watch *watch, const struct weft_net_conn *conn)
{
    int fd;
    /* Of an inherited listener the kernel names who made it, not who serves it. */
    bool is_known = (uint32_t)conn->peer_pid == watch->control->table.pid[watch->rank];
    if (watch->source.ready != NULL || !conn->is_local || !is_known || conn->peer_pid == getpid()) {
        return;
    }
    watch->source.ready = process_ended; /* also: tried once */
    fd = (int)syscall(SYS_pidfd_open, conn->peer_pid, 0);
    if (fd < 0) {
        if (errno == ESRCH) {
            weft_control_neighbour_ended(watch->control, watch->rank);
        }
        return; /* otherwise the end of the connection will have to do */
    }
    weft_fd_own(fd);
    if (weft_engine_add(watch->control->engine, &watch->source, fd, EPOLLIN) != WEFT_OK) {
        weft_fd_close(fd);
    }
}

/* Since when it has been silent; 0: it is not. */
static uint64_t silent_since(struct weft_control_watch *watch, const struct weft_net_conn *conn,
                             uint64_t now_ns)
{
    if (conn->is_beating || !conn->is_local) { /* between hosts all beat from the start */
        return conn->heard_ns;
    }
    if (!weft_control_process_is_stopped(conn->peer_pid)) {
        watch->stopped_ns = 0;
    } else if (watch->stopped_ns == 0) {
        watch->stopped_ns = now_ns;
    }
    return watch->stopped_ns;
}

static void check_silence(struct weft_control *control, struct weft_control_watch *watch,
                          struct weft_net_conn *conn, uint64_t now_ns)
{
    uint64_t beat_ns = (uint64_t)control->params->number[WEFT_PARAM_HEARTBEAT] * WEFT_NS_PER_MS;
    uint64_t asked_ns = (uint64_t)control->params->number[WEFT_PARAM_SILENT] * WEFT_NS_PER_MS;
    uint64_t limit_ns = asked_ns > 3 * beat_ns ? asked_ns : 3 * beat_ns; /* beats may be late */
    uint64_t since_ns = silent_since(watch, conn, now_ns);
    bool is_silent = since_ns != 0 && now_ns > since_ns && now_ns - since_ns > limit_ns;
    char name[128];
    if (is_silent == watch->is_silent) {
        return;
    }
    watch->is_silent = is_silent;
    watch->is_detoured = false;
    weft_control_name_rank(control, watch->rank, name, sizeof(name));
    if (is_silent) {
        weft_count(weft_engine_counters(control->engine), WEFT_COUNTER_SILENCES, 1);
        weft_log(control, WARN, "%s has been silent for %.1f s; %s", name,
                 (double)(now_ns - since_ns) / 1e9,
                 weft_net_conn_is_path_dead(conn, limit_ns / WEFT_NS_PER_MS / 2)
                     ? "its host does not answer either"
                     : "its host answers, so it is stopped or starved");
    } else {
        weft_log(control, INFO, "%s is back", name);
    }
}

/* One of several NICs died, and it was ours: the kernel goes on trying, messages go by the others. */
static bool is_reached_otherwise(struct weft_control *control, struct weft_control_watch *watch,
                                 struct weft_net_conn *conn)
{
    uint64_t path_ms = (uint64_t)control->params->number[WEFT_PARAM_PATH_TIMEOUT];
    struct weft_control_observer *observer = control->observer;
    char name[128];
    const struct weft_control_mend *mend = conn->edge;
    if (mend != NULL && mend->returning != NULL) {
        return true; /* it is on its way back */
    }
    bool is_alive = false;
    if (observer == NULL || !observer->reaches(observer, watch->rank, &is_alive)) {
        return false;
    }
    if (!watch->is_detoured && weft_net_conn_is_path_dead(conn, path_ms)) {
        watch->is_detoured = true;
        weft_control_name_rank(control, watch->rank, name, sizeof(name));
        weft_log(control, WARN,
                 "the path of the control connection to %s is dead, %s: waiting for the path to "
                 "come back",
                 name,
                 is_alive ? "messages still reach it" : "and so are those of messages at present");
    }
    return true;
}

static void lose_path(struct weft_control *control, struct weft_net_conn *conn)
{
    char nic[WEFT_NET_NIC_TEXT_LEN], why[WEFT_NET_NIC_TEXT_LEN + 80];
    weft_net_conn_nic(conn, nic);
    snprintf(why, sizeof(why), "cannot be reached from %s: its host acknowledges nothing any more",
             nic);
    weft_control_neighbour_lost(control, conn, WEFT_ERR_NETWORK, why);
}

static void beat_neighbour(struct weft_control *control, struct weft_control_watch *watch,
                           uint64_t now_ns)
{
    uint64_t period_ns = (uint64_t)control->params->number[WEFT_PARAM_HEARTBEAT] * WEFT_NS_PER_MS;
    uint64_t path_ms = (uint64_t)control->params->number[WEFT_PARAM_PATH_TIMEOUT];
    struct weft_net_conn *conn = watch != NULL ? weft_control_conn_to(control, watch->rank) : NULL;
    bool is_reached, is_due;
    if (conn == NULL) {
        return;
    }
    open_pidfd(watch, conn);
    conn = weft_control_conn_to(control, watch->rank);
    if (conn == NULL) {
        return;
    }
    if (now_ns - conn->heard_ns > period_ns && now_ns > conn->heard_ns) {
        /* It may be we who slept (a stopped process): what it said in the meantime is still unread. */
        conn->source.ready(&conn->source, EPOLLIN);
        conn = weft_control_conn_to(control, watch->rank);
        if (conn == NULL) {
            return;
        }
    }
    if (now_ns - conn->heard_ns <= period_ns) {
        weft_net_conn_note_resent(conn);
    }
    check_silence(control, watch, conn, now_ns);
    is_reached = watch->is_silent && is_reached_otherwise(control, watch, conn);
    if (watch->is_silent && !is_reached && weft_net_conn_is_path_dead(conn, path_ms)) {
        lose_path(control, conn);
        return;
    }
    /* A stopped peer's buffer fills: beats are not worth queueing. */
    is_due = now_ns - conn->spoken_ns >= period_ns / 2 || weft_control_mend_has_news(conn);
    if (is_due && weft_net_conn_queued(conn) == 0) {
        weft_control_mend_beat(conn);
    }
}

static uint64_t period_of(const struct weft_control *control)
{
    return (uint64_t)control->params->number[WEFT_PARAM_HEARTBEAT] * WEFT_NS_PER_MS;
}

static bool is_late(const struct weft_control *control, uint64_t now_ns)
{
    return now_ns > control->beat_ns + period_of(control) + LATE_MS * WEFT_NS_PER_MS;
}

uint64_t weft_control_heart_overdue_ns(const struct weft_control *control)
{
    /* a beat may be left out, because other words had gone just before */
    return period_of(control) * 3 / 2 + OVERDUE_MS * WEFT_NS_PER_MS;
}

uint64_t weft_control_verdict_ms(const struct weft_control *control)
{
    uint64_t ms = weft_control_heart_overdue_ns(control) / WEFT_NS_PER_MS + TOLD_MS;
    return ms < VERDICT_MS_MIN ? VERDICT_MS_MIN : ms > VERDICT_MS_MAX ? VERDICT_MS_MAX : ms;
}

static void note_sleep(struct weft_control *control, uint64_t now_ns)
{
    if (is_late(control, now_ns)) {
        uint64_t quiet_ns = now_ns + WAKE_MS * WEFT_NS_PER_MS;
        control->woke_ns = now_ns;
        control->quiet_ns = quiet_ns > control->quiet_ns ? quiet_ns : control->quiet_ns;
    }
    control->beat_ns = now_ns;
}

bool weft_control_heart_is_waking(struct weft_control *control)
{
    uint64_t now_ns = weft_clock_ns();
    if (is_late(control, now_ns)) {
        note_sleep(control, now_ns); /* events came before the timer */
    }
    return now_ns < control->quiet_ns;
}

bool weft_control_heart_has_slept(struct weft_control *control, uint64_t heard_ns)
{
    bool is_waking = weft_control_heart_is_waking(control);
    uint64_t woke_ns = control->woke_ns;
    return woke_ns != 0 && heard_ns < woke_ns + WAKE_MS * WEFT_NS_PER_MS &&
           (is_waking || weft_clock_ns() < woke_ns + SLEPT_MS * WEFT_NS_PER_MS);
}

static void heart_fired(struct weft_engine_timer *timer, uint64_t now_ns)
{
    struct weft_control *control = WEFT_CONTAINER_OF(timer, struct weft_control, heart);
    note_sleep(control, now_ns);
    for (uint32_t i = 0; i < control->child_count; i++) {
        beat_neighbour(control, control->children[i].watch, now_ns);
    }
    beat_neighbour(control, control->parent_watch, now_ns);
    weft_control_still_look(control);
    weft_control_aside_beat(control, now_ns);
    weft_control_ways_note_nics(control);
    weft_control_ways_beat(control);
    weft_control_word_check(control);
    weft_engine_timer_set(
        control->engine, timer,
        weft_clock_after_ms((uint64_t)control->params->number[WEFT_PARAM_HEARTBEAT]));
}

struct weft_control_watch *weft_control_watch_open(struct weft_control *control, uint32_t rank)
{
    struct weft_control_watch *watch = calloc(1, sizeof(*watch));
    const struct weft_net_conn *conn = weft_control_conn_to(control, rank);
    if (watch == NULL) {
        return NULL;
    }
    watch->control = control;
    watch->source.fd = -1;
    watch->rank = rank;
    if (conn != NULL) {
        weft_net_conn_persist(conn);
    }
    return watch;
}

bool weft_control_watch_is_silent(const struct weft_control_watch *watch)
{
    return watch != NULL && watch->is_silent;
}

bool weft_control_neighbour_is_silent(const struct weft_control *control, uint32_t rank)
{
    const struct weft_control_watch *watch =
        rank == control->parent_rank ? control->parent_watch : NULL;
    for (uint32_t i = 0; i < control->child_count; i++) {
        watch = control->children[i].rank == rank ? control->children[i].watch : watch;
    }
    return weft_control_watch_is_silent(watch);
}

void weft_control_watch_close(struct weft_control_watch *watch)
{
    if (watch != NULL) {
        int fd = watch->source.fd;
        weft_engine_remove(watch->control->engine, &watch->source);
        weft_fd_close(fd);
        free(watch);
    }
}

weft_status_t weft_control_heart_open(struct weft_control *control)
{
    bool is_full;
    control->parent_watch = weft_control_watch_open(control, control->parent_rank);
    is_full = control->parent_watch != NULL;
    for (uint32_t i = 0; i < control->child_count; i++) {
        struct weft_control_child *child = &control->children[i];
        child->watch = weft_control_watch_open(control, child->rank);
        is_full = is_full && child->watch != NULL;
    }
    if (!is_full) {
        return weft_fail(WEFT_ERR_MEMORY, "no memory for heartbeats");
    }
    weft_engine_timer_open(&control->heart, heart_fired);
    control->beat_ns = weft_clock_ns();
    weft_engine_timer_set(
        control->engine, &control->heart,
        weft_clock_after_ms((uint64_t)control->params->number[WEFT_PARAM_HEARTBEAT]));
    return WEFT_OK;
}

void weft_control_heart_close(struct weft_control *control)
{
    weft_engine_timer_cancel(control->engine, &control->heart);
    weft_control_watch_close(control->parent_watch);
    control->parent_watch = NULL;
    for (uint32_t i = 0; i < control->child_count; i++) {
        weft_control_watch_close(control->children[i].watch);
        control->children[i].watch = NULL;
    }
}
