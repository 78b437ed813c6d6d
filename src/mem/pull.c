/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of another process, copied out with process_vm_readv() (CMA) where the kernel lets us. Whether it
 * does is tried, not guessed: a process of another pid namespace, a policy against it, a wrong process, all
 * of them show as bytes that differ from those that were expected.
 */
#include "mem/mem.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#define PULL_LEN ((size_t)1 << 30)
#define PROBE_LEN 16

bool weft_mem_pull(pid_t pid, uint64_t address, const struct weft_slice *slice)
{
    size_t done = 0;
    while (done < slice->len) {
        size_t piece = slice->len - done < PULL_LEN ? slice->len - done : PULL_LEN;
        struct iovec here = {.iov_base = (uint8_t *)slice->data + done, .iov_len = piece};
        struct iovec there = {.iov_base = weft_mem_there(address + done), .iov_len = piece};
        ssize_t got = process_vm_readv(pid, &here, 1, &there, 1, 0);
        if (got > 0) {
            done += (size_t)got;
        } else if (got == 0 || errno != EINTR) {
            errno = got == 0 ? EFAULT : errno;
            return false;
        }
    }
    return true;
}

bool weft_mem_can_pull(pid_t pid, uint64_t address, const uint8_t expected[PROBE_LEN])
{
    uint8_t seen[PROBE_LEN] = {0};
    const struct weft_slice slice = {.data = seen, .len = sizeof(seen)};
    return pid > 0 && weft_mem_pull(pid, address, &slice) &&
           memcmp(seen, expected, sizeof(seen)) == 0;
}
