/* SPDX-License-Identifier: Apache-2.0 */
/* What a weft_mem_t holds, and the memory it names. */
#ifndef WEFT_P2P_HANDLE_H
#define WEFT_P2P_HANDLE_H

#include "p2p/internal.h"

/* It comes from the user, who got it from a peer: checked like a stranger's. */
struct weft_p2p_handle {
    uint32_t magic;
    uint32_t owner; /* rank of the job */
    uint64_t comm;
    uint64_t registration;
    uint64_t len;
    uint64_t region;        /* 0: private memory */
    uint64_t region_offset; /* of private memory: its address modulo 8, to know where words are */
    uint64_t valid;         /* allocation of the owner's words: [index] is the registration */
    uint32_t check, zero;
};
/* Words in shared memory: one per registration (what is beyond is reached by frames), and one per send
 * that its receiver may read. */
#define WEFT_P2P_WORDS 4096u
#define WEFT_P2P_GUARDS 1024u

bool weft_p2p_handle_is_good(const struct weft_p2p_handle *handle);
/* NULL: not registered (any more). */
struct weft_p2p_registration *weft_p2p_registration_find(struct weft_p2p *p2p, uint64_t id);

#endif
