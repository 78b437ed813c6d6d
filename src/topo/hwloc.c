/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwloc is loaded when somebody asks for the whole machine, not linked: linked, it and what it
 * needs made every process that uses Weft start 0.2 ms later, a fifth of what a whole job's start
 * may take, for a description that only a person reads.
 */
#include "topo/hwloc_calls.h"

#include <assert.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define HWLOC_FILE "libhwloc.so.15" /* of all hwloc 2 */
static_assert(HWLOC_API_VERSION >> 16 == 2, "the file's name is that of hwloc 2");

static struct weft_topo_hwloc calls;
static char problem[192]; /* "" loaded */

static void load_once(void)
{
    void *library = dlopen(HWLOC_FILE, RTLD_NOW | RTLD_LOCAL); /* stays until the process ends */

    if (!library) {
        snprintf(problem, sizeof(problem), "%.150s", dlerror());
        return;
    }
#define LOOK_UP(name)                                                                              \
    do {                                                                                           \
        void *symbol = dlsym(library, "hwloc_" #name);                                             \
        if (!symbol) {                                                                             \
            snprintf(problem, sizeof(problem), HWLOC_FILE " has no hwloc_" #name);                 \
            return;                                                                                \
        }                                                                                          \
        memcpy(&calls.name, &symbol, sizeof(symbol)); /* C has no cast for it */                   \
    } while (0);
    WEFT_TOPO_HWLOC_CALLS(LOOK_UP)
#undef LOOK_UP
    if (calls.get_api_version() >> 16 != HWLOC_API_VERSION >> 16) {
        snprintf(problem, sizeof(problem), HWLOC_FILE " is version %x, not 2",
                 calls.get_api_version() >> 16);
    }
}

weft_status_t weft_topo_hwloc_load(const struct weft_topo_hwloc **hwloc_p)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, load_once);
    if (problem[0] != '\0') {
        return weft_fail(WEFT_ERR_UNSUPPORTED,
                         "the machine cannot be described without hwloc 2 (Debian: libhwloc15): %s",
                         problem);
    }
    *hwloc_p = &calls;
    return WEFT_OK;
}
