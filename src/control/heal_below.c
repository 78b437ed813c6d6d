/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Those who hang below us when others are gone, and how we get them. Mostly they come by themselves. Who leads a host
 * that has no port calls those below it (ADOPT), and they wait for that call. Who should come and does not is called as
 * well, for it may have died with its parent, and nobody else would notice: on this host a socket where nobody listens
 * says so, another host is given HOST_MS. And those of this host that were given up while they ran are looked at: of them,
 * too, nobody else would notice that they ended.
 */
#include "control/heal.h"

#include <stdlib.h>

#define CALL_MS 10
#define ABSENT_MS 150 /* after a change: who should have come by then is called */
#define CHECK_MS 250  /* and looked for again, until HOST_MS */

/* One who is called. */
struct adoption {
    struct weft_list node;
    uint32_t rank;
    struct weft_net_conn *conn; /* owned; NULL: to be dialled */
    uint64_t until_ns;
    bool is_there;   /* somebody listens */
    bool has_parent; /* it said so */
};

/* ---- a child more ---- */

static struct weft_control_child *child_of(struct weft_control *control, uint32_t rank)
{
    struct weft_control_child *grown;
    for (uint32_t i = 0; i < control->child_count; i++) {
        if (control->children[i].rank == rank) {
            return &control->children[i];
        }
    }
    if (control->child_count == control->child_room) {
        uint32_t room = 2 * control->child_room + 8;
        grown = realloc(control->children, room * sizeof(*grown));
        if (grown == NULL) {
            return NULL;
        }
        control->children = grown;
        control->child_room = room;
    }
    control->children[control->child_count] = (struct weft_control_child){.rank = rank};
    return &control->children[control->child_count++];
}

bool weft_heal_take_child(struct weft_control *control, struct weft_net_conn *conn)
{
    struct weft_control_child *child = child_of(control, conn->peer_rank);
    struct weft_control_watch *watch;
    if (child != NULL && child->conn != NULL && !weft_heal_is_unspoken(child->conn)) {
        /* What was on its way may be lost with it, and those who wait for that would wait until their deadline. */
        weft_control_neighbour_lost(control, child->conn, WEFT_ERR_PEER, "has lost its connection");
        return false;
    }
    watch = child != NULL ? weft_control_watch_open(control, child->rank) : NULL;
    if (watch == NULL) {
        return false;
    }
    if (child->conn != NULL) {
        child->conn->edge = NULL;
        weft_net_conn_close(child->conn);
    }
    weft_control_mend_close(child->mend);
    weft_control_watch_close(child->watch);
    child->mend = NULL;
    child->watch = watch;
    child->conn = conn;
    child->is_telling = true;
    conn->tag = ROLE_CHILD;
    weft_net_conn_persist(conn);
    control->is_out[conn->peer_rank] = 0;
    control->is_word_owed = true; /* it hears of verdicts that it may leave for */
    weft_control_mend_beat(conn); /* until we have spoken it is nothing */
    child->heard = 0;
    child->still = (struct weft_control_still){.rank = WEFT_WIRE_NO_RANK};
    child->told = weft_control_history_tell(control, conn, WEFT_WIRE_VERDICT);
    weft_control_tell_closed(control,
                             conn); /* after it: who closed may have done so for a verdict */
    weft_control_shrink_tell(control, conn);
    weft_control_ways_tell(control, conn);
    weft_log(control, INFO, "rank %u is below this rank now", conn->peer_rank);
    return true;
}

/* ---- calls ---- */

static struct adoption *find(const struct weft_control_heal *heal, uint32_t rank)
{
    for (struct weft_list *node = heal->adoptions.next; node != &heal->adoptions;
         node = node->next) {
        struct adoption *adoption = WEFT_CONTAINER_OF(node, struct adoption, node);
        if (adoption->rank == rank) {
            return adoption;
        }
    }
    return NULL;
}

static struct adoption *find_by(const struct weft_control_heal *heal,
                                const struct weft_net_conn *conn)
{
    for (struct weft_list *node = heal->adoptions.next; node != &heal->adoptions;
         node = node->next) {
        struct adoption *adoption = WEFT_CONTAINER_OF(node, struct adoption, node);
        if (adoption->conn == conn) {
            return adoption;
        }
    }
    return NULL;
}

static void call(struct weft_control_heal *heal, uint32_t rank)
{
    struct adoption *adoption = calloc(1, sizeof(*adoption));
    if (adoption != NULL) {
        adoption->rank = rank;
        adoption->until_ns =
            weft_clock_after_ms(weft_heal_is_near(heal->control, rank) ? CALLED_MS : HOST_MS);
        weft_list_append(&heal->adoptions, &adoption->node);
        heal->adopt_ns = weft_clock_ns();
    }
}

static void end(struct adoption *adoption)
{
    weft_list_remove(&adoption->node);
    weft_net_conn_close(adoption->conn);
    free(adoption);
}

bool weft_heal_adopted(struct weft_control_heal *heal, struct weft_net_conn *conn)
{
    struct adoption *adoption = conn->tag == ROLE_ADOPTING ? find_by(heal, conn) : NULL;
    bool is_right;
    if (adoption == NULL) {
        return false;
    }
    /* It may have come by itself while we slept. */
    is_right =
        conn->peer_rank < heal->control->self.ranks &&
        weft_control_conn_to(heal->control, conn->peer_rank) == NULL &&
        heal->control->table.group_of[conn->peer_rank] ==
            heal->control->table.group_of[adoption->rank] &&
        weft_control_tree_precedes(&heal->control->tree, heal->control->self.rank, conn->peer_rank);
    adoption->conn = NULL;
    end(adoption);
    if (!is_right || !weft_heal_take_child(heal->control, conn)) {
        weft_net_conn_close(conn);
    }
    return true;
}

void weft_heal_adoption_missed(struct weft_control_heal *heal, const struct weft_net_conn *conn)
{
    struct adoption *adoption = find_by(heal, conn);
    if (adoption != NULL) {
        adoption->conn = NULL;
        adoption->has_parent = weft_heal_is_word_of(heal->control, conn, adoption->rank);
        adoption->is_there |= adoption->has_parent;
    }
}

/* Nobody of its host has come: whoever leads it now cannot be reached, nor can those behind. */
static void give_up_host(struct weft_control *control, uint32_t group)
{
    for (uint32_t rank = 0; rank < control->self.ranks; rank++) {
        if (control->table.group_of[rank] == group && !control->is_out[rank]) {
            weft_heal_absent(control, rank);
        }
    }
}

static void give_up(struct weft_control_heal *heal, struct adoption *adoption, uint64_t now_ns)
{
    uint32_t rank = adoption->rank;
    bool is_near = weft_heal_is_near(heal->control, rank);
    bool is_there = adoption->is_there && !weft_heal_has_left(heal->control, rank);
    if (is_there && weft_heal_is_leaving(heal->control, rank)) {
        adoption->until_ns = now_ns + CHECK_MS * WEFT_NS_PER_MS; /* nobody else would see its end */
        return;
    }
    end(adoption);
    if (!is_there && is_near) {
        weft_heal_absent(heal->control, rank);
    } else if (!is_there) {
        give_up_host(heal->control, heal->control->table.group_of[rank]);
    }
}

static void dial_all(struct weft_control_heal *heal, uint64_t now_ns)
{
    struct weft_control *control = heal->control;
    struct weft_list *node = heal->adoptions.next;
    heal->adopt_ns = 0;
    while (node != &heal->adoptions) {
        struct adoption *adoption = WEFT_CONTAINER_OF(node, struct adoption, node);
        bool is_refused;
        node = node->next;
        if (control->is_out[adoption->rank] || adoption->has_parent ||
            weft_control_conn_to(control, adoption->rank) != NULL) {
            end(adoption);
        } else if (now_ns >= adoption->until_ns) {
            give_up(heal, adoption, now_ns);
        } else if (adoption->conn == NULL) {
            weft_status_t status = weft_heal_dial(control, adoption->rank, WEFT_WIRE_ADOPT,
                                                  &adoption->conn, &is_refused);
            /* Only where nobody listens nobody is; that we have no descriptor says nothing. */
            adoption->is_there =
                weft_heal_is_near(control, adoption->rank)
                    ? !is_refused
                    : adoption->is_there || status == WEFT_ERR_SYSTEM || status == WEFT_ERR_MEMORY;
        }
    }
    if (!weft_list_is_empty(&heal->adoptions)) {
        heal->adopt_ns = now_ns + CALL_MS * WEFT_NS_PER_MS;
    }
}

/* ---- who has not come ---- */

/* We lead our host, and those on other hosts cannot find us. */
static bool must_call(const struct weft_control *control)
{
    uint32_t above = weft_control_tree_up(&control->tree, control->is_out, control->self.rank);
    return control->tree.groups > 1 && !weft_heal_has_port(control, control->self.rank) &&
           (above == WEFT_WIRE_NO_RANK || !weft_heal_is_near(control, above));
}

static void look(struct weft_control_heal *heal, uint64_t now_ns)
{
    struct weft_control *control = heal->control;
    bool is_late = now_ns >= heal->changed_ns + ABSENT_MS * WEFT_NS_PER_MS;
    bool is_over = now_ns >= heal->changed_ns + HOST_MS * WEFT_NS_PER_MS;
    for (uint32_t rank = 0; rank < control->self.ranks; rank++) {
        bool is_near = weft_heal_is_near(control, rank);
        if (control->is_out[rank] || rank == control->self.rank ||
            weft_control_conn_to(control, rank) != NULL || find(heal, rank) != NULL ||
            weft_control_tree_up(&control->tree, control->is_out, rank) != control->self.rank) {
            continue;
        }
        if (is_near ? is_late
                    : weft_heal_has_port(control, rank) && (is_late || must_call(control))) {
            call(heal, rank);
        } else if (!is_near && !weft_heal_has_port(control, rank) && is_over) {
            give_up_host(control, control->table.group_of[rank]);
        }
    }
}

/* Those of this host that were given up while they ran: they were stopped, or closed, and whoever was above them is gone.
 * Is one left? */
static bool look_at_strays(struct weft_control *control)
{
    bool is_one = false;
    for (uint32_t rank = 0; rank < control->self.ranks; rank++) {
        if (!control->is_out[rank] || control->is_gone[rank] || !weft_heal_is_near(control, rank) ||
            weft_control_heal_is_reported(control, rank)) {
            continue;
        }
        if ((weft_heal_has_ended(control, rank) && !weft_control_aside_is_leaving(control, rank)) ||
            weft_heal_has_left(control, rank)) {
            weft_heal_absent(control, rank);
        } else {
            is_one = true;
        }
    }
    return is_one;
}

bool weft_control_heal_expects(struct weft_control *control)
{
    if (control->heal == NULL || control->is_gone == NULL) {
        return false;
    }
    for (uint32_t rank = 0; rank < control->self.ranks; rank++) {
        if (!control->is_out[rank] && rank != control->self.rank &&
            weft_control_conn_to(control, rank) == NULL &&
            weft_control_tree_up(&control->tree, control->is_out, rank) == control->self.rank) {
            return true;
        }
    }
    return control->heal->is_seeking || weft_control_heal_is_hearing(control);
}

void weft_heal_below_changed(struct weft_control_heal *heal, uint64_t from_ns)
{
    heal->changed_ns = heal->check_ns = from_ns;
}

void weft_heal_below_strayed(struct weft_control_heal *heal)
{
    if (heal->check_ns == 0) {
        heal->check_ns = weft_clock_after_ms(CHECK_MS);
    }
}

void weft_heal_below(struct weft_control_heal *heal, uint64_t now_ns)
{
    if (heal->check_ns != 0 && now_ns >= heal->check_ns) {
        bool is_over = now_ns >= heal->changed_ns + HOST_MS * WEFT_NS_PER_MS;
        heal->check_ns = is_over ? 0
                         : now_ns < heal->changed_ns + ABSENT_MS * WEFT_NS_PER_MS
                             ? heal->changed_ns + ABSENT_MS * WEFT_NS_PER_MS
                             : now_ns + CHECK_MS * WEFT_NS_PER_MS;
        look(heal, now_ns); /* who is found gone there changes it again */
        if (look_at_strays(heal->control)) {
            weft_heal_below_strayed(heal);
        }
    }
    if (heal->adopt_ns != 0 && now_ns >= heal->adopt_ns) {
        dial_all(heal, now_ns);
    }
}

void weft_heal_below_close(struct weft_control_heal *heal)
{
    struct weft_list *node;
    while ((node = weft_list_take(&heal->adoptions)) != NULL) {
        end(WEFT_CONTAINER_OF(node, struct adoption, node));
    }
}
