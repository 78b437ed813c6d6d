/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Joining by what a launcher's environment says. Here nobody made an id beforehand: rank 0 opens
 * its door when it comes, at the address the others were told of (or at its local socket when all
 * are on one host), and who comes before it dials again. The same job may start several times in
 * one process; each start is an epoch.
 */
#include "comm/internal.h"
#include "comm/launch.h"
#include "topo/topo.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static const char *from_process(const char *name, void *context)
{
    (void)context;
    return getenv(name);
}

/* How often this process has joined a job by its environment: all ranks count alike. */
static _Atomic uint32_t starts;

static void say_unauthenticated(const struct weft_launch *launch)
{
    static _Atomic bool has_said;
    if (launch->rank == 0 && !atomic_exchange(&has_said, true)) {
        weft_log(comm, WARN,
                 "this job has no secret: whoever reaches its root may join; set WEFT_SECRET_FILE "
                 "or use weft run");
    }
}

static weft_status_t find_keys(struct weft_job *job, const struct weft_launch *launch,
                               struct weft_control_spec *spec)
{
    uint8_t *secret = weft_secret_take();
    weft_status_t status;
    if (secret == NULL) {
        return weft_fail(WEFT_ERR_MEMORY, "no memory for the secret");
    }
    status = weft_launch_secret(&job->params, secret, &spec->self.is_authenticated);
    if (status == WEFT_OK) {
        status = weft_comm_job_key(spec->self.is_authenticated ? secret : NULL, launch->job_name,
                                   spec->self.job, job->key);
    }
    weft_secret_give(secret);
    weft_secret_scrub_stack();
    if (status == WEFT_OK && !spec->self.is_authenticated) {
        say_unauthenticated(launch);
    }
    return status;
}

/* ---- rank 0 ---- */

static bool is_loopback(const struct sockaddr_storage *addr)
{
    const struct sockaddr_in *in = (const struct sockaddr_in *)addr;
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)addr;
    return addr->ss_family == AF_INET ? *(const uint8_t *)&in->sin_addr == 127
                                      : IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr);
}

static bool is_wildcard(const struct sockaddr_storage *addr)
{
    const struct sockaddr_in *in = (const struct sockaddr_in *)addr;
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)addr;
    return addr->ss_family == AF_INET ? in->sin_addr.s_addr == INADDR_ANY
                                      : IN6_IS_ADDR_UNSPECIFIED(&in6->sin6_addr);
}

/* Does an interface with this address pass the filter? *is_ours_p: is there one at all? */
static weft_status_t ask_interfaces(const struct sockaddr_storage *addr, const char *filter,
                                    bool *is_ours_p, bool *passes_p)
{
    struct weft_topo_nic *nics = NULL;
    unsigned count = 0;
    weft_status_t status = weft_topo_nics(&nics, &count);
    *is_ours_p = *passes_p = false;
    for (unsigned i = 0; status == WEFT_OK && i < count; i++) {
        if (weft_topo_is_same_addr(&nics[i].addr, addr)) {
            *is_ours_p = true;
            *passes_p |= weft_topo_filter(filter, nics[i].name);
        }
    }
    free(nics);
    return status;
}

/* Where rank 0 listens: the address the others were told, if it is one of ours and on a chosen interface. A name that
 * only means this host's loopback (127.0.1.1 in /etc/hosts) is no use to other hosts. */
static weft_status_t own_addr(const struct weft_job *job, const struct weft_launch *launch,
                              struct sockaddr_storage *addr_p)
{
    const char *filter = job->params.text[WEFT_PARAM_SOCKET_IFNAME];
    int family = weft_comm_family(&job->params);
    bool is_spread = launch->local_ranks >= 0 ? launch->local_ranks < launch->ranks
                                              : launch->launcher == WEFT_LAUNCHER_SLURM;
    bool is_ours, passes;
    weft_status_t status = weft_control_root_resolve(launch->host, 0, family, addr_p);
    status = status == WEFT_OK ? ask_interfaces(addr_p, filter, &is_ours, &passes) : status;
    if (status != WEFT_OK) {
        return status;
    }
    if (is_wildcard(addr_p)) {
        return weft_fail(
            WEFT_ERR_INVALID,
            "the root is at %s, which is no address to listen on: name one of this host's",
            launch->host);
    }
    if (is_loopback(addr_p) && is_spread) {
        return weft_topo_pick(filter, addr_p->ss_family, addr_p);
    }
    if (filter[0] == '\0' || passes || is_loopback(addr_p)) {
        return WEFT_OK;
    }
    if (is_ours) {
        return weft_fail(
            WEFT_ERR_INVALID,
            "the root is at %s, which is on no interface that WEFT_SOCKET_IFNAME=%s allows",
            launch->host, filter);
    }
    return weft_topo_pick(filter, addr_p->ss_family, addr_p);
}

static weft_status_t open_network_door(const struct weft_job *job, const struct weft_launch *launch,
                                       const char *name, struct weft_control_door *door_p)
{
    struct sockaddr_storage addr;
    weft_status_t status = own_addr(job, launch, &addr);
    if (status != WEFT_OK) {
        return status;
    }
    for (unsigned i = 0; i < launch->port_count; i++) {
        weft_control_root_port(&addr, launch->port[i]);
        status = weft_control_door_open(&addr, "", name, door_p);
        if (status != WEFT_ERR_BUSY) {
            break;
        }
    }
    return status;
}

static weft_status_t open_door(const struct weft_job *job, const struct weft_launch *launch,
                               const char *name, struct weft_control_door *door_p)
{
    int inherited = (int)job->params.number[WEFT_PARAM_LISTEN_FD];
    int is_listening = 0;
    socklen_t len = sizeof(is_listening);
    if (inherited < 0) {
        return launch->is_one_host ? weft_control_door_open(NULL, "", name, door_p)
                                   : open_network_door(job, launch, name, door_p);
    }
    if (getsockopt(inherited, SOL_SOCKET, SO_ACCEPTCONN, &is_listening, &len) != 0 ||
        !is_listening) {
        return weft_fail(WEFT_ERR_INVALID,
                         "WEFT_LISTEN_FD=%d is not a listening socket of this process", inherited);
    }
    /* Ours while we live, though not to close: forked children drop it like the rest. */
    fcntl(weft_fd_own(inherited), F_SETFL, O_NONBLOCK);
    fcntl(inherited, F_SETFD, FD_CLOEXEC);
    *door_p = (struct weft_control_door){.tcp = -1, .local = inherited, .is_inherited = true};
    return WEFT_OK;
}

/* ---- the others ---- */

static weft_status_t aim(const struct weft_job *job, const struct weft_launch *launch,
                         struct weft_control_spec *spec)
{
    struct sockaddr_storage addr;
    weft_status_t status;
    spec->is_above_here = launch->is_one_host;
    if (launch->is_one_host) {
        return WEFT_OK;
    }
    status = weft_control_root_resolve(launch->host, 0, weft_comm_family(&job->params), &addr);
    for (unsigned i = 0; status == WEFT_OK && i < launch->port_count; i++) {
        spec->above[i] = addr;
        weft_control_root_port(&spec->above[i], launch->port[i]);
        spec->above_count = i + 1;
    }
    if (status == WEFT_OK && spec->join != WEFT_JOIN_DIRECT) {
        status = weft_topo_is_local(&addr, &spec->is_above_here);
    }
    return status;
}

static weft_status_t prepare(struct weft_job *job, const struct weft_launch *launch,
                             struct weft_control_spec *spec)
{
    weft_status_t status;
    if (launch->ranks > WEFT_RANKS_MAX) {
        return weft_fail(WEFT_ERR_INVALID, "weft_init: %d ranks; at most %d are supported",
                         launch->ranks, WEFT_RANKS_MAX);
    }
    spec->self.rank = (uint32_t)launch->rank;
    spec->self.ranks = (uint32_t)launch->ranks;
    spec->self.epoch = atomic_fetch_add(&starts, 1);
    spec->join = (enum weft_control_join)job->params.number[WEFT_PARAM_JOIN];
    if (spec->join == WEFT_JOIN_AUTO && launch->local_ranks == 1) {
        spec->join = WEFT_JOIN_DIRECT; /* a leader of nobody costs 6 to 24 % */
    }
    status = find_keys(job, launch, spec);
    if (status != WEFT_OK) {
        return status;
    }
    /* One name for all epochs: a listener may be inherited, and challenges say which epoch is
     * served. */
    weft_wire_local_name(job->key, spec->self.job, 0, "root", 0, spec->above_local);
    if (launch->rank == 0) {
        spec->is_root = true;
        return open_door(job, launch, spec->above_local, spec->door);
    }
    spec->door = NULL;
    return aim(job, launch, spec);
}

weft_status_t weft_comm_create_by_environment(const weft_config_t *config,
                                              struct weft_comm **comm_p)
{
    struct weft_control_door door = {.tcp = -1, .local = -1};
    struct weft_control_spec spec = {.door = &door};
    struct weft_launch launch;
    struct weft_job *job;
    weft_id_t id;
    weft_status_t status = weft_comm_job_open(config, &job);
    if (status != WEFT_OK) {
        return status;
    }
    status = weft_launch_detect(&job->params, from_process, NULL, &launch);
    if (status == WEFT_OK && launch.id_text != NULL) {
        status = weft_wire_id_parse(launch.id_text, &id);
        weft_comm_job_close(job);
        status = status == WEFT_OK
                     ? weft_comm_create_by_ids(&id, 1, launch.rank, launch.ranks, config, comm_p)
                     : status;
        weft_secret_wipe(&id, sizeof(id));
        return status;
    }
    status = status == WEFT_OK ? prepare(job, &launch, &spec) : status;
    if (status != WEFT_OK) {
        weft_comm_job_close(job);
        return status;
    }
    return weft_comm_start(job, &spec, comm_p);
}
