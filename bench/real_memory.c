/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For LD_PRELOAD before ucx_perftest: the buffers that UCX allocates for it are written before it
 * sees them. ucx_perftest never writes what it sends, and private pages that were only ever read
 * are all the kernel's one page of zeros: it would measure that page in the cache, and no memory.
 * For bench/compare_p2p.py.
 *
 * It stands before ucp_mem_map() and not before mmap() and its like: UCX puts hooks into libc and
 * then calls the kernel itself, past any library. Writing here also comes after UCX has asked for
 * huge pages, and leaves alone what UCX keeps for itself.
 */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <ucp/api/ucp.h>

static void fill(uint8_t *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        bytes[i] = (uint8_t)(1 + i % 255); /* never 0, and no two pages in a row alike */
    }
}

/* Found by name, so that programs without UCX (nsenter) can load us, too. */
ucs_status_t ucp_mem_map(ucp_context_h context, const ucp_mem_map_params_t *params,
                         ucp_mem_h *memh_p)
{
    __typeof__(&ucp_mem_map) map = (__typeof__(map))dlsym(RTLD_NEXT, "ucp_mem_map");
    __typeof__(&ucp_mem_query) query = (__typeof__(query))dlsym(RTLD_NEXT, "ucp_mem_query");
    ucp_mem_attr_t found = {.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS | UCP_MEM_ATTR_FIELD_LENGTH};
    if (map == NULL || query == NULL) {
        return UCS_ERR_UNSUPPORTED;
    }
    ucs_status_t status = map(context, params, memh_p);
    unsigned flags = (params->field_mask & UCP_MEM_MAP_PARAM_FIELD_FLAGS) ? params->flags : 0;
    if (status != UCS_OK || !(flags & UCP_MEM_MAP_ALLOCATE)) {
        return status; /* a program's own memory is its own affair */
    }
    status = query(*memh_p, &found);
    if (status == UCS_OK) {
        fill(found.address, found.length);
    }
    return status;
}
