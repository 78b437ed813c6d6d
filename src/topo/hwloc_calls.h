/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of hwloc that machine.c uses, looked up when they are first needed (hwloc.c). */
#ifndef WEFT_TOPO_HWLOC_CALLS_H
#define WEFT_TOPO_HWLOC_CALLS_H

#include "topo/internal.h"

#include <hwloc.h>

#define WEFT_TOPO_HWLOC_CALLS(X)                                                                   \
    X(get_api_version)                                                                             \
    X(topology_init)                                                                               \
    X(topology_set_flags)                                                                          \
    X(topology_set_synthetic)                                                                      \
    X(topology_load)                                                                               \
    X(topology_destroy)                                                                            \
    X(topology_get_allowed_cpuset)                                                                 \
    X(get_type_depth)                                                                              \
    X(get_nbobjs_by_depth)                                                                         \
    X(get_obj_by_depth)                                                                            \
    X(bitmap_isset)                                                                                \
    X(bitmap_weight)

struct weft_topo_hwloc {
/* NOLINTNEXTLINE(bugprone-macro-parentheses): the name of a field */
#define WEFT_TOPO_HWLOC_FIELD(name) __typeof__(&hwloc_##name) name;
    WEFT_TOPO_HWLOC_CALLS(WEFT_TOPO_HWLOC_FIELD)
#undef WEFT_TOPO_HWLOC_FIELD
};

/* Any thread. ERR_UNSUPPORTED: this host has no hwloc, or one of another age. */
weft_status_t weft_topo_hwloc_load(const struct weft_topo_hwloc **hwloc_p);

#endif
