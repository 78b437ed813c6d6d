/* SPDX-License-Identifier: Apache-2.0 */
/* Private to control: what heal.c and its neighbours share. */
#ifndef WEFT_CONTROL_HEAL_H
#define WEFT_CONTROL_HEAL_H

#include "control/internal.h"

#define RETRY_MS 2
#define ALONE_MS 400  /* how often a coordinator looks for those it did not find */
#define CALLED_MS 250 /* so long one who must be called waits for it */
#define DEAD_MS 300   /* a path whose words are unacknowledged for so long is dead */
#define HOST_MS 1200  /* of a host that nobody of has come by then nobody can be reached */

struct weft_control_heal {
    struct weft_control *control;
    struct weft_net_acceptor *local, *tcp; /* owned; NULL: not open */
    struct weft_engine_timer timer;        /* the earliest of the times below; 0: not due */
    uint64_t serve_ns, port_ns;
    uint64_t heir_ns;     /* since when we want the port of who led this host; 0: we do not */
    uint64_t lived_ticks; /* since boot: every rank lived then */

    /* going up */
    bool is_seeking;
    uint64_t seek_ns, orphan_ns;
    uint64_t woke_ns; /* the latest time that we stood still, as far as it was made up for */
    unsigned wakings; /* how often */
    uint64_t parent_heard_ns; /* the latest of the one that is gone */
    uint32_t target;
    uint64_t target_ns;      /* since when it is asked */
    uint32_t way;            /* on another host: by which (ways_hosts.c); 0: as the table says */
    uint64_t way_ns;         /* since when by that one */
    bool is_target_there;    /* somebody listens */
    bool is_target_refusing; /* its host is there, and nobody listens: so it was the last time */
    bool is_target_silent;   /* by one way at least: nobody spoke */
    struct weft_net_conn *attempt; /* owned */
    struct weft_net_conn *adopter; /* owned: one above has called, and has not said anything yet */
    struct weft_list reports;      /* of kept_report: until their verdicts come */
    uint32_t report_count;
    uint64_t again_ns; /* the coordinator looks for those above that it did not find */
    unsigned rounds;   /* how often it has */
    uint64_t part_ns;  /* when `part` was found */
    enum weft_control_part part;
    uint64_t few_ns; /* since when it does not reach most of the others; 0: it does */

    /* coordinating anew */
    uint8_t *
        is_awaited; /* [ranks]: has not told yet what it knows; owned; NULL: nobody is waited for */
    uint32_t awaited_count;
    uint64_t hear_ns, hear_until_ns;

    /* those below */
    struct weft_list visitors; /* connections that have come and have not said anything yet */
    struct weft_list adoptions;
    uint64_t adopt_ns;
    unsigned vain; /* connections in a row that ended before their other end had spoken */
    uint64_t changed_ns, check_ns; /* somebody is gone since; look who has not come */
    uint64_t *refusing_ns; /* [ranks]: since when nobody listens there; owned; NULL: not asked */
};

/* A connection beside the tree (aside.c). */
struct weft_control_edge {
    struct weft_list node;
    uint32_t rank;
    struct weft_net_conn *conn; /* owned */
    uint64_t since_ns;
    bool is_open;
    bool is_ours; /* we made it */
};

struct weft_control_aside {
    struct weft_control *control;
    struct weft_engine_timer timer;
    struct weft_list edges;
    uint64_t cut_ns;     /* when its host did not answer either */
    uint64_t forgot_ns;  /* when those who did not answer were asked again */
    uint64_t around_ns;  /* since when words go around our parent; 0: they do not */
    uint32_t up;         /* the next one above; NO_RANK: we stand in */
    uint8_t *is_leaving; /* [ranks] */
    uint8_t is_still[];  /* [ranks]: STILL_; is_leaving behind it */
};

static inline bool weft_heal_is_near(const struct weft_control *control, uint32_t rank)
{
    return control->table.group_of[rank] == control->table.group_of[control->self.rank];
}

/* Made while the tree heals, and nothing yet: its other end has not spoken. */
static inline bool weft_heal_is_unspoken(const struct weft_net_conn *conn)
{
    return (conn->purpose == WEFT_WIRE_HEAL || conn->purpose == WEFT_WIRE_ADOPT) &&
           !conn->is_beating;
}

/* Can it be found by other hosts? Whoever leads a host listens at the port that everybody heard of in the start. */
static inline bool weft_heal_has_port(const struct weft_control *control, uint32_t rank)
{
    uint32_t group = control->table.group_of[rank];
    const struct weft_wire_addr *addr = &control->table.group[group].addr;
    return addr->family != 0 && addr->port != 0 &&
           weft_control_tree_first(&control->tree, control->is_out, group) == rank;
}

/* ---- heal_dial.c ---- */
/* *is_refused_p: there is nobody who listens. */
weft_status_t weft_heal_dial(struct weft_control *control, uint32_t rank,
                             enum weft_wire_purpose purpose, struct weft_net_conn **conn_p,
                             bool *is_refused_p);

/* ---- heal.c ---- */
/* NULL: no memory. */
struct weft_control_heal *weft_heal_of(struct weft_control *control);
/* A rank of this host: has its process ended? Where its number says nothing here, it has not. */
bool weft_heal_has_ended(const struct weft_control *control, uint32_t rank);
/* Of this host: nobody listens there any more: it has closed, or its process is of another pid namespace and has ended. Found
 * when it is asked again for a while. */
bool weft_heal_has_left(struct weft_control *control, uint32_t rank);
/* The same, and its process goes on. */
bool weft_heal_has_closed(struct weft_control *control, uint32_t rank);
/* It did not listen when that was asked last. */
bool weft_heal_is_leaving(const struct weft_control *control, uint32_t rank);
/* Of this host: is it stopped? */
bool weft_heal_is_stopped(const struct weft_control *control, uint32_t rank);
/* Was it refused by whom we called, or by whoever leads its host now? */
bool weft_heal_is_word_of(const struct weft_control *control, const struct weft_net_conn *conn,
                          uint32_t rank);
/* The timer goes for what is due first. */
void weft_heal_schedule(struct weft_control_heal *heal);

/* ---- heal_ears.c ---- */
void weft_heal_local_name(const struct weft_control *control, uint32_t rank,
                          char name[WEFT_WIRE_NAME_LEN]);
/* Twice is harmless. */
void weft_heal_serve_local(struct weft_control_heal *heal);
/* If who led this host is gone and we lead it now. The kernel gives the port away when that process has ended. */
void weft_heal_take_over_port(struct weft_control_heal *heal);
/* What is taken may just not have come free yet. */
bool weft_heal_is_inheriting(const struct weft_control_heal *heal);

/* ---- heal_reports.c ---- */
/* To the new parent; or, when we coordinate or there is nobody to be told, as verdicts. */
void weft_heal_report_again(struct weft_control_heal *heal, bool is_judge);
/* To one beside the tree, as reports. */
void weft_heal_reports_say(const struct weft_control *control, struct weft_net_conn *conn);
/* It is gone, and nobody saw how. */
void weft_heal_absent(struct weft_control *control, uint32_t rank);
void weft_heal_reports_close(struct weft_control_heal *heal);

/* ---- heal_hear.c ---- */
/* We coordinate from now on: those who may know more are waited for. */
void weft_heal_hear(struct weft_control_heal *heal);
void weft_heal_hear_due(struct weft_control_heal *heal, uint64_t now_ns);
/* Twice is harmless. */
void weft_heal_hear_close(struct weft_control_heal *heal);

/* ---- aside.c ---- */
/* One has come, and was let in. */
void weft_control_aside_take(struct weft_control *control, struct weft_net_conn *conn);

/* ---- heal_below.c ---- */
/* Those whose time has come. */
void weft_heal_below(struct weft_control_heal *heal, uint64_t now_ns);
void weft_heal_below_changed(struct weft_control_heal *heal, uint64_t from_ns);
/* One was given up that may live. */
void weft_heal_below_strayed(struct weft_control_heal *heal);
/* A connection of our own to one below is open; false: it is not one of those. */
bool weft_heal_adopted(struct weft_control_heal *heal, struct weft_net_conn *conn);
void weft_heal_adoption_missed(struct weft_control_heal *heal, const struct weft_net_conn *conn);
/* It hangs below us from now on, and is told all that happened. false: no memory, or it has lost a connection to us that we
 * have not seen end. */
bool weft_heal_take_child(struct weft_control *control, struct weft_net_conn *conn);
void weft_heal_below_close(struct weft_control_heal *heal);

#endif
