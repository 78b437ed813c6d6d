/* SPDX-License-Identifier: Apache-2.0 */
/* What was reported upwards is kept until its verdict comes: whoever should have passed it on may be gone. */
#include "control/heal.h"

#include <stdio.h>
#include <stdlib.h>

#define JUDGE_MS 800 /* what could not be reported is judged here */
#define REPORTS_MAX 256

struct kept_report {
    struct weft_list node;
    uint64_t comm;
    struct weft_wire_notice notice;
};

static struct kept_report *find_report(const struct weft_control_heal *heal, uint64_t comm,
                                       uint32_t rank)
{
    for (struct weft_list *node = heal->reports.next; node != &heal->reports; node = node->next) {
        struct kept_report *kept = WEFT_CONTAINER_OF(node, struct kept_report, node);
        if (kept->comm == comm && (comm != 0 || kept->notice.rank == rank)) {
            return kept;
        }
    }
    return NULL;
}

void weft_control_heal_judged(struct weft_control *control, uint64_t comm, uint32_t rank)
{
    struct kept_report *kept =
        control->heal != NULL ? find_report(control->heal, comm, rank) : NULL;
    if (kept != NULL) {
        weft_list_remove(&kept->node);
        control->heal->report_count--;
        free(kept);
    }
}

/* A coordinator that does not judge yet keeps what it would have judged. */
static uint32_t most(const struct weft_control *control)
{
    return control->is_top ? REPORTS_MAX + control->self.ranks : REPORTS_MAX;
}

bool weft_control_heal_keep(struct weft_control *control, uint64_t comm,
                            const struct weft_wire_notice *notice)
{
    struct weft_control_heal *heal = control->heal;
    struct kept_report *kept;
    if (heal == NULL) {
        return false;
    }
    kept = find_report(heal, comm, notice->rank);
    if (kept != NULL) {
        if (notice->number != 0) { /* somebody has judged it */
            kept->notice = *notice;
        }
        return true;
    }
    kept = heal->report_count < most(control) ? calloc(1, sizeof(*kept)) : NULL;
    if (kept == NULL) {
        return false;
    }
    kept->comm = comm;
    kept->notice = *notice;
    weft_list_append(&heal->reports, &kept->node);
    heal->report_count++;
    return true;
}

bool weft_control_heal_has_reports(const struct weft_control *control)
{
    return control->heal != NULL && control->heal->report_count > 0;
}

bool weft_control_heal_is_reported(const struct weft_control *control, uint32_t rank)
{
    return control->heal != NULL && find_report(control->heal, 0, rank) != NULL;
}

void weft_heal_reports_say(const struct weft_control *control, struct weft_net_conn *conn)
{
    const struct weft_control_heal *heal = control->heal;
    for (struct weft_list *node = heal != NULL ? heal->reports.next : NULL;
         heal != NULL && node != &heal->reports; node = node->next) {
        const struct kept_report *kept = WEFT_CONTAINER_OF(node, struct kept_report, node);
        struct weft_wire_frame frame = {.type = WEFT_WIRE_REPORT,
                                        .comm = kept->comm,
                                        .src = control->self.rank,
                                        .dst = WEFT_WIRE_NO_RANK};
        uint8_t bytes[WEFT_WIRE_NOTICE_MAX];
        weft_net_conn_send(conn, &frame, bytes, weft_wire_notice_encode(&kept->notice, bytes));
    }
}

bool weft_control_heal_check(struct weft_control *control, uint32_t rank)
{
    struct weft_wire_notice notice = {.status = WEFT_ERR_PEER, .rank = rank};
    char name[128];
    if (control->heal == NULL || rank >= control->self.ranks || rank == control->self.rank ||
        !weft_heal_is_near(control, rank) || weft_control_aside_is_leaving(control, rank) ||
        !weft_heal_has_ended(control, rank)) {
        return false;
    }
    if (weft_control_conn_to(control, rank) != NULL) {
        weft_control_neighbour_ended(control, rank);
        return true;
    }
    weft_control_name_rank(control, rank, name, sizeof(name));
    snprintf(notice.text, sizeof(notice.text), "%s closed (its process has ended)", name);
    control->is_out[rank] = 1;
    weft_control_report(control, 0, &notice);
    return true;
}

bool weft_control_heal_is_hopeful(const struct weft_control *control)
{
    const struct weft_control_heal *heal = control->heal;
    uint64_t limit_ns = JUDGE_MS * WEFT_NS_PER_MS;
    if (limit_ns < 2 * weft_control_heart_overdue_ns(control)) {
        limit_ns = 2 * weft_control_heart_overdue_ns(control);
    }
    return heal != NULL && heal->is_seeking && /* orphan_ns may be yet to come */
           weft_clock_ns() < heal->orphan_ns + limit_ns;
}

/* To the new parent; or, when we coordinate or there is nobody to be told, as verdicts. */
void weft_heal_report_again(struct weft_control_heal *heal, bool is_judge)
{
    struct weft_control *control = heal->control;
    struct weft_list all;
    struct weft_list *node;
    weft_list_open(&all);
    while ((node = weft_list_take(&heal->reports)) != NULL) {
        weft_list_append(&all, node);
    }
    heal->report_count = 0;
    while ((node = weft_list_take(&all)) != NULL) {
        struct kept_report *kept = WEFT_CONTAINER_OF(node, struct kept_report, node);
        if (is_judge && !control->is_top) {
            weft_control_judge(control, kept->comm, &kept->notice);
        } else {
            weft_control_report(control, kept->comm, &kept->notice);
        }
        free(kept);
    }
}

/* What a rank of this host died of nobody knows; where its parent closed in good order it has most likely, too, unless
 * somebody saw it die. One whose process goes on has closed. */
void weft_heal_absent(struct weft_control *control, uint32_t rank)
{
    bool is_here = weft_heal_is_near(control, rank);
    uint32_t parent = weft_control_tree_parent(&control->tree, rank);
    struct weft_wire_notice notice = {.status = is_here ? WEFT_ERR_PEER : WEFT_ERR_NETWORK,
                                      .rank = rank};
    char name[128];
    control->is_out[rank] = 1;
    if (is_here && find_report(control->heal, 0, rank) == NULL &&
        (weft_heal_has_closed(control, rank) ||
         (parent != WEFT_WIRE_NO_RANK && control->is_gone[parent] == WEFT_GONE_CLOSED))) {
        weft_control_rank_closed(control, rank);
        return;
    }
    weft_control_name_rank(control, rank, name, sizeof(name));
    snprintf(notice.text, sizeof(notice.text), "%s %s", name,
             is_here ? "closed (nobody listens there any more)" : "cannot be reached any more");
    weft_control_report(control, 0, &notice);
}

void weft_heal_reports_close(struct weft_control_heal *heal)
{
    struct weft_list *node;
    while ((node = weft_list_take(&heal->reports)) != NULL) {
        free(WEFT_CONTAINER_OF(node, struct kept_report, node));
    }
}
