/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a communicator: started from a spec, split, shrunk, closed. */
#include "comm/internal.h"
#include "plan/model.h"
#include "topo/topo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define SHRINK_BIT 0x80000000u /* keeps their numbers apart from those of splits */

static uint64_t derive_id(const struct weft_job *job, uint64_t parent, uint32_t operation,
                          uint32_t colour)
{
    uint8_t hash[32];
    uint64_t id;
    uint64_t words[2] = {parent, (uint64_t)operation << 32 | colour};
    weft_wire_derive(job->key, "communicator", words, sizeof(words), hash);
    memcpy(&id, hash, sizeof(id));
    return id != 0 ? id : 1; /* 0 means all communicators */
}

/* How many CPUs there are does not change often enough to ask at every start. */
unsigned weft_comm_cpus(void)
{
    static _Atomic unsigned known;
    unsigned count = atomic_load(&known);
    if (count == 0) {
        count = weft_topo_cpus("");
        atomic_store(&known, count);
    }
    return count;
}

int weft_comm_family(const struct weft_params *params)
{
    static const int families[] = {AF_UNSPEC, AF_INET, AF_INET6}; /* as in the table of settings */
    return families[params->number[WEFT_PARAM_SOCKET_FAMILY]];
}

/* Settings whose words only plan knows. A profile's are not worth a failure: it is said when they matter. */
static weft_status_t check_words(const struct weft_params *params)
{
    const char *algo = params->text[WEFT_PARAM_ALGO], *costs = params->text[WEFT_PARAM_COSTS], *why;
    char name[WEFT_PLAN_NAME_LEN], text[WEFT_ERROR_TEXT_LEN];
    size_t at;
    if (weft_plan_algo_of(algo, WEFT_ALLREDUCE, name) != WEFT_OK) {
        snprintf(text, sizeof(text), "%s", weft_error_text());
        return weft_fail(WEFT_ERR_INVALID, "WEFT_ALGO=%.64s: %s", algo, text);
    }
    if (params->origin[WEFT_PARAM_COSTS] != WEFT_ORIGIN_PROFILE &&
        !weft_plan_calibration_check(costs, &why, &at)) {
        return weft_fail(WEFT_ERR_INVALID, "WEFT_COSTS: at \"%.32s\": %s", costs + at, why);
    }
    return WEFT_OK;
}

weft_status_t weft_comm_load_params(const weft_config_t *config, struct weft_params *params_p)
{
    weft_status_t status = weft_params_load(params_p);
    status = status == WEFT_OK ? check_words(params_p) : status;
    if (status != WEFT_OK || config == NULL) {
        return status;
    }
    if (config->start_timeout_ms != 0) {
        params_p->number[WEFT_PARAM_START_TIMEOUT] = config->start_timeout_ms;
        params_p->origin[WEFT_PARAM_START_TIMEOUT] = WEFT_ORIGIN_CONFIG;
    }
    if (config->timeout_ms != 0) {
        params_p->number[WEFT_PARAM_TIMEOUT] = config->timeout_ms;
        params_p->origin[WEFT_PARAM_TIMEOUT] = WEFT_ORIGIN_CONFIG;
    }
    return config->interface == NULL
               ? WEFT_OK
               : weft_params_set(params_p, WEFT_PARAM_SOCKET_IFNAME, config->interface);
}

/* ---- start ---- */

weft_status_t weft_comm_job_open(const weft_config_t *config, struct weft_job **job_p)
{
    struct weft_job *job = calloc(1, sizeof(*job));
    weft_status_t status;
    if (job == NULL || (job->key = weft_secret_take()) == NULL) {
        free(job);
        return weft_fail(WEFT_ERR_MEMORY, "no memory for a job");
    }
    weft_list_open(&job->collectives);
    job->recorder.fd = -1;
    status = weft_comm_load_params(config, &job->params);
    status = status == WEFT_OK ? weft_wire_crypto_open() : status;
    if (status != WEFT_OK) {
        weft_comm_job_close(job);
        return status;
    }
    *job_p = job;
    return WEFT_OK;
}

void weft_comm_job_close(struct weft_job *job)
{
    if (job == NULL) {
        return;
    }
    if (job->control != NULL) {
        weft_control_await_word(job->control); /* a verdict may have come just now */
    }
    weft_comm_messages_close(job);
    weft_comm_dump_leave(job); /* nobody tells of failures any more */
    if (job->engine != NULL) {
        weft_background_leave(job->engine);
    }
    weft_control_close(job->control);
    weft_engine_close(job->engine);
    weft_recorder_close(&job->recorder);
    weft_secret_give(job->key);
    free(job);
}

/* Keys that everybody can compute would only look like protection. */
static weft_status_t check_security(const struct weft_job *job, const struct weft_wire_self *self)
{
    const char *level = job->params.text[WEFT_PARAM_SECURITY];
    if (job->params.number[WEFT_PARAM_SECURITY] == WEFT_SECURITY_AUTH || self->is_authenticated) {
        return WEFT_OK;
    }
    return weft_fail(
        WEFT_ERR_AUTH,
        "WEFT_SECURITY=%s needs a secret and this job has none: start it by weft run, or "
        "give all ranks the same WEFT_SECRET_FILE (32 random bytes, mode 0600)",
        level);
}

static weft_status_t job_start(struct weft_job *job, struct weft_control_spec *spec)
{
    char host[64];
    weft_status_t status = check_security(job, &spec->self);
    if (status == WEFT_OK) {
        status =
            weft_engine_open(weft_comm_cpus(), job->params.number[WEFT_PARAM_SPIN], &job->engine);
    }
    if (status != WEFT_OK) {
        return status;
    }
    weft_topo_hostname(host);
    weft_engine_set_starting(job->engine, spec->self.ranks, spec->door != NULL);
    spec->engine = job->engine;
    spec->params = &job->params;
    spec->self.key = job->key;
    spec->self.has_aes = weft_wire_has_aes();
    spec->host = host;
    spec->timeout_ms = (uint32_t)job->params.number[WEFT_PARAM_START_TIMEOUT];
    spec->deadline_ns = weft_clock_after_ms(spec->timeout_ms);
    job->self = spec->self;
    status = weft_control_open(spec, &job->control);
    status = status == WEFT_OK ? weft_comm_messages_open(job) : status;
    if (status == WEFT_OK) {
        weft_comm_bind_near(job);
        weft_log(comm, INFO, "rank %u of %u on %s: started, epoch %u, %s", spec->self.rank,
                 spec->self.ranks, host, spec->self.epoch,
                 spec->self.is_authenticated ? "authenticated" : "without a secret");
    }
    return status;
}

static weft_status_t comm_new(struct weft_job *job, struct weft_comm *parent, uint64_t id,
                              uint32_t *members, uint32_t count, struct weft_comm **comm_p)
{
    struct weft_comm *comm = calloc(1, sizeof(*comm));
    weft_status_t status;
    if (comm == NULL) {
        return weft_fail(WEFT_ERR_MEMORY, "no memory for a communicator");
    }
    status = weft_control_channel_open(job->control, id, members, count, &comm->channel);
    if (status != WEFT_OK) {
        free(comm);
        return status;
    }
    weft_list_open(&comm->ties);
    weft_comm_record_open(comm);
    comm->magic = WEFT_COMM_MAGIC;
    comm->generation = weft_process_generation();
    comm->job = job;
    comm->parent = parent;
    comm->id = id;
    comm->members = members;
    comm->ranks = count;
    comm->timeout_ms = (uint64_t)job->params.number[WEFT_PARAM_TIMEOUT];
    *comm_p = comm;
    return WEFT_OK;
}

weft_status_t weft_comm_start(struct weft_job *job, struct weft_control_spec *spec,
                              struct weft_comm **comm_p)
{
    uint64_t seed;
    weft_status_t status;
    weft_log_set_rank((int)spec->self.rank);
    weft_secret_wipe(job->params.text[WEFT_PARAM_ID],
                     WEFT_PARAM_TEXT_LEN); /* it was read, it holds the secret */
    status = weft_comm_bind(&job->params);
    status = status == WEFT_OK ? job_start(job, spec) : status;
    if (spec->door != NULL) {
        weft_control_door_close(spec->door); /* what the start did not take */
    }
    if (status == WEFT_OK) {
        memcpy(&seed, spec->self.job, sizeof(seed));
        status = comm_new(job, NULL, derive_id(job, seed, spec->self.epoch, 0), NULL,
                          spec->self.ranks, comm_p);
    }
    if (status != WEFT_OK) {
        weft_comm_job_close(job);
        return status;
    }
    (*comm_p)->rank = spec->self.rank;
    return WEFT_OK;
}

/* ---- split ---- */

struct choice {
    int32_t colour, key;
};

struct candidate {
    int32_t key;
    uint32_t rank;
};

static int by_key(const void *left, const void *right)
{
    const struct candidate *a = left;
    const struct candidate *b = right;
    if (a->key != b->key) {
        return a->key < b->key ? -1 : 1;
    }
    return a->rank < b->rank ? -1 : a->rank > b->rank;
}

/* Who gave this colour, in order; *count_p of them in *members_p (ranks of the job). */
static weft_status_t pick_members(const struct weft_comm *comm, const struct choice *choices,
                                  int32_t colour, uint32_t **members_p, uint32_t *count_p,
                                  uint32_t *rank_p)
{
    struct candidate *candidates = malloc(comm->ranks * sizeof(*candidates));
    uint32_t *members = malloc(comm->ranks * sizeof(*members));
    uint32_t count = 0;
    if (candidates == NULL || members == NULL) {
        free(candidates);
        free(members);
        return weft_fail(WEFT_ERR_MEMORY, "no memory to split %u ranks", comm->ranks);
    }
    for (uint32_t rank = 0; rank < comm->ranks; rank++) {
        if (choices[rank].colour == colour) {
            candidates[count++] = (struct candidate){.key = choices[rank].key, .rank = rank};
        }
    }
    qsort(candidates, count, sizeof(*candidates), by_key);
    for (uint32_t i = 0; i < count; i++) {
        members[i] = weft_comm_job_rank(comm, candidates[i].rank);
        if (candidates[i].rank == comm->rank) {
            *rank_p = i;
        }
    }
    free(candidates);
    *members_p = members;
    *count_p = count;
    return WEFT_OK;
}

static weft_status_t split_by(struct weft_comm *comm, const struct choice *choices, int32_t colour,
                              struct weft_comm **comm_p)
{
    uint32_t *members = NULL;
    uint32_t count = 0;
    uint32_t rank = 0;
    uint64_t id = derive_id(comm->job, comm->id, ++comm->splits, (uint32_t)colour);
    weft_status_t status;
    if (colour < 0) {
        *comm_p = NULL;
        return WEFT_OK;
    }
    status = pick_members(comm, choices, colour, &members, &count, &rank);
    if (status != WEFT_OK) {
        return status;
    }
    status = comm_new(comm->job, comm, id, members, count, comm_p);
    if (status != WEFT_OK) {
        free(members);
        return status;
    }
    (*comm_p)->rank = rank;
    (*comm_p)->timeout_ms = comm->timeout_ms;
    comm->open_children++;
    return WEFT_OK;
}

static weft_status_t split(struct weft_comm *comm, enum weft_control_purpose purpose,
                           struct choice mine, struct weft_comm **comm_p)
{
    struct choice *choices = malloc(comm->ranks * sizeof(*choices));
    const struct weft_control_gather gather = {
        .purpose = purpose, .mine = &mine, .len = sizeof(mine), .all = choices};
    weft_status_t status;
    if (choices == NULL) {
        return weft_fail(WEFT_ERR_MEMORY, "no memory to split %u ranks", comm->ranks);
    }
    status = weft_control_gather_wait(comm->channel, &gather, comm->timeout_ms);
    if (status == WEFT_OK) {
        status = split_by(comm, choices, mine.colour, comm_p);
    }
    free(choices);
    return status;
}

weft_status_t weft_comm_split_off(struct weft_comm *comm, int colour, int key,
                                  struct weft_comm **comm_p)
{
    const struct choice mine = {.colour = colour < 0 ? -1 : colour, .key = key};
    return split(comm, WEFT_PURPOSE_SPLIT, mine, comm_p);
}

weft_status_t weft_comm_copy(struct weft_comm *comm, struct weft_comm **comm_p)
{
    const struct choice mine = {.colour = 0, .key = (int32_t)comm->rank};
    return split(comm, WEFT_PURPOSE_DUPLICATE, mine, comm_p);
}

/* ---- shrink ---- */

/* Equal on all who got the same answer. */
static uint32_t mix_ranks(const uint32_t *ranks, uint32_t count)
{
    uint32_t hash = 0x811c9dc5u;
    for (uint32_t i = 0; i < count; i++) {
        hash = (hash ^ ranks[i]) * 0x01000193u;
    }
    return hash;
}

weft_status_t weft_comm_shrink_to(struct weft_comm *comm, struct weft_comm **comm_p)
{
    uint32_t *members = malloc(comm->ranks * sizeof(*members));
    uint32_t mine = weft_comm_job_rank(comm, comm->rank);
    uint32_t number = comm->shrinks + 1;
    uint32_t count = 0;
    uint64_t id;
    weft_status_t status =
        members != NULL
            ? weft_control_shrink_wait(comm->channel, number, members, &count, comm->timeout_ms)
            : weft_fail(WEFT_ERR_MEMORY, "no memory to shrink %u ranks", comm->ranks);
    if (status == WEFT_OK) {
        comm->shrinks = number; /* who got no answer asks for the same one again */
        id = derive_id(comm->job, comm->id, SHRINK_BIT | number, mix_ranks(members, count));
        status = comm_new(comm->job, comm, id, members, count, comm_p);
    }
    if (status != WEFT_OK) {
        free(members);
        return status;
    }
    for (uint32_t i = 0; i < count; i++) {
        (*comm_p)->rank = members[i] == mine ? i : (*comm_p)->rank;
    }
    (*comm_p)->timeout_ms = comm->timeout_ms;
    comm->open_children++;
    return WEFT_OK;
}

/* ---- facts and the end ---- */

void weft_comm_local_ranks(const struct weft_comm *comm, int *local_rank_p, int *local_ranks_p)
{
    uint32_t mine = weft_comm_job_rank(comm, comm->rank);
    int here = 0;
    for (uint32_t rank = 0; rank < comm->ranks; rank++) {
        uint32_t other = weft_comm_job_rank(comm, rank);
        if (rank == comm->rank) {
            *local_rank_p = here;
        }
        here += weft_control_is_same_host(comm->job->control, mine, other);
    }
    *local_ranks_p = here;
}

void weft_comm_tie_open(struct weft_comm *comm, struct weft_comm_tie *tie)
{
    tie->comm = comm;
    tie->request = NULL;
    weft_list_open(&tie->node);
    weft_engine_lock(comm->job->engine);
    weft_list_append(&comm->ties, &tie->node);
    weft_engine_unlock(comm->job->engine);
}

void weft_comm_tie_close(struct weft_comm_tie *tie)
{
    struct weft_comm *comm = tie->comm;
    if (comm != NULL) {
        weft_engine_lock(comm->job->engine);
        weft_list_remove(&tie->node);
        weft_engine_unlock(comm->job->engine);
    }
}

/* The requests of its operations have ended with its messages. */
static void cut_ties(struct weft_comm *comm)
{
    struct weft_list *node;
    weft_engine_lock(comm->job->engine);
    while ((node = weft_list_take(&comm->ties)) != NULL) {
        struct weft_comm_tie *tie = WEFT_CONTAINER_OF(node, struct weft_comm_tie, node);
        tie->comm = NULL;
        tie->request = NULL;
    }
    weft_engine_unlock(comm->job->engine);
}

weft_status_t weft_comm_abort(struct weft_comm *comm, const char *reason)
{
    weft_status_t status;
    atomic_fetch_add(&comm->aborting, 1);
    status = weft_control_channel_abort(comm->channel, reason);
    weft_comm_dump_await(comm->job); /* after it programs end */
    atomic_fetch_sub_explicit(&comm->aborting, 1, memory_order_release);
    return status;
}

/* Calls fail before it returns that aborted them, and who closes for that may be quicker. */
static void await_aborts(struct weft_comm *comm)
{
    const _Atomic uint32_t never = 0;
    while (atomic_load_explicit(&comm->aborting, memory_order_acquire) > 0) {
        weft_engine_wait(comm->job->engine, &never, weft_clock_after_ms(1));
    }
}

weft_status_t weft_comm_end(struct weft_comm *comm)
{
    weft_status_t status;
    uint64_t record;
    char text[WEFT_ERROR_TEXT_LEN] = "";
    if (comm->open_children > 0) {
        return weft_fail(
            WEFT_ERR_BUSY,
            "%u communicators split off from this one are still open; close them first",
            comm->open_children);
    }
    await_aborts(comm);
    record = weft_comm_record_closing(comm);
    if (weft_control_channel_status(comm->channel) != WEFT_OK) {
        weft_control_await_word(comm->job->control); /* lanes may be quicker to say that we close */
    }
    weft_comm_collectives_end(comm);
    status = weft_comm_messages_end(comm);
    if (status != WEFT_OK) {
        snprintf(text, sizeof(text), "%s", weft_error_text()); /* what follows may have its own */
    }
    cut_ties(comm);
    weft_comm_record_close(comm);
    weft_control_channel_close(comm->channel);
    if (comm->parent != NULL) {
        weft_recorder_end(&comm->job->recorder, record, status); /* else it goes with the job */
        comm->parent->open_children--;
    } else {
        weft_comm_job_close(comm->job);
    }
    free(comm->members);
    comm->magic = 0;
    free(comm);
    return status == WEFT_OK ? WEFT_OK : weft_fail(status, "%s", text);
}
