/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all connections of the process share: settings and devices, found once; an engine for set-up with its
 * background thread, a port per NIC, the key, the helper threads: these exist while anything is open, since NCCL
 * has no call before v11 that would end them.
 */
#include "nccl.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TICK_MS 100
#define ASK_MS 1000

struct weft_nccl_core weft_nccl_core;

static pthread_mutex_t life = PTHREAD_MUTEX_INITIALIZER; /* of the fields below, and opening */
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;
static uint32_t users;
static bool is_found;

/* ---- init ---- */

static void say_devices(void)
{
    const struct weft_nccl_devices *devices = &weft_nccl_core.devices;
    for (uint32_t i = 0; i < devices->count; i++) {
        weft_nccl_say(
            NCCL_LOG_INFO, "device %u: %s, %u NIC(s), %d Mbit/s%s%s", i, devices->device[i].name,
            devices->device[i].count, devices->device[i].speed_mbps,
            devices->device[i].pci_path[0] != '\0' ? ", " : "", devices->device[i].pci_path);
    }
}

static weft_status_t find(void)
{
    weft_status_t status = weft_params_load(&weft_nccl_core.params);
    if (status == WEFT_OK && weft_nccl_core.params.number[WEFT_PARAM_SECURITY] != 0) {
        status =
            weft_fail(WEFT_ERR_INVALID, "WEFT_SECURITY: the NCCL plugin proves who connects, it "
                                        "cannot seal what they send; unset it to go on");
    }
    status = status == WEFT_OK ? weft_wire_crypto_open() : status;
    return status == WEFT_OK
               ? weft_nccl_devices_find(&weft_nccl_core.params, &weft_nccl_core.devices)
               : status;
}

weft_status_t weft_nccl_init(nccl_logger_t logger)
{
    weft_status_t status = WEFT_OK;
    weft_nccl_log_open(logger);
    pthread_mutex_lock(&life);
    if (!is_found) {
        status = find();
        is_found = status == WEFT_OK;
        if (is_found) {
            say_devices();
        }
    }
    pthread_mutex_unlock(&life);
    return status;
}

int weft_nccl_devices_count(int *count_p)
{
    *count_p = (int)weft_nccl_core.devices.count;
    return NCCL_SUCCESS;
}

const struct weft_nccl_device *weft_nccl_device(int device)
{
    if (device < 0 || (uint32_t)device >= weft_nccl_core.devices.count) {
        weft_nccl_say(NCCL_LOG_WARN, "there is no device %d", device);
        return NULL;
    }
    return &weft_nccl_core.devices.device[device];
}

/* ---- time, and news of NICs ---- */

/* The kernel drops news when there is too much of it. That a NIC went is found out by its silence, that it is back by
 * asking. */
static void ask_for_nics(uint64_t now_ns)
{
    static uint64_t next_ns; /* engine lock */
    if (now_ns < next_ns) {
        return;
    }
    next_ns = now_ns + ASK_MS * WEFT_NS_PER_MS;
    for (uint32_t nic = 0; nic < weft_nccl_core.devices.nic_count; nic++) {
        bool is_up;
        if (weft_nccl_core.is_nic_down[nic] &&
            weft_topo_carrier_ask(weft_nccl_core.devices.nics[nic].name, &is_up) && is_up) {
            weft_nccl_heal_carrier(nic, true);
        }
    }
}

static void ticked(struct weft_engine_timer *timer, uint64_t now_ns)
{
    struct weft_list *all = &weft_nccl_core.comms;
    for (struct weft_list *node = all->next; node != all; node = node->next) {
        weft_nccl_tend(WEFT_CONTAINER_OF(node, struct weft_nccl_comm, node), now_ns);
    }
    weft_nccl_leaving_tend(now_ns);
    ask_for_nics(now_ns);
    weft_engine_timer_set(weft_nccl_core.engine, timer, now_ns + TICK_MS * WEFT_NS_PER_MS);
}

static void carrier_ready(struct weft_engine_source *source, uint32_t events)
{
    struct weft_topo_carrier news[16];
    unsigned count = weft_topo_carrier_read(source->fd, news, WEFT_COUNT_OF(news));
    (void)events;
    for (unsigned i = 0; i < count; i++) {
        for (uint32_t nic = 0; nic < weft_nccl_core.devices.nic_count; nic++) {
            if (strcmp(weft_nccl_core.devices.nics[nic].name, news[i].name) == 0 &&
                weft_nccl_core.is_nic_down[nic] == news[i].is_up) {
                weft_nccl_heal_carrier(nic, news[i].is_up);
            }
        }
    }
}

static void watch_carriers(void)
{
    int fd;
    weft_nccl_core.carrier.ready = carrier_ready;
    weft_nccl_core.carrier.fd = -1;
    if (weft_topo_carrier_open(&fd) != WEFT_OK) {
        weft_nccl_say(NCCL_LOG_INFO, "no news of NICs: %s", weft_error_text());
    } else if (weft_engine_add(weft_nccl_core.engine, &weft_nccl_core.carrier, fd, EPOLLIN) !=
               WEFT_OK) {
        weft_nccl_core.carrier.fd = -1;
        weft_fd_close(fd);
    }
}

/* ---- opening ---- */

void weft_nccl_core_job(const uint8_t key[WEFT_WIRE_KEY_LEN], uint8_t job[16])
{
    uint8_t hash[32];
    weft_wire_derive(key, "weft nccl listener", "", 0, hash);
    memcpy(job, hash, 16);
}

static weft_status_t open_key(void)
{
    weft_nccl_core.key = weft_secret_take();
    if (weft_nccl_core.key == NULL) {
        return weft_fail(WEFT_ERR_MEMORY, "no memory for the key");
    }
    weft_nccl_core.self = (struct weft_wire_self){
        .key = weft_nccl_core.key, .is_authenticated = true, .rank = 0, .ranks = 2};
    return weft_random(weft_nccl_core.key, WEFT_WIRE_KEY_LEN);
}

static weft_status_t open_port(uint32_t nic)
{
    const struct weft_nccl_nic *own = &weft_nccl_core.devices.nics[nic];
    uint16_t first, last;
    struct sockaddr_storage bound;
    int fd;
    weft_status_t status =
        weft_net_port_range(weft_nccl_core.params.text[WEFT_PARAM_PORT_RANGE], &first, &last);
    status = status == WEFT_OK ? weft_net_listen(&own->addr, first, last, &fd, &bound) : status;
    if (status != WEFT_OK) {
        return status;
    }
    weft_net_addr_to_wire(&bound, &weft_nccl_core.addrs[nic]);
    status =
        weft_net_acceptor_open(weft_nccl_core.engine, fd, &weft_nccl_core.self,
                               (uint64_t)weft_nccl_core.params.number[WEFT_PARAM_HANDSHAKE_TIMEOUT],
                               &weft_nccl_server_ops, NULL, &weft_nccl_core.acceptors[nic]);
    if (status == WEFT_OK && weft_nccl_core.devices.nic_count > 1) {
        weft_net_acceptor_keep_to(weft_nccl_core.acceptors[nic], own->name, own->prefix_len);
    }
    return status;
}

/* An address may be gone since the NICs were looked for: the others do. */
static weft_status_t open_ports(void)
{
    weft_status_t status = WEFT_OK;
    uint32_t count = 0;
    for (uint32_t i = 0; i < weft_nccl_core.devices.nic_count; i++) {
        weft_status_t one = open_port(i);
        count += one == WEFT_OK;
        if (one != WEFT_OK) {
            weft_nccl_say(NCCL_LOG_WARN, "%s cannot be used: %s",
                          weft_nccl_core.devices.nics[i].name, weft_error_text());
            status = one;
        }
    }
    return count > 0 ? WEFT_OK : status;
}

static void close_all(void)
{
    struct weft_engine *engine = weft_nccl_core.engine;
    int carrier = weft_nccl_core.carrier.fd;
    if (engine != NULL) {
        weft_engine_lock(engine);
        weft_nccl_leaving_end();
        weft_engine_timer_cancel(engine, &weft_nccl_core.tick);
        weft_engine_remove(engine, &weft_nccl_core.carrier);
        weft_fd_close(carrier);
        for (uint32_t i = 0; i < WEFT_NCCL_NICS; i++) {
            weft_net_acceptor_close(weft_nccl_core.acceptors[i]);
            weft_nccl_core.acceptors[i] = NULL;
        }
        weft_engine_unlock(engine);
        weft_background_leave(engine);
    }
    weft_nccl_helpers_close();
    weft_engine_close(engine);
    weft_nccl_core.engine = NULL;
    weft_secret_give(weft_nccl_core.key);
    weft_nccl_core.key = NULL;
}

/* Another thread may have held it when the process was forked. */
static void renew_life(void)
{
    pthread_mutex_init(&life, NULL);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, renew_life);
}

static weft_status_t open_all(void)
{
    const struct weft_params *params = &weft_nccl_core.params;
    unsigned cpus = weft_topo_cpus("");
    weft_status_t status;
    weft_nccl_core.process = weft_process_generation();
    pthread_once(&fork_once, watch_forks);
    atomic_store(&weft_nccl_core.lanes, 0);
    memset(weft_nccl_core.acceptors, 0, sizeof(weft_nccl_core.acceptors));
    weft_list_open(&weft_nccl_core.listeners);
    weft_list_open(&weft_nccl_core.comms);
    weft_list_open(&weft_nccl_core.leaving);
    memset(weft_nccl_core.is_nic_down, 0, sizeof(weft_nccl_core.is_nic_down));
    weft_nccl_core.carrier.fd = -1;
    weft_engine_timer_open(&weft_nccl_core.tick, ticked);
    status = open_key();
    if (status == WEFT_OK) {
        weft_nccl_core_job(weft_nccl_core.key, weft_nccl_core.self.job);
        status = weft_engine_open(cpus, params->number[WEFT_PARAM_SPIN], &weft_nccl_core.engine);
    }
    status = status == WEFT_OK ? open_ports() : status;
    if (status == WEFT_OK) {
        watch_carriers();
        weft_engine_timer_set(weft_nccl_core.engine, &weft_nccl_core.tick,
                              weft_clock_after_ms(TICK_MS));
        status = weft_nccl_helpers_open(weft_nccl_helpers_wanted(cpus));
    }
    status = status == WEFT_OK ? weft_background_join(weft_nccl_core.engine) : status;
    if (status != WEFT_OK) {
        close_all();
    }
    return status;
}

weft_status_t weft_nccl_core_take(void)
{
    weft_status_t status = WEFT_OK;
    pthread_mutex_lock(&life);
    if (!is_found) {
        status = weft_fail(WEFT_ERR_INVALID, "init was not called");
    } else if (users == 0 ||
               weft_nccl_is_foreign(weft_nccl_core.process)) { /* a fork's child begins anew */
        users = 0;
        status = open_all();
    }
    users += status == WEFT_OK;
    pthread_mutex_unlock(&life);
    return status;
}

bool weft_nccl_core_take_open(void)
{
    bool is_open;
    pthread_mutex_lock(&life);
    is_open = users > 0 && !weft_nccl_is_foreign(weft_nccl_core.process);
    users += is_open;
    pthread_mutex_unlock(&life);
    return is_open;
}

static void say_counters(void)
{
    static const char *const names[] = {
#define NAME(id, name, sentence) name,
        WEFT_NCCL_COUNTERS(NAME)
#undef NAME
    };
    char text[480];
    size_t len = 0;
    for (uint32_t i = 0; i < WEFT_NCCL_COUNTER_COUNT && len < sizeof(text); i++) {
        uint64_t value = __atomic_load_n(&weft_nccl_core.counters[i], __ATOMIC_RELAXED);
        len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%s %llu", i > 0 ? ", " : "",
                                names[i], (unsigned long long)value);
    }
    weft_nccl_say(NCCL_LOG_INFO, "so far: %s", text);
    weft_nccl_say(NCCL_LOG_INFO, "accepted %llu, strangers %llu, evicted %llu",
                  (unsigned long long)weft_counter_read(weft_engine_counters(weft_nccl_core.engine),
                                                        WEFT_COUNTER_ACCEPTED),
                  (unsigned long long)weft_counter_read(weft_engine_counters(weft_nccl_core.engine),
                                                        WEFT_COUNTER_STRANGERS),
                  (unsigned long long)weft_counter_read(weft_engine_counters(weft_nccl_core.engine),
                                                        WEFT_COUNTER_EVICTED));
}

/* Life's lock, which is not held meanwhile. Who closes last waits until the process could end without harm. */
static void wait_for_leavers(void)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    uint64_t until_ns =
        weft_clock_after_ms((uint64_t)weft_nccl_core.params.number[WEFT_PARAM_PATH_TIMEOUT]);
    bool is_safe = false;
    while (users == 1 && !is_safe && weft_clock_ns() < until_ns) {
        pthread_mutex_unlock(&life);
        weft_engine_poll(weft_nccl_core.engine);
        weft_engine_lock(weft_nccl_core.engine);
        is_safe = weft_nccl_leaving_tend(weft_clock_ns());
        weft_engine_unlock(weft_nccl_core.engine);
        if (!is_safe) {
            nanosleep(&pause, NULL);
        }
        pthread_mutex_lock(&life);
    }
}

void weft_nccl_core_give(void)
{
    pthread_mutex_lock(&life);
    wait_for_leavers();
    if (--users == 0) {
        say_counters();
        close_all();
    }
    pthread_mutex_unlock(&life);
}

bool weft_nccl_is_foreign(uint32_t process)
{
    return process != atomic_load_explicit(&weft_process_number, memory_order_relaxed);
}
