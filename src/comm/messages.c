/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where messages meet the control plane: p2p is told who is gone and which communicator has ended, its
 * links call each other over the tree, and a deadline that passes ends the communicator on all ranks.
 */
#include "comm/internal.h"
#include "topo/topo.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define NICS_MS 20 /* after the start, where every microsecond counts */

static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER; /* of weft_comm.messages */

/* ---- from the control plane to p2p ---- */

static struct weft_job *job_of(struct weft_control_observer *observer)
{
    return WEFT_CONTAINER_OF(observer, struct weft_job, observer);
}

static void called(struct weft_control_observer *observer, uint32_t from, const uint8_t *payload,
                   size_t len)
{
    struct weft_job *job = job_of(observer);
    if (len > 0 && payload[0] == WEFT_WIRE_CALLING_KIND) {
        weft_comm_calling_arrived(job, from, payload, len);
    } else {
        weft_p2p_called(job->p2p, from, payload, len);
    }
}

static void gone(struct weft_control_observer *observer, uint32_t rank, weft_status_t status,
                 const char *text)
{
    weft_p2p_gone(job_of(observer)->p2p, rank, status, text);
}

static bool reaches(struct weft_control_observer *observer, uint32_t rank, bool *is_alive_p)
{
    return weft_p2p_reaches(job_of(observer)->p2p, rank, is_alive_p);
}

static void ended(struct weft_control_observer *observer,
                  const struct weft_control_failure *failure)
{
    struct weft_p2p *p2p = job_of(observer)->p2p;
    uint64_t channel = failure->channel;
    weft_comm_dump_failure(job_of(observer), failure); /* before anybody returns with it */
    weft_p2p_ended(p2p, channel, failure->status, failure->text);
    weft_p2p_ended(p2p, channel ^ WEFT_COMM_COLLECTIVE, failure->status, failure->text);
}

/* ---- from p2p to the control plane ---- */

static bool call(void *context, uint32_t to, const void *payload, size_t len)
{
    const struct weft_job *job = context;
    return weft_control_call(job->control, to, payload, len);
}

static void name(void *context, uint32_t rank, char *text, size_t room)
{
    const struct weft_job *job = context;
    weft_control_name_rank(job->control, rank, text, room);
}

static bool is_gone(void *context, uint32_t rank)
{
    const struct weft_job *job = context;
    return weft_control_is_gone(job->control, rank);
}

static bool is_ending(void *context, uint32_t rank)
{
    const struct weft_job *job = context;
    return weft_control_is_ending(job->control, rank);
}

static void fail(void *context, const struct weft_p2p_failure *failure, bool is_final)
{
    const struct weft_job *job = context;
    const struct weft_control_failure told = {.channel = failure->comm,
                                              .status = failure->status,
                                              .rank = failure->rank,
                                              .text = failure->text};
    weft_control_fail(job->control, &told, is_final);
}

/* One address alone: on loopback when nobody is elsewhere, else where the root would reach us. */
static weft_status_t choose_addr(const struct weft_job *job, struct sockaddr_storage *addr_p)
{
    const char *filter = job->params.text[WEFT_PARAM_SOCKET_IFNAME];
    int family = weft_comm_family(&job->params);
    struct sockaddr_storage root;
    if (filter[0] == '\0' && job->local_count == job->self.ranks && family != AF_INET6) {
        struct sockaddr_in *loopback = (struct sockaddr_in *)addr_p;
        *loopback =
            (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        return WEFT_OK;
    }
    if (filter[0] == '\0' && weft_control_tree_root_addr(job->control, &root) &&
        weft_topo_route(&root, addr_p) == WEFT_OK) {
        return WEFT_OK;
    }
    return weft_topo_pick(filter, family, addr_p);
}

/* All that carry data, when there are ranks elsewhere. */
static void list_nics(struct weft_job *job)
{
    struct weft_topo_iface *found = NULL;
    unsigned count = 0;
    weft_status_t status = WEFT_OK;
    if (job->local_count < job->self.ranks) {
        status = weft_topo_data_nics("", job->params.text[WEFT_PARAM_SOCKET_IFNAME],
                                     weft_comm_family(&job->params), &found, &count);
    }
    job->nic_count = count < WEFT_LINK_NICS ? count : WEFT_LINK_NICS;
    for (uint32_t i = 0; status == WEFT_OK && i < job->nic_count; i++) {
        struct weft_link_nic *nic = &job->nics[i];
        memcpy(nic->name, found[i].name, sizeof(nic->name));
        nic->addr = found[i].addr.addr;
        nic->prefix_len = found[i].addr.prefix_len;
    }
    free(found);
}

static void nics_due(struct weft_engine_timer *timer, uint64_t now_ns)
{
    struct weft_job *job = WEFT_CONTAINER_OF(timer, struct weft_job, nics_timer);
    (void)now_ns;
    if (job->nic_count == 0) {
        list_nics(job);
    }
}

/* Several are those of the start: one that has lost its carrier before the first message is still a path, and comes
 * back; and what the routes say of the root may lead to just that one. */
static weft_status_t choose_nics(void *context, struct weft_link_nic nics[WEFT_LINK_NICS],
                                 uint32_t *count_p)
{
    struct weft_job *job = context;
    if (job->nic_count < 2) {
        list_nics(job); /* others may have come up */
    }
    if (job->nic_count < 2) {
        *count_p = 1;
        nics[0] = (struct weft_link_nic){.name = ""};
        if (job->nic_count > 0) {
            memcpy(nics[0].said, job->nics[0].name, sizeof(nics[0].said));
        }
        return choose_addr(job, &nics[0].addr);
    }
    *count_p = job->nic_count;
    memcpy(nics, job->nics, job->nic_count * sizeof(*nics));
    return WEFT_OK;
}

void weft_comm_find_nics(const struct weft_job *job, uint32_t *count_p, uint32_t *mbps_p)
{
    struct weft_topo_iface *found = NULL;
    unsigned count = 0;
    *count_p = *mbps_p = 0;
    if (weft_topo_data_nics("", job->params.text[WEFT_PARAM_SOCKET_IFNAME],
                            weft_comm_family(&job->params), &found, &count) != WEFT_OK) {
        return;
    }
    *count_p = count < WEFT_LINK_NICS ? count : WEFT_LINK_NICS;
    for (uint32_t i = 0; i < *count_p; i++) {
        uint32_t mbps = found[i].speed_mbps > 0 ? (uint32_t)found[i].speed_mbps : 0;
        *mbps_p = i == 0 || mbps < *mbps_p ? mbps : *mbps_p;
    }
    free(found);
}

static uint32_t nics(struct weft_control_observer *observer,
                     struct weft_control_nic nics[WEFT_CONTROL_NICS])
{
    struct weft_link_nic found[WEFT_LINK_NICS];
    uint32_t count = 0;
    if (choose_nics(job_of(observer), found, &count) != WEFT_OK) {
        return 0;
    }
    count = count < WEFT_CONTROL_NICS ? count : WEFT_CONTROL_NICS;
    for (uint32_t i = 0; i < count; i++) {
        memcpy(nics[i].name, found[i].name, sizeof(nics[i].name));
        nics[i].addr = found[i].addr;
        nics[i].prefix_len = found[i].prefix_len;
    }
    return count;
}

/* ---- life ---- */

static weft_status_t find_local_ranks(struct weft_job *job)
{
    job->local_ranks = malloc(job->self.ranks * sizeof(*job->local_ranks));
    if (job->local_ranks == NULL) {
        return weft_fail(WEFT_ERR_MEMORY, "no memory for %u ranks", job->self.ranks);
    }
    for (uint32_t rank = 0; rank < job->self.ranks; rank++) {
        if (weft_control_is_same_host(job->control, job->self.rank, rank)) {
            job->local_ranks[job->local_count++] = rank;
        }
    }
    return WEFT_OK;
}

weft_status_t weft_comm_messages_open(struct weft_job *job)
{
    enum { AUTO, SHM, TCP }; /* of WEFT_PATH, as in the table of settings */
    int64_t path = job->params.number[WEFT_PARAM_PATH];
    weft_status_t status = find_local_ranks(job);
    struct weft_p2p_spec spec = {
        .links = {.port = {.engine = job->engine,
                           .params = &job->params,
                           .self = &job->self,
                           .local_ranks = job->local_ranks,
                           .local_count = job->local_count},
                  .has_shm = path != TCP,
                  .has_tcp = path != SHM,
                  .choose_nics = choose_nics,
                  .nics_context = job},
        .is_crowded = job->local_count > weft_comm_cpus(),
        .recorder = &job->recorder,
        .context = job,
        .call = call,
        .name = name,
        .is_gone = is_gone,
        .is_ending = is_ending,
        .fail = fail,
        .verdict_ms = weft_control_verdict_ms(job->control),
    };
    status = status == WEFT_OK ? weft_p2p_open(&spec, &job->p2p) : status;
    if (status == WEFT_OK) {
        job->observer = (struct weft_control_observer){
            .called = called, .gone = gone, .ended = ended, .reaches = reaches, .nics = nics};
        weft_control_observe(job->control, &job->observer);
        weft_engine_lock(job->engine);
        weft_engine_timer_open(&job->nics_timer, nics_due);
        if (job->local_count < job->self.ranks) {
            weft_engine_timer_set(job->engine, &job->nics_timer, weft_clock_after_ms(NICS_MS));
        }
        weft_engine_unlock(job->engine);
    }
    return status;
}

void weft_comm_messages_close(struct weft_job *job)
{
    if (job->control != NULL && job->p2p != NULL) {
        weft_control_observe(job->control, NULL);
        weft_engine_lock(job->engine);
        weft_engine_timer_cancel(job->engine, &job->nics_timer);
        weft_engine_unlock(job->engine);
    }
    weft_p2p_close(job->p2p);
    free(job->local_ranks);
    job->p2p = NULL;
    job->local_ranks = NULL;
}

static weft_status_t make_messages(struct weft_comm *comm)
{
    struct weft_p2p_comm *messages;
    weft_status_t status = weft_control_channel_status(comm->channel);
    (void)weft_comm_recorder(comm);
    status = status == WEFT_OK ? weft_control_engage(comm->job->control) : status;
    status = status == WEFT_OK ? weft_p2p_comm_open(comm->job->p2p, comm->id, comm->rank,
                                                    comm->ranks, comm->members, &messages)
                               : status;
    if (status == WEFT_OK) {
        weft_p2p_comm_set_timeout(messages, comm->timeout_ms);
        atomic_store(&comm->messages, messages);
        /* It may have ended while nobody listened for it. */
        if (weft_control_channel_status(comm->channel) != WEFT_OK) {
            weft_engine_lock(comm->job->engine);
            weft_p2p_ended(comm->job->p2p, comm->id, weft_control_channel_status(comm->channel),
                           weft_error_text());
            weft_engine_unlock(comm->job->engine);
        }
    }
    return status;
}

struct weft_p2p_comm *weft_comm_messages(struct weft_comm *comm, weft_status_t *status_p)
{
    struct weft_p2p_comm *messages = atomic_load_explicit(&comm->messages, memory_order_acquire);
    if (messages != NULL) {
        return messages;
    }
    pthread_mutex_lock(&making);
    *status_p = atomic_load(&comm->messages) == NULL ? make_messages(comm) : WEFT_OK;
    pthread_mutex_unlock(&making);
    return atomic_load(&comm->messages);
}

weft_status_t weft_comm_messages_end(struct weft_comm *comm)
{
    struct weft_p2p_comm *messages = atomic_load(&comm->messages);
    if (messages != NULL) {
        return weft_p2p_comm_close(messages);
    }
    if (comm->job->p2p != NULL) {
        weft_engine_lock(comm->job->engine);
        weft_p2p_forget(comm->job->p2p, comm->id);
        weft_p2p_say_closed(comm->job->p2p, comm->id, comm->members, comm->ranks);
        weft_engine_unlock(comm->job->engine);
    }
    return WEFT_OK;
}

void weft_comm_timeout(struct weft_comm *comm, uint32_t timeout_ms)
{
    struct weft_p2p_comm *messages;
    pthread_mutex_lock(&making);
    comm->timeout_ms =
        timeout_ms != 0 ? timeout_ms : (uint64_t)comm->job->params.number[WEFT_PARAM_TIMEOUT];
    messages = atomic_load(&comm->messages);
    if (messages != NULL) {
        weft_p2p_comm_set_timeout(messages, comm->timeout_ms);
    }
    pthread_mutex_unlock(&making);
}
