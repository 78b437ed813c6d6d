/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the root is and what the job is called.
 *
 *   launcher   root, when WEFT_ROOT and WEFT_ID are not set      job name, when WEFT_JOB is not set
 *   ---------  ------------------------------------------------  ----------------------------------
 *   own        this host, if all ranks are here                  WEFT_ROOT, or this user
 *   torchrun   MASTER_ADDR; WEFT_PORT, or MASTER_PORT+1 … +16    run id, MASTER_ADDR:MASTER_PORT
 *   Slurm      first host of the step; 16 ports from the name    job, step, restart count
 *   Open MPI   this host, if all ranks are here                  the job's PMIx namespace
 *   PMI        this host, if all ranks are here                  the process that serves PMI here
 *
 * The name must be the same on all ranks and differ between jobs. torchrun's restart count is left
 * out on purpose: agents count only their own failures, so after one worker's death the hosts
 * disagree.
 */
#include "comm/launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PORTS_FIRST 20000 /* Slurm: below the ephemeral ports, above those of services */
#define PORTS_LAST 29999

struct range {
    int first, last;
};

struct job {
    const struct weft_params *params;
    weft_launch_getenv_fn get;
    void *context;
    struct weft_launch *launch;
};

/* "" when not set, so that it can be printed */
static const char *value_of(const struct job *job, const char *name)
{
    const char *value = job->get(name, job->context);

    return value != NULL ? value : "";
}

/* A port from 1 to 65535 at the front of text; NULL: none. */
static const char *read_port(const char *text, int *port_p)
{
    int port = 0;
    const char *at = text;

    for (; *at >= '0' && *at <= '9' && port <= 65535; at++) {
        port = port * 10 + (*at - '0');
    }
    if (at == text || port < 1 || port > 65535) {
        return NULL;
    }
    *port_p = port;
    return at;
}

/* False: ERR_INVALID, said. */
static bool read_range(const struct weft_params *params, struct range *range_p)
{
    const char *text = params->text[WEFT_PARAM_PORT_RANGE];
    struct range range = {PORTS_FIRST, PORTS_LAST};

    if (text[0] != '\0') {
        const char *at = read_port(text, &range.first);
        at = at != NULL && *at == '-' ? read_port(at + 1, &range.last) : NULL;
        if (at == NULL || *at != '\0' || range.first > range.last) {
            weft_fail(WEFT_ERR_INVALID,
                      "WEFT_PORT_RANGE=%s: expected first-last, such as 20000-20999", text);
            return false;
        }
    }
    *range_p = range;
    return true;
}

/* The one port that was asked for; it must be one that a firewall lets through. */
static weft_status_t take_port(const struct job *job, const char *name, int port)
{
    struct range range;

    if (!read_range(job->params, &range)) {
        return WEFT_ERR_INVALID;
    }
    if (job->params->text[WEFT_PARAM_PORT_RANGE][0] != '\0' &&
        (port < range.first || port > range.last)) {
        return weft_fail(WEFT_ERR_INVALID, "%s asks for port %d, but WEFT_PORT_RANGE=%s", name,
                         port, job->params->text[WEFT_PARAM_PORT_RANGE]);
    }
    job->launch->port[0] = (uint16_t)port;
    job->launch->port_count = 1;
    return WEFT_OK;
}

/* 16 neighbours, from the job's name: jobs that fall on the same ones share them by trying on. */
static weft_status_t spread_ports(const struct job *job)
{
    struct range range;
    uint64_t hash = UINT64_C(14695981039346656037); /* FNV-1a */

    if (!read_range(job->params, &range)) {
        return WEFT_ERR_INVALID;
    }
    for (const char *at = job->launch->job_name; *at != '\0'; at++) {
        hash = (hash ^ (uint8_t)*at) * UINT64_C(1099511628211);
    }
    unsigned span = (unsigned)(range.last - range.first) + 1;
    unsigned count = span < WEFT_LAUNCH_PORTS ? span : WEFT_LAUNCH_PORTS;
    unsigned block = (unsigned)((hash >> 32) % (span / count));
    for (unsigned i = 0; i < count; i++) {
        job->launch->port[i] = (uint16_t)((unsigned)range.first + block * count + i);
    }
    job->launch->port_count = count;
    return WEFT_OK;
}

static weft_status_t take_host(const struct job *job, const char *name, const char *host,
                               size_t len)
{
    if (len == 0 || len >= sizeof(job->launch->host)) {
        return weft_fail(WEFT_ERR_INVALID, "%s: a host name has 1 to %zu characters", name,
                         sizeof(job->launch->host) - 1);
    }
    memcpy(job->launch->host, host, len);
    job->launch->host[len] = '\0';
    return WEFT_OK;
}

/* host:port, [v6]:port, or a host alone together with WEFT_PORT */
static weft_status_t own_root(const struct job *job)
{
    const char *text = job->params->text[WEFT_PARAM_ROOT];
    int wanted = (int)job->params->number[WEFT_PARAM_PORT];
    bool is_bracketed = text[0] == '[';
    const char *host = is_bracketed ? text + 1 : text;
    size_t len = strcspn(host, is_bracketed ? "]" : ":");
    const char *rest = host + len + (is_bracketed && host[len] == ']' ? 1 : 0);
    int port = wanted;

    if (*rest == ':') {
        const char *end = read_port(rest + 1, &port);
        rest = end != NULL ? end : rest;
    }
    if (*rest != '\0' || (is_bracketed && host[len] != ']')) {
        return weft_fail(WEFT_ERR_INVALID, "WEFT_ROOT=%s: expected host:port or [v6]:port", text);
    }
    if (port == 0) {
        return weft_fail(WEFT_ERR_INVALID,
                         "WEFT_ROOT=%s has no port: write host:port, or set WEFT_PORT", text);
    }
    if (wanted != 0 && wanted != port) {
        return weft_fail(WEFT_ERR_INVALID, "WEFT_ROOT=%s contradicts WEFT_PORT=%d: unset one", text,
                         wanted);
    }
    weft_status_t status = take_host(job, "WEFT_ROOT", host, len);
    return status == WEFT_OK ? take_port(job, "WEFT_ROOT", port) : status;
}

static weft_status_t torch_root(const struct job *job)
{
    const char *host = value_of(job, "MASTER_ADDR");
    int wanted = (int)job->params->number[WEFT_PARAM_PORT];
    int store, count = 0;

    if (host[0] == '\0') {
        return weft_fail(WEFT_ERR_INVALID, "MASTER_ADDR is not set: it names the host of rank 0");
    }
    weft_status_t status = take_host(job, "MASTER_ADDR", host, strlen(host));
    if (status != WEFT_OK || wanted != 0) {
        return status == WEFT_OK ? take_port(job, "WEFT_PORT", wanted) : status;
    }
    if (job->params->text[WEFT_PARAM_PORT_RANGE][0] != '\0') {
        return spread_ports(job);
    }
    status = weft_launch_number(job->get, job->context, "MASTER_PORT", &store);
    if (status != WEFT_OK) {
        return status;
    }
    /* MASTER_PORT itself is taken by torch's store */
    for (int port = store + 1; store > 0 && port <= 65535 && count < WEFT_LAUNCH_PORTS; port++) {
        job->launch->port[count++] = (uint16_t)port;
    }
    job->launch->port_count = (unsigned)count;
    if (count == 0) {
        return weft_fail(WEFT_ERR_INVALID, "MASTER_PORT=%s leaves no port above it: set WEFT_PORT",
                         value_of(job, "MASTER_PORT"));
    }
    return WEFT_OK;
}

static weft_status_t slurm_root(const struct job *job)
{
    static const char *const names[] = {"SLURM_STEP_NODELIST", "SLURM_NODELIST",
                                        "SLURM_JOB_NODELIST"};
    int wanted = (int)job->params->number[WEFT_PARAM_PORT];

    for (size_t i = 0; i < WEFT_COUNT_OF(names); i++) {
        const char *list = value_of(job, names[i]);
        if (list[0] == '\0') {
            continue;
        }
        weft_status_t status =
            weft_launch_first_host(list, job->launch->host, sizeof(job->launch->host));
        if (status != WEFT_OK) {
            return weft_fail(status, "%s=%.200s: expected hosts such as gpu[07-09,12],login1",
                             names[i], list);
        }
        return wanted != 0 ? take_port(job, "WEFT_PORT", wanted) : spread_ports(job);
    }
    return weft_fail(WEFT_ERR_INVALID, "SLURM_STEP_NODELIST is not set: set WEFT_ROOT=host:port");
}

/* Launchers that name no root: fine when nobody needs an address. */
static weft_status_t here_or_nowhere(const struct job *job)
{
    struct weft_launch *launch = job->launch;
    bool has_listener = job->params->number[WEFT_PARAM_LISTEN_FD] >= 0;

    if (launch->local_ranks == launch->ranks || launch->ranks == 1 || has_listener) {
        launch->is_one_host = true;
        return WEFT_OK;
    }
    if (launch->local_ranks < 0) {
        return weft_fail(
            WEFT_ERR_INVALID,
            "nothing says where rank 0 listens: set WEFT_ROOT=host:port (or, when all %d "
            "ranks are on this host, WEFT_LOCAL_RANKS=%d)",
            launch->ranks, launch->ranks);
    }
    return weft_fail(WEFT_ERR_INVALID,
                     "%d of %d ranks are on this host and nothing says where rank 0 listens: set "
                     "WEFT_ROOT=host:port",
                     launch->local_ranks, launch->ranks);
}

/* The process that serves PMI on this host. The socket's other end tells it even through wrapper
 * scripts; without the socket it is our parent. Only good on one host. */
static pid_t pmi_server(const struct job *job)
{
    struct ucred peer;
    socklen_t len = sizeof(peer);
    int fd;

    if (weft_launch_number(job->get, job->context, "PMI_FD", &fd) == WEFT_OK && fd >= 0 &&
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 && peer.pid > 0) {
        return peer.pid;
    }
    return getppid();
}

/* The part of the name that the launcher gives. */
static int print_name(const struct job *job, char *text, size_t room)
{
    const struct weft_launch *launch = job->launch;
    const char *launcher = weft_launcher_name(launch->launcher);
    const char *root = job->params->text[WEFT_PARAM_ROOT];
    const char *space = value_of(job, "PMIX_NAMESPACE");

    switch (launch->launcher) {
    case WEFT_LAUNCHER_TORCHRUN:
        return snprintf(text, room, "%s %s %s:%s %s", launcher,
                        value_of(job, "TORCHELASTIC_RUN_ID"), value_of(job, "MASTER_ADDR"),
                        value_of(job, "MASTER_PORT"), root);
    case WEFT_LAUNCHER_SLURM:
        return snprintf(text, room, "%s %s.%s.%s %s", launcher, value_of(job, "SLURM_JOB_ID"),
                        value_of(job, "SLURM_STEP_ID"), value_of(job, "SLURM_RESTART_COUNT"), root);
    case WEFT_LAUNCHER_OPENMPI:
        space = space[0] != '\0' ? space : value_of(job, "OMPI_MCA_ess_base_jobid");
        if (space[0] != '\0' || root[0] != '\0') {
            return snprintf(text, room, "%s %s %s", launcher, space, root);
        }
        break;
    default:
        break;
    }
    if (root[0] != '\0') {
        return snprintf(text, room, "%s %s", launcher, root);
    }
    if (launch->launcher != WEFT_LAUNCHER_OWN) {
        return snprintf(text, room, "%s process %d", launcher, (int)pmi_server(job));
    }
    /* by hand, on one host: one job per user, unless it is alone */
    return snprintf(text, room, "%s user %u process %d", launcher, (unsigned)getuid(),
                    launch->ranks == 1 ? (int)getpid() : 0);
}

static weft_status_t name_job(const struct job *job)
{
    char *name = job->launch->job_name;
    size_t room = sizeof(job->launch->job_name);
    const char *own = job->params->text[WEFT_PARAM_JOB];
    int len = own[0] != '\0' ? snprintf(name, room, "%s", own) : print_name(job, name, room);

    if (len < 0 || (size_t)len >= room) {
        return weft_fail(WEFT_ERR_INVALID,
                         "the %s launcher's names are too long to tell jobs apart: set WEFT_JOB",
                         weft_launcher_name(job->launch->launcher));
    }
    return WEFT_OK;
}

weft_status_t weft_launch_root(const struct weft_params *params, weft_launch_getenv_fn get,
                               void *context, struct weft_launch *launch)
{
    const struct job job = {params, get, context, launch};
    weft_status_t status = name_job(&job);

    if (status != WEFT_OK) {
        return status;
    }
    if (params->text[WEFT_PARAM_ID][0] != '\0') {
        if (params->text[WEFT_PARAM_ROOT][0] != '\0') {
            return weft_fail(
                WEFT_ERR_INVALID,
                "WEFT_ID (not shown: it holds the secret) and WEFT_ROOT=%s both say where "
                "rank 0 is: unset one",
                params->text[WEFT_PARAM_ROOT]);
        }
        launch->id_text = params->text[WEFT_PARAM_ID];
        return WEFT_OK;
    }
    if (params->text[WEFT_PARAM_ROOT][0] != '\0') {
        return own_root(&job);
    }
    switch (launch->launcher) {
    case WEFT_LAUNCHER_TORCHRUN:
        return torch_root(&job);
    case WEFT_LAUNCHER_SLURM:
        return slurm_root(&job);
    default:
        return here_or_nowhere(&job);
    }
}
