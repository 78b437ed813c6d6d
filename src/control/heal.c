/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tree without those who are gone. Who has lost its parent goes to the next one above it that is left, as
 * weft_control_tree_up() counts; who has nobody above coordinates. All are told what happened so far, and the
 * verdict is the coordinator's: reports are kept until it comes, and said again to a new parent.
 *
 *   orphan                                  the next one above
 *     | == HEAL ==========================> |    on its host by a local socket, where every rank listens soon after
 *     | -- HEARTBEAT, REPORT …, BELOW ----> |    its start; to another host by the port of its leader
 *     | <------------- CLOSED, VERDICT … -- |
 *
 * Everybody heard of that port in the start; whoever leads a host after its leader takes it over.
 *
 * Until the first frame a connection is nothing: its maker may have given up before it was accepted.
 *
 * Whoever is asked may have died too, or is stopped, or is slow: it is asked for a while, then it counts as out, and
 * the next one is asked. On this host its process and a socket where nobody listens say that a rank is gone; a rank of another host
 * is, when it was not found twice. Nobody is ever above one that precedes it, so whatever ranks believe of each other,
 * there is no circle. A coordinator that counted somebody as out who is not known to be gone goes on looking for it, and
 * hangs itself below it when it answers. Those below who do not come are called: heal_below.c.
 */
#include "control/heal.h"

#include <errno.h>
#include <stdlib.h>

#define SERVE_MS 20     /* after the start, where every microsecond counts */
#define PATIENCE_MS 120 /* then one on this host that does not listen counts as out */
#define FAR_MS 500 /* the same on another host: less than reports are kept for (heal_reports.c) */
#define WAY_MS 100 /* of these at most for one way, while there are others */
#define HEIR_MS 20 /* for one way while its host refuses */
#define REFUSED_MS 200 /* where nobody listens: its next leader would at once */
#define ADOPTER_MS 500
#define VAIN_MAX 8
#define WAKINGS_MAX 4
#define RETURN_MS 400 /* one who was looked for is found */
#define CALM_MS 100   /* a parent that closes in good order: mostly everybody does then */

static void timer_fired(struct weft_engine_timer *timer, uint64_t now_ns);

struct weft_control_heal *weft_heal_of(struct weft_control *control)
{
    struct weft_control_heal *heal = control->heal;
    if (heal == NULL && (heal = calloc(1, sizeof(*heal))) != NULL) {
        heal->control = control;
        heal->target = WEFT_WIRE_NO_RANK;
        weft_list_open(&heal->reports);
        weft_list_open(&heal->visitors);
        weft_list_open(&heal->adoptions);
        weft_engine_timer_open(&heal->timer, timer_fired);
        control->heal = heal;
    }
    return heal;
}

void weft_heal_schedule(struct weft_control_heal *heal)
{
    const uint64_t times[] = {heal->serve_ns, heal->port_ns,  heal->seek_ns, heal->again_ns,
                              heal->adopt_ns, heal->check_ns, heal->hear_ns};
    uint64_t due_ns = 0;
    for (size_t i = 0; i < WEFT_COUNT_OF(times); i++) {
        if (times[i] != 0 && (due_ns == 0 || times[i] < due_ns)) {
            due_ns = times[i];
        }
    }
    if (due_ns != 0) {
        weft_engine_timer_set(heal->control->engine, &heal->timer, due_ns);
    }
}

static bool is_over(const struct weft_control *control)
{
    return control->heal == NULL || control->is_closing || control->start != NULL;
}

void weft_control_heal_open(struct weft_control *control)
{
    struct weft_control_heal *heal = control->self.ranks > 1 ? weft_heal_of(control) : NULL;
    if (heal != NULL) {
        heal->serve_ns = weft_clock_after_ms(SERVE_MS);
        heal->lived_ticks = weft_control_ticks_now();
        weft_heal_schedule(heal);
    }
}

/* ---- going up ---- */

static void stop_seeking(struct weft_control_heal *heal)
{
    heal->is_seeking = false;
    heal->seek_ns = 0;
    heal->target = WEFT_WIRE_NO_RANK;
    weft_net_conn_close(heal->attempt);
    heal->attempt = NULL;
}

static void take_parent(struct weft_control *control, struct weft_net_conn *conn)
{
    stop_seeking(control->heal);
    weft_heal_hear_close(control->heal);
    control->heal->again_ns = 0;
    control->heal->rounds = 0;
    control->parent = conn;
    control->parent_rank = conn->peer_rank;
    control->is_top = false;
    control->is_out[conn->peer_rank] = 0;
    weft_control_word_new_parent(control);
    conn->tag = ROLE_PARENT;
    weft_control_watch_close(control->parent_watch);
    control->parent_watch = weft_control_watch_open(control, conn->peer_rank);
    weft_control_ways_renew(control);
    weft_control_shrink_moved(control);
    weft_control_mend_beat(conn); /* until we have spoken it is nothing */
    weft_control_history_tell(control, conn, WEFT_WIRE_REPORT);
    weft_control_tell_closed(control,
                             conn); /* after it: who closed may have done so for a verdict */
    weft_heal_report_again(control->heal, false);
    weft_control_tell_below(control, conn); /* after all these: a new coordinator waits for it */
    weft_control_shrink_tell(control, conn);
    weft_log(control, INFO, "this rank is below rank %u now", conn->peer_rank);
}

static bool is_stray(const struct weft_control *control, uint32_t rank)
{
    return control->is_out[rank] && !control->is_gone[rank] &&
           weft_control_tree_precedes(&control->tree, rank, control->self.rank);
}

/* Those above that were not found: of other hosts the second time, too, and so they are gone. */
static void settle_strays(struct weft_control_heal *heal)
{
    struct weft_control *control = heal->control;
    heal->again_ns = 0;
    for (uint32_t rank = 0; rank < control->self.ranks; rank++) {
        if (is_stray(control, rank) && !weft_heal_is_near(control, rank) && heal->rounds > 0) {
            weft_heal_absent(control, rank);
        }
        if (is_stray(control, rank)) {
            heal->again_ns = weft_clock_after_ms(ALONE_MS);
        }
    }
}

static void become_top(struct weft_control_heal *heal)
{
    struct weft_control *control = heal->control;
    stop_seeking(heal);
    if (!control->is_top) {
        control->is_top = true;
        if (weft_control_heart_has_slept(control, control->heal->parent_heard_ns)) {
            /* While we slept others may have lost their parent, too, and one of them coordinates: it looks for us. */
            control->quiet_ns = weft_clock_after_ms(ALONE_MS + RETURN_MS);
        }
        control->parent_rank = WEFT_WIRE_NO_RANK;
        weft_control_watch_close(control->parent_watch);
        control->parent_watch = weft_control_watch_open(control, WEFT_WIRE_NO_RANK);
        weft_log(control, INFO, "this rank coordinates now");
        weft_control_shrink_moved(control);
        weft_heal_hear(heal);
    }
    weft_heal_report_again(heal, true);
    weft_control_news_flush(control); /* our former parent may not have told those below us */
    settle_strays(heal);
    weft_control_shrink_check(control);
}

static bool is_open(const struct weft_control *control, uint32_t rank)
{
    return weft_heal_is_near(control, rank) || weft_heal_has_port(control, rank);
}

/* Who is there on this host and does not answer must have slept so long that it finds out: see become_top(). Who does not
 * listen and runs has made no call yet. */
static uint64_t patience_ms(const struct weft_control_heal *heal)
{
    struct weft_control *control = heal->control;
    if (!weft_heal_is_near(control, heal->target)) {
        return !weft_heal_has_port(control, heal->target)            ? CALLED_MS
               : heal->is_target_refusing && !heal->is_target_silent ? REFUSED_MS
                                                                     : FAR_MS;
    }
    return heal->attempt != NULL || weft_heal_is_stopped(control, heal->target)
               ? weft_control_heart_overdue_ns(control) / WEFT_NS_PER_MS
               : PATIENCE_MS;
}

static bool is_patience_over(const struct weft_control_heal *heal, uint64_t now_ns)
{
    return now_ns - heal->target_ns >= PATIENCE_MS * WEFT_NS_PER_MS &&
           now_ns - heal->target_ns >= patience_ms(heal) * WEFT_NS_PER_MS;
}

/* Of another host whose leader cannot be found nobody can. */
static void leave_out_host(struct weft_control *control, uint32_t leader)
{
    for (uint32_t rank = 0; rank < control->self.ranks; rank++) {
        if (control->table.group_of[rank] == control->table.group_of[leader]) {
            control->is_out[rank] = 1;
        }
    }
}

/* Whoever ends is seen to listen, or to run, for a moment yet: what counts is whether its process is over now. Of one that
 * is not, nobody may see the end when it comes. */
static void give_up_target(struct weft_control_heal *heal)
{
    struct weft_control *control = heal->control;
    uint32_t target = heal->target;
    bool is_here = weft_heal_is_near(control, target);
    control->is_out[target] = 1;
    heal->orphan_ns = weft_clock_ns(); /* there is hope again, with the next one */
    if (!is_here) {
        leave_out_host(control, target);
        heal->way++; /* should it be asked again: another one first */
    } else if (!heal->is_target_there || weft_heal_has_ended(control, target)) {
        weft_heal_absent(control, target);
    } else {
        weft_heal_below_strayed(heal);
    }
}

/* Each way and the address of the table are tried once in FAR_MS, however many there are, if they are silent. */
static uint64_t way_ms(uint32_t ways)
{
    uint64_t share_ms = FAR_MS / (ways + 1) - RETRY_MS;
    return share_ms < WAY_MS ? share_ms : WAY_MS;
}

/* Has it had its time, and nobody has spoken? What has come meanwhile is read first. Who listens there may be somebody else, who
 * waits for us to speak. */
static bool is_way_silent(struct weft_control_heal *heal, uint32_t ways, uint64_t now_ns)
{
    struct weft_net_conn *attempt = heal->attempt;
    if (attempt == NULL || ways == 0 || now_ns < heal->way_ns + way_ms(ways) * WEFT_NS_PER_MS ||
        (now_ns < heal->way_ns + WAY_MS * WEFT_NS_PER_MS && weft_net_conn_is_answered(attempt))) {
        return false;
    }
    attempt->source.ready(&attempt->source, EPOLLIN);
    return heal->attempt == attempt && !weft_net_conn_has_spoken(attempt);
}

/* A way on which nobody speaks, or that cannot be taken, is left for the next one; where a host refuses, its next leader is
 * about to listen. */
static void dial_target(struct weft_control_heal *heal, uint64_t now_ns)
{
    struct weft_control *control = heal->control;
    uint32_t ways = weft_heal_is_near(control, heal->target)
                        ? 0
                        : weft_control_ways_count(control, heal->target);
    bool is_refused;
    if (is_way_silent(heal, ways, now_ns)) {
        weft_net_conn_close(heal->attempt);
        heal->attempt = NULL;
        heal->is_target_silent = true;
        heal->is_target_refusing = false;
    }
    if (!heal->is_seeking || heal->attempt != NULL || !is_open(control, heal->target)) {
        return;
    }
    if (heal->way_ns == 0) {
        heal->way = heal->way <= ways ? heal->way : 0; /* another host's had more */
        heal->way_ns = now_ns;
    } else if (!heal->is_target_refusing || now_ns >= heal->way_ns + HEIR_MS * WEFT_NS_PER_MS) {
        heal->way = (heal->way + 1) % (ways + 1);
        heal->way_ns = now_ns;
    }
    (void)weft_heal_dial(control, heal->target, WEFT_WIRE_HEAL, &heal->attempt, &is_refused);
    heal->is_target_there |= !is_refused;
    if (is_refused) {
        give_up_target(heal); /* its process has ended */
    }
}

/* Time that whoever is asked did not have: somebody else spoke to us, or we stood still, and it may have answered long ago. */
static void begin_anew(struct weft_control_heal *heal, uint64_t now_ns)
{
    heal->orphan_ns = heal->target_ns = now_ns;
    heal->way_ns = heal->way_ns != 0 ? now_ns : 0;
}

static void seek(struct weft_control_heal *heal, uint64_t now_ns)
{
    struct weft_control *control = heal->control;
    uint32_t target = weft_control_tree_up(&control->tree, control->is_out, control->self.rank);
    heal->seek_ns = now_ns + RETRY_MS * WEFT_NS_PER_MS;
    if (heal->adopter != NULL && now_ns - heal->target_ns < ADOPTER_MS * WEFT_NS_PER_MS) {
        return; /* it has called us, and speaks in a moment */
    }
    if (heal->adopter != NULL) { /* it does not: others may call, and we go on */
        weft_net_conn_close(heal->adopter);
        heal->adopter = NULL;
        begin_anew(heal, now_ns);
    }
    if (heal->port_ns == 0 || now_ns >= heal->port_ns) {
        weft_heal_take_over_port(heal); /* who led this host may just have been found gone */
    }
    if (target == WEFT_WIRE_NO_RANK) {
        become_top(heal);
        return;
    }
    if (target != heal->target) {
        weft_net_conn_close(heal->attempt);
        heal->attempt = NULL;
        heal->target = target;
        heal->target_ns = now_ns;
        heal->way_ns = 0;
        heal->is_target_there = heal->is_target_refusing = heal->is_target_silent = false;
    }
    if (is_patience_over(heal, now_ns)) {
        give_up_target(heal);
        return;
    }
    dial_target(heal, now_ns);
}

/* Those who may only have been away are asked once more. */
static void look_again(struct weft_control_heal *heal, uint64_t now_ns)
{
    struct weft_control *control = heal->control;
    for (uint32_t rank = 0; rank < control->self.ranks; rank++) {
        control->is_out[rank] = control->is_gone[rank] != 0;
    }
    heal->again_ns = 0;
    heal->rounds++;
    heal->is_seeking = true;
    heal->orphan_ns = heal->seek_ns = now_ns;
}

/* Once for each time that it stood still, and not for ever where it always does. */
static bool has_just_woken(struct weft_control_heal *heal)
{
    const struct weft_control *control = heal->control;
    (void)weft_control_heart_is_waking(heal->control); /* notes it */
    if (control->woke_ns == heal->woke_ns || heal->wakings >= WAKINGS_MAX) {
        return false;
    }
    heal->woke_ns = control->woke_ns;
    heal->wakings++;
    return true;
}

/* ---- events ---- */

static void timer_fired(struct weft_engine_timer *timer, uint64_t now_ns)
{
    struct weft_control_heal *heal = WEFT_CONTAINER_OF(timer, struct weft_control_heal, timer);
    if (heal->control->is_closing) {
        return;
    }
    if (heal->serve_ns != 0 && now_ns >= heal->serve_ns) {
        weft_heal_serve_local(heal);
    }
    if (heal->port_ns != 0 && now_ns >= heal->port_ns) {
        weft_heal_take_over_port(heal);
    }
    weft_heal_below(heal, now_ns);
    if (heal->hear_ns != 0 && now_ns >= heal->hear_ns) {
        weft_heal_hear_due(heal, now_ns);
    }
    if (heal->again_ns != 0 && now_ns >= heal->again_ns) {
        look_again(heal, now_ns);
    }
    if (heal->is_seeking && has_just_woken(heal)) {
        begin_anew(heal, now_ns);
    }
    if (heal->is_seeking && !weft_control_heal_is_hopeful(heal->control) &&
        now_ns >= heal->orphan_ns) {
        weft_heal_report_again(heal, true);
    }
    if (heal->seek_ns != 0 && now_ns >= heal->seek_ns) {
        seek(heal, now_ns);
    }
    weft_control_word_check(heal->control);
    weft_heal_schedule(heal);
}

void weft_control_heal_changed(struct weft_control *control, bool is_calm)
{
    if (!is_over(control)) {
        if (control->via == NULL) {
            weft_control_via_open(control);
        }
        weft_heal_below_changed(control->heal, weft_clock_after_ms(is_calm ? CALM_MS : 0));
        weft_heal_take_over_port(control->heal);
        weft_heal_schedule(control->heal);
    }
}

void weft_control_heal_orphaned(struct weft_control *control, bool is_cut)
{
    struct weft_control_heal *heal = control->heal;
    if (is_over(control)) {
        return;
    }
    if (control->via == NULL) {
        weft_control_via_open(control);
    }
    if (is_cut && !weft_heal_is_near(control, control->parent_rank)) {
        leave_out_host(control, control->parent_rank);
    }
    weft_heal_serve_local(heal);
    weft_heal_take_over_port(heal);
    heal->is_seeking = true;
    heal->woke_ns = control->woke_ns;
    heal->wakings = 0;
    heal->orphan_ns = heal->seek_ns =
        weft_clock_after_ms(control->is_gone[control->parent_rank] ? CALM_MS : 0);
    weft_heal_schedule(heal);
}

/* Why it cannot be; NULL: it can. */
static const char *objection(const struct weft_control *control, const struct weft_net_conn *conn)
{
    bool is_child = conn->purpose == WEFT_WIRE_HEAL;
    uint32_t above = is_child ? control->self.rank : conn->peer_rank;
    uint32_t below = is_child ? conn->peer_rank : control->self.rank;
    if (is_over(control)) {
        return "it starts or closes";
    }
    if (conn->peer_rank >= control->self.ranks || control->is_gone[conn->peer_rank]) {
        return "this rank was given up";
    }
    if (!weft_control_tree_precedes(&control->tree, above, below)) {
        return "it is the other one who comes first";
    }
    return !is_child && (control->parent != NULL || control->heal->adopter != NULL)
               ? "it has a parent"
               : NULL;
}

void weft_control_heal_hello(struct weft_control *control, struct weft_net_conn *conn)
{
    struct weft_control_heal *heal = control->heal;
    const char *why = objection(control, conn);
    if (why != NULL) {
        weft_net_conn_refuse(conn, WEFT_ERR_BUSY, why);
        return;
    }
    weft_net_conn_watch(conn);
    weft_net_conn_accept(conn);
    if (conn->purpose == WEFT_WIRE_HEAL) {
        conn->tag = ROLE_VISITOR;
        weft_list_append(&heal->visitors, &conn->node);
    } else {
        conn->tag = ROLE_ADOPTER;
        heal->adopter = conn;
        heal->target_ns = weft_clock_ns();
        weft_net_conn_close(heal->attempt);
        heal->attempt = NULL;
    }
}

bool weft_control_heal_first(struct weft_control *control, struct weft_net_conn *conn)
{
    if (conn->tag == ROLE_ADOPTER) {
        control->heal->adopter = NULL;
        if (control->parent != NULL || objection(control, conn) != NULL) {
            weft_net_conn_close(conn);
            return false;
        }
        take_parent(control, conn);
        weft_heal_schedule(control->heal);
        return true;
    }
    weft_list_remove(&conn->node);
    if (objection(control, conn) != NULL || !weft_heal_take_child(control, conn)) {
        weft_net_conn_close(conn);
        return false;
    }
    return true;
}

/* We called the leader of a host: whoever has taken its port over is as good, and knows more than we do. */
static bool is_heir(const struct weft_control *control, uint32_t rank, uint32_t target)
{
    return target != WEFT_WIRE_NO_RANK && rank < control->self.ranks &&
           control->table.group_of[rank] == control->table.group_of[target] &&
           control->is_gone[rank] == 0 &&
           weft_control_tree_precedes(&control->tree, rank, control->self.rank);
}

void weft_control_heal_opened(struct weft_control *control, struct weft_net_conn *conn)
{
    struct weft_control_heal *heal = control->heal;
    if (weft_heal_adopted(heal, conn)) {
        return;
    }
    heal->attempt = NULL;
    if (is_heir(control, conn->peer_rank, heal->target)) {
        take_parent(control, conn);
        weft_heal_schedule(heal);
    } else {
        weft_net_conn_close(conn); /* somebody else listens there now */
    }
}

/* On a local socket nobody says who it is. */
bool weft_heal_is_word_of(const struct weft_control *control, const struct weft_net_conn *conn,
                          uint32_t rank)
{
    const uint32_t *group_of = control->table.group_of;
    bool is_by_it =
        conn->peer_rank == WEFT_WIRE_NO_RANK ||
        (conn->peer_rank < control->self.ranks && group_of[conn->peer_rank] == group_of[rank]);
    return conn->is_refused && conn->is_proved && !conn->is_elsewhere && is_by_it;
}

void weft_control_heal_missed(struct weft_control *control, struct weft_net_conn *conn)
{
    struct weft_control_heal *heal = control->heal;
    if (conn->tag == ROLE_ADOPTER) {
        heal->adopter = NULL;
    } else if (conn->tag == ROLE_VISITOR) {
        weft_list_remove(&conn->node);
    } else if (conn->tag == ROLE_ADOPTING) {
        weft_heal_adoption_missed(heal, conn);
    } else {
        heal->attempt = NULL;
        if (heal->target != WEFT_WIRE_NO_RANK &&
            weft_heal_is_word_of(control, conn, heal->target)) {
            control->is_out[heal->target] = 1;
            weft_heal_below_strayed(heal);
        } else {
            heal->is_target_refusing =
                conn->error == ECONNREFUSED || (conn->is_refused && conn->is_proved);
        }
    }
    weft_net_conn_close(conn);
}

void weft_control_heal_heard(struct weft_control *control)
{
    if (control->heal != NULL) {
        control->heal->vain = 0;
    }
}

bool weft_control_heal_again(struct weft_control *control, struct weft_net_conn *conn)
{
    if (!weft_heal_is_unspoken(conn) || is_over(control) || control->heal->vain >= VAIN_MAX) {
        return false;
    }
    control->heal->vain++;
    conn->edge = NULL;
    weft_control_ways_forget(control, conn->peer_rank);
    weft_log(control, INFO, "the new connection to rank %u ended before it spoke", conn->peer_rank);
    if (conn == control->parent) {
        control->parent = NULL;
        weft_control_word_new_parent(control);
        weft_control_heal_orphaned(control, false);
    }
    for (uint32_t i = 0; i < control->child_count; i++) {
        if (control->children[i].conn == conn) {
            control->children[i].conn = NULL;
        }
    }
    weft_net_conn_close(conn);
    weft_control_heal_changed(control, false);
    return true;
}

void weft_control_heal_close(struct weft_control *control)
{
    struct weft_control_heal *heal = control->heal;
    struct weft_list *node;
    if (heal == NULL) {
        return;
    }
    stop_seeking(heal);
    weft_engine_timer_cancel(control->engine, &heal->timer);
    weft_net_conn_close(heal->adopter);
    while ((node = weft_list_take(&heal->visitors)) != NULL) {
        weft_net_conn_close(WEFT_CONTAINER_OF(node, struct weft_net_conn, node));
    }
    weft_heal_hear_close(heal);
    weft_heal_below_close(heal);
    free(heal->refusing_ns);
    weft_heal_reports_close(heal);
    weft_net_acceptor_close(heal->local);
    weft_net_acceptor_close(heal->tcp);
    free(heal);
    control->heal = NULL;
}
