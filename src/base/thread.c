/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads of ours take no signals: these are the program's business, and its handlers are not to run here. The mask is the
 * caller's for a moment, for a new thread inherits it from there under every runtime (some sanitizers overlook the one
 * that attributes ask for).
 */
#include "base/base.h"

#include <errno.h>
#include <signal.h>

static int create(const struct weft_thread *spec, size_t stack_len, pthread_t *thread_p)
{
    pthread_attr_t attr;
    int error;
    pthread_attr_init(&attr);
    if (stack_len > 0) {
        pthread_attr_setstacksize(&attr, stack_len);
    }
    if (spec->cpus != NULL) {
        pthread_attr_setaffinity_np(&attr, sizeof(*spec->cpus), spec->cpus);
    }
    if (spec->is_detached) {
        pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    }
    error = pthread_create(thread_p, &attr, spec->run, spec->arg);
    pthread_attr_destroy(&attr);
    return error;
}

int weft_thread_start(const struct weft_thread *spec, pthread_t *thread_p)
{
    sigset_t all, before;
    int error;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = create(spec, spec->stack_len, thread_p);
    if (error == EINVAL && spec->stack_len > 0) {
        error = create(spec, 0, thread_p); /* the program's thread-local memory alone is larger */
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}
