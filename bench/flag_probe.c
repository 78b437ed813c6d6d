/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In which state is the machine? The one-way time in ns of a flag between the first two CPUs that
 * we may use: 500 ping-pongs, the median of five blocks. Virtual machines move their cores near and
 * far; figures of different states cannot be compared.
 */
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BLOCKS 5
#define BLOCK 100
#define WARMUP 2000 /* also brings both to their CPUs */
#define GIVE_UP_S 5 /* somebody else has one of the CPUs */

struct flags {
    _Alignas(128) _Atomic uint32_t ping;
    _Alignas(128) _Atomic uint32_t pong;
};

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

/* The nth CPU of those we may use. */
static void pin(int nth)
{
    cpu_set_t allowed, one;
    CPU_ZERO(&one);
    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) {
        return;
    }
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &allowed) && nth-- == 0) {
            CPU_SET(cpu, &one);
            sched_setaffinity(0, sizeof(one), &one);
            return;
        }
    }
}

static void await_flag(const _Atomic uint32_t *flag, uint32_t value)
{
    while (atomic_load_explicit(flag, memory_order_acquire) != value) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
}

static void bounce(struct flags *flags, uint32_t *value, int count)
{
    for (int i = 0; i < count; i++) {
        uint32_t next = ++*value;
        atomic_store_explicit(&flags->ping, next, memory_order_release);
        await_flag(&flags->pong, next);
    }
}

static _Noreturn void answer(struct flags *flags, pid_t parent)
{
    pin(1);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(1); /* it died before we could ask to die with it */
    }
    for (uint32_t next = 1; next <= WARMUP + BLOCKS * BLOCK; next++) {
        await_flag(&flags->ping, next);
        atomic_store_explicit(&flags->pong, next, memory_order_release);
    }
    _exit(0);
}

static int compare(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

int main(void)
{
    struct flags *flags =
        mmap(NULL, sizeof(*flags), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (flags == MAP_FAILED) {
        perror("flag_probe");
        return 1;
    }
    pid_t parent = getpid();
    pid_t child = fork();
    if (child < 0) {
        perror("flag_probe");
        return 1;
    }
    if (child == 0) {
        answer(flags, parent);
    }
    alarm(GIVE_UP_S); /* ends us, and with us the child */
    pin(0);
    double ns[BLOCKS];
    uint32_t value = 0;
    bounce(flags, &value, WARMUP);
    for (int i = 0; i < BLOCKS; i++) {
        uint64_t begin_ns = now_ns();
        bounce(flags, &value, BLOCK);
        ns[i] = (double)(now_ns() - begin_ns) / (2.0 * BLOCK);
    }
    waitpid(child, NULL, 0);
    qsort(ns, BLOCKS, sizeof(ns[0]), compare);
    printf("%.1f\n", ns[BLOCKS / 2]);
    return 0;
}
