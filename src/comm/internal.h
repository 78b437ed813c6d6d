/* SPDX-License-Identifier: Apache-2.0 */
/* Private to comm: between the ways to find a job (ids, environment) and the one way to start it.
 */
#ifndef WEFT_COMM_INTERNAL_H
#define WEFT_COMM_INTERNAL_H

#include "comm/comm.h"

/* Reads the environment, then config over it. ERR_INVALID. */
weft_status_t weft_comm_load_params(const weft_config_t *config, struct weft_params *params_p);
int weft_comm_family(const struct weft_params *params); /* AF_… of WEFT_SOCKET_FAMILY */

unsigned weft_comm_cpus(void); /* this process may use */
struct weft_job;
/* That data goes over to other hosts, and the rate of the slowest; 0: not known. */
void weft_comm_find_nics(const struct weft_job *job, uint32_t *count_p, uint32_t *mbps_p);

/* Takes the door of this id if it was made in this process and nobody took it. */
bool weft_comm_door_take(const weft_id_t *id, struct weft_control_door *door_p);

/* Settings read, key memory taken, crypto ready; nothing started. */
weft_status_t weft_comm_job_open(const weft_config_t *config, struct weft_job **job_p);
void weft_comm_job_close(struct weft_job *job); /* NULL is fine */
/* Engine, control plane, first communicator. Takes job and spec->door over, also when it fails;
 * spec->engine, params, self.key, host and deadline are filled in here. */
weft_status_t weft_comm_start(struct weft_job *job, struct weft_control_spec *spec,
                              struct weft_comm **comm_p);
/* (bindings.c) Reads the bindings of NICs to CPUs and binds our own thread. ERR_INVALID: shows the place. */
weft_status_t weft_comm_bind(const struct weft_params *params);
/* Without bindings, once it is known who is where: near the NICs. */
void weft_comm_bind_near(const struct weft_job *job);
/* (record.c) Of one communicator, before and after its calls. */
void weft_comm_record_open(struct weft_comm *comm);
void weft_comm_record_close(struct weft_comm *comm);
uint64_t weft_comm_record_closing(struct weft_comm *comm); /* it begins; the record, 0: none */
/* (dump.c) A communicator has failed; under the engine's lock. */
void weft_comm_dump_failure(struct weft_job *job, const struct weft_control_failure *failure);
void weft_comm_dump_leave(struct weft_job *job); /* the job ends: its file is waited for a little */
/* (messages.c) What messages need, once the control plane stands; little is done before the first. */
weft_status_t weft_comm_messages_open(struct weft_job *job);
void weft_comm_messages_close(struct weft_job *job);          /* before the control plane goes */
weft_status_t weft_comm_messages_end(struct weft_comm *comm); /* of one communicator */
/* Collectives have messages of their own, under this id. */
#define WEFT_COMM_COLLECTIVE UINT64_C(0x636f6c6c65637473)
/* (collectives.c) NULL: see the error text, *status_p. */
void weft_comm_collectives_end(struct weft_comm *comm); /* before its messages; none is fine */
/* (reports.c) Under the engine's lock: a rank says that it waits, and in what. */
void weft_comm_calling_arrived(struct weft_job *job, uint32_t from, const uint8_t *payload,
                               size_t len);

#endif
