/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What plans cost, and which one is taken. The cost of a plan is found by running it in a model
 * (sim.c): every rank has a clock, every host its cores and its NICs. The chooser (choose.c) runs the
 * possible plans and takes the fastest. All of it is pure: a function of facts that all ranks share, so
 * that all choose alike.
 *
 * Units: seconds, bytes, bytes per second, all double; compiled without contraction of floating point, so
 * that machines of different kinds compute the same bits.
 */
#ifndef WEFT_PLAN_MODEL_H
#define WEFT_PLAN_MODEL_H

#include "plan/plan.h"

/* ---- calibration (model_calibration.c): what was measured, one for all ranks ---- */

/* A message of b bytes keeps its sender busy for message_s + b / rate, its receiver too; the first byte is
 * there latency_s after the sender began. Where ranks outnumber cores, a rank that has waited first
 * spends wait_s for each rank per core: the others look whether their own has come. */
struct weft_plan_path {
    double latency_s;
    double rate;
    double message_s;
    double wait_s;
};

struct weft_plan_calibration {
    struct weft_plan_path shm, loopback, net; /* inside a host by memory or by tcp; between hosts */
    double flag_s;                            /* until another core sees a flag */
    double copy_rate;                         /* bytes copied by one core */
    double reduce_rate;                       /* bytes of output of a = a + b by one core */
    double slot_write_rate;                   /* into memory that another rank reads */
    double slot_read_rate;                    /* out of it */
    double memory_rate; /* bytes read and written by all cores of a host together */
    double flag_wait_s; /* as wait_s, of flags */
    /* of a NIC's rate, each way, when two ranks send to each other at the same time: what confirms the one
     * way queues behind the data of the other */
    double duplex;
    /* shared memory of one host (choose_shm.c), bytes that a rank shows the others: */
    double oneshot_max;              /* at most, at once */
    double chunk_cached, chunk_past; /* beyond, at a time: while all fits the cache, or not */
};

void weft_plan_calibration_default(struct weft_plan_calibration *calibration_p);
/* One line: every number that is not the default, "loopback=2us:5.5G:1us:4us copy=12G"; "" is the default.
 * Rounded to what is shown: ranks agree by parsing the same text. */
#define WEFT_PLAN_CALIBRATION_LEN 512
void weft_plan_calibration_print(const struct weft_plan_calibration *calibration,
                                 char text[WEFT_PLAN_CALIBRATION_LEN]);
/* Begins with the defaults. false: *why_p (lent, static) says what is wrong; nothing is written. */
/* at_p: how much of the text is fine. */
bool weft_plan_calibration_check(const char *text, const char **why_p, size_t *at_p);
bool weft_plan_calibration_parse(const char *text, struct weft_plan_calibration *calibration_p,
                                 const char **why_p);

/* ---- facts (model.c): what all ranks know ---- */

enum weft_plan_inside { WEFT_INSIDE_SHM, WEFT_INSIDE_TCP };

struct weft_plan_facts {
    uint32_t ranks, hosts;
    uint32_t
        host_ranks; /* ranks on the fullest host; without host_of rank r is on r / host_ranks */
    const uint32_t *host_of; /* lent; [ranks], hosts numbered from 0; NULL: as said above */
    uint32_t cores;          /* of a host, the fewest */
    uint32_t inside;         /* enum weft_plan_inside: how ranks of a host talk */
    uint32_t composed;       /* bits 1 << coll: what can be run as "hierarchical" */
    uint32_t nics;           /* per host */
    double nic_rate;         /* of one, each way; 0: as fast as the ranks can */
    double cache;            /* last level, bytes */
    double slot_room;        /* bytes per rank for all slots of an operation */
    double eager_max;        /* longest message that does not wait for its receive */
    struct weft_plan_calibration calibration;
};

/* One host, default calibration. */
void weft_plan_facts_default(uint32_t ranks, uint32_t cores, struct weft_plan_facts *facts_p);
uint32_t weft_plan_facts_host(const struct weft_plan_facts *facts, uint32_t rank);
/* More ranks than cores on the fullest host. */
bool weft_plan_facts_oversubscribed(const struct weft_plan_facts *facts);
/* Inputs and outputs of the ranks of a host do not fit the cache. */
bool weft_plan_facts_past_cache(const struct weft_plan_facts *facts, double bytes);

/* ---- one plan in the model (sim.c) ---- */

/* Where the time of the last rank went. They add up to the time. */
struct weft_plan_parts {
    double message; /* cost per message at both ends */
    double copy;    /* moving bytes by a core, flags */
    double reduce;
    double wire;    /* NICs */
    double latency; /* of messages and flags */
    double wait;    /* for a core */
};
#define WEFT_PLAN_PARTS 6

enum weft_plan_symmetry {
    WEFT_SYMMETRY_NONE,   /* every rank is run */
    WEFT_SYMMETRY_ROTATE, /* rank r does what rank 0 does, all peers moved by r */
    WEFT_SYMMETRY_XOR,    /* the same, with exclusive or; 2^k ranks */
};

struct weft_plan_run {
    double bytes;       /* of the whole operation, as weft_plan_ask says */
    double whole;       /* where this is a part of a longer one: its bytes; 0: it is not */
    bool is_full;       /* run every rank even if one per class would do */
    uint64_t steps_max; /* give up after so many; 0: never */
    double time_max_s;  /* give up when it takes longer; 0: never */
    uint32_t path_max;  /* hops of the critical path wanted */
};

/* One message (or flag) of the critical path: the receiver could not go on before it came. */
struct weft_plan_hop {
    uint32_t from, to, round;
    double time_s; /* when `to` had it */
};

struct weft_plan_cost {
    double time_s;
    struct weft_plan_parts parts;
    double sent_inside,
        sent_between;       /* bytes by the rank that sends most, inside and between hosts */
    double nic_out, nic_in; /* bytes of the busiest host */
    double total_inside, total_between;
    double
        copies; /* bytes written by cores, per byte of output of a rank: messages, slots, results */
    uint64_t messages; /* of all ranks */
    uint32_t rounds, last_rank;
    uint32_t hops;    /* of the critical path, when it was wanted */
    uint32_t classes; /* ranks that were run */
    uint32_t symmetry;
    uint64_t steps; /* that were run */
};

enum weft_plan_run_end {
    WEFT_RUN_DONE,
    WEFT_RUN_TOO_LONG, /* steps_max */
    WEFT_RUN_SLOWER,   /* time_max_s */
    WEFT_RUN_STUCK,    /* the plan waits for what never comes */
    WEFT_RUN_NO_MEMORY,
};

struct weft_plan_sim;                           /* memory that runs share: open one for many */
struct weft_plan_sim *weft_plan_sim_open(void); /* NULL: no memory */
void weft_plan_sim_close(struct weft_plan_sim *sim);
enum weft_plan_run_end weft_plan_sim_run(struct weft_plan_sim *sim,
                                         const struct weft_plan_facts *facts,
                                         const struct weft_plan *plan,
                                         const struct weft_plan_run *run,
                                         struct weft_plan_cost *cost_p);
/* The critical path of the latest run, from its beginning; at most run.path_max hops from the end.
 * Lent until the next run. */
const struct weft_plan_hop *weft_plan_sim_path(const struct weft_plan_sim *sim, uint32_t *count_p);

/* ---- the choice (choose.c) ---- */

struct weft_plan_ask {
    weft_coll_t coll;
    uint32_t root;
    /* the vector of allreduce, broadcast, reduce; all pieces together of the others */
    double bytes;
    bool is_equal;   /* all pieces are of one size */
    bool is_private; /* each rank knows its own pieces only: bytes give a time, but do not choose */
    double
        widening; /* bytes in slots for each of the data, when it is computed in a longer type; 0: one */
    bool is_deterministic; /* equal bits whatever the hosts */
    const char *algo;      /* as WEFT_ALGO: "", "ring", "allreduce:ring,broadcast:chain"; lent */
    bool is_demanded; /* a bare name in it is for this operation, not for those that it can do */
};

/* What is known of the lengths, to all ranks alike; has_arrays: of counts or places. */
void weft_plan_ask_lengths(struct weft_plan_ask *ask, double bytes, bool has_arrays);

#define WEFT_PLAN_OPTIONS 32
struct weft_plan_option {
    const char *name; /* static */
    uint32_t segments;
    double time_s;       /* predicted; < 0: not known */
    const char *why_not; /* why it is not possible, static; NULL when it is */
};

struct weft_plan_choice {
    uint32_t count;
    struct weft_plan_option
        option[WEFT_PLAN_OPTIONS]; /* the chosen one, the others by time, refused */
    char reason[256];              /* one sentence */
};

/* ERR_UNSUPPORTED: the text says what was asked for, why not, and which algorithms can do it.
 * ERR_INVALID: algo is not understood. why_p may be NULL: then only what decides is looked at. */
weft_status_t weft_plan_choose(const struct weft_plan_facts *facts, const struct weft_plan_ask *ask,
                               struct weft_plan *plan_p, struct weft_plan_choice *why_p);
/* The same choice, with its predicted time; < 0: not known. */
weft_status_t weft_plan_predict(const struct weft_plan_facts *facts,
                                const struct weft_plan_ask *ask, struct weft_plan *plan_p,
                                double *time_s_p);
/* The name that WEFT_ALGO has for this operation, into name; "" when it has none. ERR_INVALID names the
 * word that is no algorithm or no operation. */
#define WEFT_PLAN_NAME_LEN 32
weft_status_t weft_plan_algo_of(const char *algo, weft_coll_t coll, char name[WEFT_PLAN_NAME_LEN]);
/* Sizes of one bucket (four to a doubling) are chosen for alike: a key for caches. */
uint32_t weft_plan_bucket(double bytes);

/* ---- hierarchical (choose_hierarchical.c): a plan made of plans ---- */

/* Stands in weft_plan.builder; has no steps of its own. plan.radix: ranks per host. */
extern const struct weft_plan_builder weft_plan_hierarchical;

struct weft_plan_phase {
    bool
        is_between; /* among the ranks that have the same place on their hosts; else inside each host */
    struct weft_plan_ask ask;
    struct weft_plan_facts facts; /* of such a group */
    uint32_t at_once;             /* groups that share the NICs of a host */
};
#define WEFT_PLAN_PHASES 3
/* How an operation is composed; 0: it is not. Needs the same number of ranks on every host. */
uint32_t weft_plan_phases(const struct weft_plan_facts *facts, const struct weft_plan_ask *ask,
                          struct weft_plan_phase phase[WEFT_PLAN_PHASES]);

#endif
