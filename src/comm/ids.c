/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ids: making one opens the root's door, and the door waits here, in the process that made it,
 * until a communicator takes it. Several ids share one job: the first one's secret and job count,
 * each serves its own range of ranks.
 */
#include "comm/internal.h"
#include "topo/topo.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct waiting_door {
    struct weft_list node;
    uint8_t job[16]; /* random, and so the id's identity; no secret */
    struct weft_control_door door;
};

static pthread_mutex_t doors_lock = PTHREAD_MUTEX_INITIALIZER;
static struct weft_list doors = {&doors, &doors};
static pthread_once_t forks_watched = PTHREAD_ONCE_INIT;

/* A forked child owns no doors, and another thread may have held the lock. */
static void start_afresh_in_child(void)
{
    pthread_mutex_init(&doors_lock, NULL);
    weft_list_open(&doors);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, start_afresh_in_child);
}

static struct waiting_door *take(const weft_id_t *id)
{
    struct waiting_door *found = NULL;
    struct weft_wire_id wanted;
    if (weft_wire_id_decode(id, &wanted) != WEFT_OK) {
        return NULL;
    }
    weft_secret_wipe(wanted.secret, sizeof(wanted.secret));
    pthread_mutex_lock(&doors_lock);
    for (struct weft_list *node = doors.next; node != &doors; node = node->next) {
        struct waiting_door *waiting = WEFT_CONTAINER_OF(node, struct waiting_door, node);
        if (memcmp(waiting->job, wanted.job, sizeof(wanted.job)) == 0) {
            weft_list_remove(&waiting->node);
            found = waiting;
            break;
        }
    }
    pthread_mutex_unlock(&doors_lock);
    return found;
}

bool weft_comm_door_take(const weft_id_t *id, struct weft_control_door *door_p)
{
    struct waiting_door *waiting = take(id);
    if (waiting == NULL) {
        return false;
    }
    *door_p = waiting->door;
    free(waiting);
    return true;
}

void weft_comm_id_destroy(const weft_id_t *id)
{
    struct weft_control_door door;
    if (weft_comm_door_take(id, &door)) {
        weft_control_door_close(&door);
    }
}

static weft_status_t open_door(const struct weft_params *params, struct weft_wire_id *id,
                               struct weft_control_door *door_p)
{
    struct sockaddr_storage addr;
    char name[WEFT_WIRE_NAME_LEN];
    weft_status_t status =
        weft_topo_pick(params->text[WEFT_PARAM_SOCKET_IFNAME], weft_comm_family(params), &addr);
    if (status != WEFT_OK) {
        return status;
    }
    weft_wire_local_name(id->secret, id->job, id->epoch, "root", 0, name);
    status = weft_control_door_open(&addr, params->text[WEFT_PARAM_PORT_RANGE], name, door_p);
    id->root = door_p->addr;
    return status;
}

/* The secret is made in memory that no core dump shows; the caller's copy is the caller's to guard.
 */
static weft_status_t make_id(const struct weft_params *params, struct waiting_door *waiting,
                             weft_id_t *id_p)
{
    struct weft_wire_id made = {.epoch = 0};
    struct weft_wire_id *id = &made;
    weft_status_t status = weft_random(id->secret, sizeof(id->secret));
    if (status == WEFT_OK) {
        status = weft_random(id->job, sizeof(id->job));
    }
    id->flags = WEFT_WIRE_ID_AUTHENTICATED;
    if (status == WEFT_OK) {
        status = open_door(params, id, &waiting->door);
    }
    if (status == WEFT_OK) {
        memcpy(waiting->job, id->job, sizeof(waiting->job));
        weft_wire_id_encode(id, id_p);
    }
    weft_secret_wipe(id, sizeof(*id));
    weft_secret_scrub_stack();
    return status;
}

weft_status_t weft_comm_id_create(const weft_config_t *config, weft_id_t *id_p)
{
    struct weft_params *params = malloc(sizeof(*params));
    struct waiting_door *waiting = calloc(1, sizeof(*waiting));
    weft_status_t status = WEFT_OK;
    if (params == NULL || waiting == NULL) {
        status = weft_fail(WEFT_ERR_MEMORY, "no memory for an id");
    }
    status = status == WEFT_OK ? weft_comm_load_params(config, params) : status;
    status = status == WEFT_OK ? weft_wire_crypto_open() : status;
    status = status == WEFT_OK ? make_id(params, waiting, id_p) : status;
    free(params);
    if (status != WEFT_OK) {
        free(waiting);
        return status;
    }
    pthread_once(&forks_watched, watch_forks);
    pthread_mutex_lock(&doors_lock);
    weft_list_append(&doors, &waiting->node);
    pthread_mutex_unlock(&doors_lock);
    return WEFT_OK;
}

/* ---- joining by ids ---- */

/* Whose ranks does an id serve? k·ranks/count up to (k+1)·ranks/count. */
static int segment_of(int rank, int ranks, int count)
{
    int segment = (int)((int64_t)rank * count / ranks);
    while ((int64_t)segment * ranks / count > rank) {
        segment--;
    }
    while ((int64_t)(segment + 1) * ranks / count <= rank) {
        segment++;
    }
    return segment;
}

static weft_status_t aim(const struct weft_wire_id *at, struct weft_control_spec *spec)
{
    weft_wire_local_name(at->secret, at->job, at->epoch, "root", 0, spec->above_local);
    spec->above_count = 1;
    spec->is_above_up = true;
    return weft_control_root_addr(&at->root, &spec->above[0]);
}

static weft_status_t fill_spec(const weft_id_t *ids, int id_count,
                               const struct weft_wire_id *decoded, const struct weft_params *params,
                               struct weft_control_spec *spec)
{
    int segment = segment_of((int)spec->self.rank, (int)spec->self.ranks, id_count);
    spec->self.is_authenticated = (decoded[0].flags & WEFT_WIRE_ID_AUTHENTICATED) != 0;
    memcpy(spec->self.job, decoded[0].job, sizeof(spec->self.job));
    spec->self.epoch = decoded[0].epoch;
    spec->has_segments = id_count > 1;
    spec->join = (enum weft_control_join)params->number[WEFT_PARAM_JOIN];
    if (weft_comm_door_take(&ids[segment], spec->door)) {
        spec->is_root = segment == 0;
        segment = 0; /* the root of a segment joins the first root */
    } else {
        spec->door = NULL;
    }
    return spec->is_root ? WEFT_OK : aim(&decoded[segment], spec);
}

static weft_status_t decode_all(const weft_id_t *ids, int id_count, struct weft_wire_id *decoded)
{
    for (int i = 0; i < id_count; i++) {
        weft_status_t status = weft_wire_id_decode(&ids[i], &decoded[i]);
        if (status != WEFT_OK) {
            return status;
        }
    }
    return WEFT_OK;
}

static weft_status_t prepare(struct weft_job *job, const weft_id_t *ids, int id_count,
                             struct weft_control_spec *spec)
{
    struct weft_wire_id *decoded = calloc((size_t)id_count, sizeof(*decoded));
    weft_status_t status;
    if (decoded == NULL) {
        return weft_fail(WEFT_ERR_MEMORY, "no memory for %d ids", id_count);
    }
    status = decode_all(ids, id_count, decoded);
    if (status == WEFT_OK) {
        memcpy(job->key, decoded[0].secret, WEFT_SECRET_LEN);
        status = fill_spec(ids, id_count, decoded, &job->params, spec);
    }
    weft_secret_wipe(decoded, (size_t)id_count * sizeof(*decoded));
    weft_secret_scrub_stack();
    free(decoded);
    return status;
}

weft_status_t weft_comm_create_by_ids(const weft_id_t *ids, int id_count, int rank, int ranks,
                                      const weft_config_t *config, struct weft_comm **comm_p)
{
    struct weft_control_door door = {.tcp = -1, .local = -1};
    struct weft_control_spec spec = {.self = {.rank = (uint32_t)rank, .ranks = (uint32_t)ranks},
                                     .door = &door};
    struct weft_job *job;
    weft_status_t status = weft_comm_job_open(config, &job);
    if (status != WEFT_OK) {
        return status;
    }
    status = prepare(job, ids, id_count, &spec);
    if (status != WEFT_OK) {
        weft_control_door_close(&door); /* taken, perhaps */
        weft_comm_job_close(job);
        return status;
    }
    return weft_comm_start(job, &spec, comm_p);
}
