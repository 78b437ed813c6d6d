/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What NCCL and a network plugin agree on, versions 8 to 12 (NCCL 2.20 to 2.30), on 64-bit machines. Written from
 * the published layout; every size and offset is asserted below, since nothing else would notice a slip.
 *
 * A version is one struct of function pointers, exported as ncclNetPlugin_v<n>; NCCL takes the highest it knows.
 */
#ifndef WEFT_NCCL_ABI_H
#define WEFT_NCCL_ABI_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

enum nccl_result {
    NCCL_SUCCESS = 0,
    NCCL_SYSTEM_ERROR = 2,
    NCCL_INTERNAL_ERROR = 3,
    NCCL_INVALID_ARGUMENT = 4,
    NCCL_INVALID_USAGE = 5,
    NCCL_REMOTE_ERROR = 6,
};

enum nccl_log_level { NCCL_LOG_WARN = 2, NCCL_LOG_INFO = 3, NCCL_LOG_TRACE = 5 };
enum nccl_log_subsystem { NCCL_SUBSYSTEM_INIT = 1, NCCL_SUBSYSTEM_NET = 16 };
typedef void (*nccl_logger_t)(int level, unsigned long subsystems, const char *file, int line,
                              const char *fmt, ...);
typedef int (*nccl_profiler_t)(void **event, int type, void *parent, int64_t id, void *data);

enum { NCCL_HANDLE_LEN = 128, NCCL_REQUESTS = 32, NCCL_POINTER_HOST = 1 };
#define NCCL_OPTIONAL_COMPLETION ((void *)0x1) /* found in *request by irecv, from v9 on */

/* Of devices that move data without the host; ours never do, so it stays NULL. */
struct nccl_device_handle {
    int type, version;
    void *handle;
    size_t size;
    int needs_progress;
};
static_assert(sizeof(struct nccl_device_handle) == 32 || sizeof(void *) != 8, "device handle");

struct nccl_config {
    int traffic_class;
};

struct nccl_virtual_v9 {
    int count, devices[4];
};
struct nccl_virtual_v12 {
    int count, devices[8];
};

struct nccl_properties_v8 {
    const char *name, *pci_path;
    uint64_t guid;
    int pointers, is_registration_global;
    int speed_mbps, port;
    float latency_us;
    int max_comms, max_receives;
    int device_type, device_version;
};

struct nccl_properties_v9 { /* and v10 */
    const char *name, *pci_path;
    uint64_t guid;
    int pointers, is_registration_global, is_flush_forced;
    int speed_mbps, port;
    float latency_us;
    int max_comms, max_receives;
    int device_type, device_version;
    struct nccl_virtual_v9 virtual_device;
    size_t max_p2p_len, max_collective_len;
};

struct nccl_properties_v11 {
    struct nccl_properties_v9 base;
    int max_multi_request;
};

struct nccl_properties_v12 {
    const char *name, *pci_path;
    uint64_t guid;
    int pointers, is_registration_global, is_flush_forced;
    int speed_mbps, port;
    float latency_us;
    int max_comms, max_receives;
    int device_type, device_version;
    struct nccl_virtual_v12 virtual_device;
    size_t max_p2p_len, max_collective_len;
    int max_multi_request;
    int16_t rail, plane; /* -1: not defined */
};

/* What all versions have alike, in their order. */
#define NCCL_NET_REGISTRATION                                                                      \
    int (*reg_mr)(void *comm, void *data, size_t len, int type, void **region);                    \
    int (*reg_mr_dmabuf)(void *comm, void *data, size_t len, int type, uint64_t offset, int fd,    \
                         void **region);                                                           \
    int (*dereg_mr)(void *comm, void *region);
#define NCCL_NET_END                                                                               \
    int (*iflush)(void *comm, int count, void **data, int *lens, void **regions, void **request);  \
    int (*test)(void *request, int *is_done, int *lens);                                           \
    int (*close_send)(void *comm);                                                                 \
    int (*close_recv)(void *comm);                                                                 \
    int (*close_listen)(void *comm);                                                               \
    int (*get_device_mr)(void *comm, void *region, void **device);                                 \
    int (*irecv_consumed)(void *comm, int count, void *request);

struct nccl_net_v8 {
    const char *name;
    int (*init)(nccl_logger_t logger);
    int (*devices)(int *count);
    int (*get_properties)(int device, struct nccl_properties_v8 *properties);
    int (*listen)(int device, void *handle, void **comm);
    int (*connect)(int device, void *handle, void **comm, struct nccl_device_handle **device_comm);
    int (*accept)(void *listener, void **comm, struct nccl_device_handle **device_comm);
    NCCL_NET_REGISTRATION
    int (*isend)(void *comm, void *data, int len, int tag, void *region, void **request);
    int (*irecv)(void *comm, int count, void **data, int *lens, int *tags, void **regions,
                 void **request);
    NCCL_NET_END
};

struct nccl_net_v9 {
    const char *name;
    int (*init)(nccl_logger_t logger);
    int (*devices)(int *count);
    int (*get_properties)(int device, struct nccl_properties_v9 *properties);
    int (*listen)(int device, void *handle, void **comm);
    int (*connect)(int device, void *handle, void **comm, struct nccl_device_handle **device_comm);
    int (*accept)(void *listener, void **comm, struct nccl_device_handle **device_comm);
    NCCL_NET_REGISTRATION
    int (*isend)(void *comm, void *data, size_t len, int tag, void *region, void **request);
    int (*irecv)(void *comm, int count, void **data, size_t *lens, int *tags, void **regions,
                 void **request);
    NCCL_NET_END
    int (*make_virtual)(int *device, struct nccl_virtual_v9 *members);
};

struct nccl_net_v10 {
    const char *name;
    int (*init)(nccl_logger_t logger, nccl_profiler_t profiler);
    int (*devices)(int *count);
    int (*get_properties)(int device, struct nccl_properties_v9 *properties);
    int (*listen)(int device, void *handle, void **comm);
    int (*connect)(int device, struct nccl_config *config, void *handle, void **comm,
                   struct nccl_device_handle **device_comm);
    int (*accept)(void *listener, void **comm, struct nccl_device_handle **device_comm);
    NCCL_NET_REGISTRATION
    int (*isend)(void *comm, void *data, size_t len, int tag, void *region, void *profile,
                 void **request);
    int (*irecv)(void *comm, int count, void **data, size_t *lens, int *tags, void **regions,
                 void **profiles, void **request);
    NCCL_NET_END
    int (*make_virtual)(int *device, struct nccl_virtual_v9 *members);
};

/* v11 and v12 differ in what describes devices. */
/* NOLINTBEGIN(bugprone-macro-parentheses): types */
#define NCCL_NET_V11(version, properties_type, virtual_type)                                       \
    struct nccl_net_##version {                                                                    \
        const char *name;                                                                          \
        int (*init)(void **context, uint64_t id, struct nccl_config *config, nccl_logger_t logger, \
                    nccl_profiler_t profiler);                                                     \
        int (*devices)(int *count);                                                                \
        int (*get_properties)(int device, properties_type *properties);                            \
        int (*listen)(void *context, int device, void *handle, void **comm);                       \
        int (*connect)(void *context, int device, void *handle, void **comm,                       \
                       struct nccl_device_handle **device_comm);                                   \
        int (*accept)(void *listener, void **comm, struct nccl_device_handle **device_comm);       \
        NCCL_NET_REGISTRATION                                                                      \
        int (*isend)(void *comm, void *data, size_t len, int tag, void *region, void *profile,     \
                     void **request);                                                              \
        int (*irecv)(void *comm, int count, void **data, size_t *lens, int *tags, void **regions,  \
                     void **profiles, void **request);                                             \
        NCCL_NET_END                                                                               \
        int (*make_virtual)(int *device, virtual_type *members);                                   \
        int (*finalize)(void *context);                                                            \
        int (*set_attributes)(void *context, void *attributes);                                    \
    };
NCCL_NET_V11(v11, struct nccl_properties_v11, struct nccl_virtual_v9)
NCCL_NET_V11(v12, struct nccl_properties_v12, struct nccl_virtual_v12)
/* NOLINTEND(bugprone-macro-parentheses) */

#define NCCL_AT(type, member, offset)                                                              \
    static_assert(offsetof(struct nccl_##type, member) == (offset), #type "." #member)
#define NCCL_SIZE(type, size) static_assert(sizeof(struct nccl_##type) == (size), #type)

NCCL_SIZE(properties_v8, 64);
NCCL_AT(properties_v8, name, 0);
NCCL_AT(properties_v8, pci_path, 8);
NCCL_AT(properties_v8, guid, 16);
NCCL_AT(properties_v8, pointers, 24);
NCCL_AT(properties_v8, is_registration_global, 28);
NCCL_AT(properties_v8, speed_mbps, 32);
NCCL_AT(properties_v8, port, 36);
NCCL_AT(properties_v8, latency_us, 40);
NCCL_AT(properties_v8, max_comms, 44);
NCCL_AT(properties_v8, max_receives, 48);
NCCL_AT(properties_v8, device_type, 52);
NCCL_AT(properties_v8, device_version, 56);

NCCL_SIZE(properties_v9, 104);
NCCL_AT(properties_v9, name, 0);
NCCL_AT(properties_v9, pci_path, 8);
NCCL_AT(properties_v9, guid, 16);
NCCL_AT(properties_v9, pointers, 24);
NCCL_AT(properties_v9, is_registration_global, 28);
NCCL_AT(properties_v9, is_flush_forced, 32);
NCCL_AT(properties_v9, speed_mbps, 36);
NCCL_AT(properties_v9, port, 40);
NCCL_AT(properties_v9, latency_us, 44);
NCCL_AT(properties_v9, max_comms, 48);
NCCL_AT(properties_v9, max_receives, 52);
NCCL_AT(properties_v9, device_type, 56);
NCCL_AT(properties_v9, device_version, 60);
NCCL_AT(properties_v9, virtual_device, 64);
NCCL_AT(properties_v9, max_p2p_len, 88);
NCCL_AT(properties_v9, max_collective_len, 96);

NCCL_SIZE(properties_v11, 112);
NCCL_AT(properties_v11, base, 0);
NCCL_AT(properties_v11, max_multi_request, 104);

NCCL_SIZE(properties_v12, 128);
NCCL_AT(properties_v12, is_flush_forced, 32);
NCCL_AT(properties_v12, speed_mbps, 36);
NCCL_AT(properties_v12, latency_us, 44);
NCCL_AT(properties_v12, max_receives, 52);
NCCL_AT(properties_v12, device_type, 56);
NCCL_AT(properties_v12, device_version, 60);
NCCL_AT(properties_v12, virtual_device, 64);
NCCL_AT(properties_v12, max_p2p_len, 104);
NCCL_AT(properties_v12, max_collective_len, 112);
NCCL_AT(properties_v12, max_multi_request, 120);
NCCL_AT(properties_v12, rail, 124);
NCCL_AT(properties_v12, plane, 126);

/* All members are pointers, so the last one's place proves their number and the first ones' their order. */
#define NCCL_NET_AT(version, size)                                                                 \
    NCCL_SIZE(net_##version, size);                                                                \
    NCCL_AT(net_##version, name, 0);                                                               \
    NCCL_AT(net_##version, init, 8);                                                               \
    NCCL_AT(net_##version, devices, 16);                                                           \
    NCCL_AT(net_##version, get_properties, 24);                                                    \
    NCCL_AT(net_##version, listen, 32);                                                            \
    NCCL_AT(net_##version, connect, 40);                                                           \
    NCCL_AT(net_##version, accept, 48);                                                            \
    NCCL_AT(net_##version, reg_mr, 56);                                                            \
    NCCL_AT(net_##version, reg_mr_dmabuf, 64);                                                     \
    NCCL_AT(net_##version, dereg_mr, 72);                                                          \
    NCCL_AT(net_##version, isend, 80);                                                             \
    NCCL_AT(net_##version, irecv, 88);                                                             \
    NCCL_AT(net_##version, iflush, 96);                                                            \
    NCCL_AT(net_##version, test, 104);                                                             \
    NCCL_AT(net_##version, close_send, 112);                                                       \
    NCCL_AT(net_##version, close_recv, 120);                                                       \
    NCCL_AT(net_##version, close_listen, 128);                                                     \
    NCCL_AT(net_##version, get_device_mr, 136);                                                    \
    NCCL_AT(net_##version, irecv_consumed, 144)
NCCL_NET_AT(v8, 152);
NCCL_NET_AT(v9, 160);
NCCL_AT(net_v9, make_virtual, 152);
NCCL_NET_AT(v10, 160);
NCCL_AT(net_v10, make_virtual, 152);
NCCL_NET_AT(v11, 176);
NCCL_AT(net_v11, make_virtual, 152);
NCCL_AT(net_v11, finalize, 160);
NCCL_AT(net_v11, set_attributes, 168);
NCCL_NET_AT(v12, 176);
NCCL_AT(net_v12, finalize, 160);
NCCL_AT(net_v12, set_attributes, 168);

#endif
