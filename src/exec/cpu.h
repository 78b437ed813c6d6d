/* SPDX-License-Identifier: Apache-2.0 */
/* Private to exec: on which CPU a thread runs. Known to the C library without a system call, where the kernel
 * writes it into the thread's memory (rseq). */
#ifndef WEFT_EXEC_CPU_H
#define WEFT_EXEC_CPU_H

#include <sched.h>
#include <stdint.h>

#if defined(__has_include) && defined(__has_builtin)
#if __has_include(<sys/rseq.h>) && __has_builtin(__builtin_thread_pointer)
#include <sys/rseq.h>
#define WEFT_EXEC_HAS_RSEQ 1
#endif
#endif

static inline uint32_t weft_exec_cpu(void)
{
#if defined(WEFT_EXEC_HAS_RSEQ)
    if (__rseq_size != 0) {
        const char *thread = __builtin_thread_pointer();
        return ((const volatile struct rseq *)(const void *)(thread + __rseq_offset))->cpu_id;
    }
#endif
    return (uint32_t)sched_getcpu();
}

#endif
