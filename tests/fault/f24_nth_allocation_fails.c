/* SPDX-License-Identifier: Apache-2.0 */
/* Memory or threads run out at any moment of a job's life; see sweep.h. With --long every call fails
 * once, else every seventh. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fault/sweep.h"

#include <pthread.h>

/* Wrappers find their line by its place. */
enum {
    MALLOC,
    CALLOC,
    REALLOC,
    ALIGNED_ALLOC,
    POSIX_MEMALIGN,
    STRDUP,
    MMAP,
    PTHREAD_CREATE,
    CALLS
};

static const struct sweep_call calls[CALLS] = {
    [MALLOC] = {"malloc", ENOMEM, WEFT_ERR_MEMORY, NULL},
    [CALLOC] = {"calloc", ENOMEM, WEFT_ERR_MEMORY, NULL},
    [REALLOC] = {"realloc", ENOMEM, WEFT_ERR_MEMORY, NULL},
    [ALIGNED_ALLOC] = {"aligned_alloc", ENOMEM, WEFT_ERR_MEMORY, NULL},
    [POSIX_MEMALIGN] = {"posix_memalign", ENOMEM, WEFT_ERR_MEMORY, "every"},
    [STRDUP] = {"strdup", ENOMEM, WEFT_ERR_MEMORY, "every"},
    [MMAP] = {"mmap", ENOMEM, WEFT_ERR_MEMORY, NULL},
    [PTHREAD_CREATE] = {"pthread_create", EAGAIN, WEFT_ERR_SYSTEM, NULL},
};

void *__real_malloc(size_t len);
void *__wrap_malloc(size_t len);
void *__wrap_malloc(size_t len)
{
    return sweep_fails(MALLOC, ENOMEM) ? NULL : __real_malloc(len);
}

void *__real_calloc(size_t count, size_t len);
void *__wrap_calloc(size_t count, size_t len);
void *__wrap_calloc(size_t count, size_t len)
{
    return sweep_fails(CALLOC, ENOMEM) ? NULL : __real_calloc(count, len);
}

void *__real_realloc(void *old, size_t len);
void *__wrap_realloc(void *old, size_t len);
void *__wrap_realloc(void *old, size_t len)
{
    return sweep_fails(REALLOC, ENOMEM) ? NULL : __real_realloc(old, len);
}

void *__real_aligned_alloc(size_t alignment, size_t len);
void *__wrap_aligned_alloc(size_t alignment, size_t len);
void *__wrap_aligned_alloc(size_t alignment, size_t len)
{
    return sweep_fails(ALIGNED_ALLOC, ENOMEM) ? NULL : __real_aligned_alloc(alignment, len);
}

int __real_posix_memalign(void **memory_p, size_t alignment, size_t len);
int __wrap_posix_memalign(void **memory_p, size_t alignment, size_t len);
int __wrap_posix_memalign(void **memory_p, size_t alignment, size_t len)
{
    return sweep_fails(POSIX_MEMALIGN, ENOMEM) ? ENOMEM
                                               : __real_posix_memalign(memory_p, alignment, len);
}

char *__real_strdup(const char *text);
char *__wrap_strdup(const char *text);
char *__wrap_strdup(const char *text)
{
    return sweep_fails(STRDUP, ENOMEM) ? NULL : __real_strdup(text);
}

void *__real_mmap(void *at, size_t len, int prot, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t len, int prot, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t len, int prot, int flags, int fd, off_t offset)
{
    return sweep_fails(MMAP, ENOMEM) ? MAP_FAILED : __real_mmap(at, len, prot, flags, fd, offset);
}

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
                          void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
                          void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
                          void *arg)
{
    return sweep_fails(PTHREAD_CREATE, EAGAIN) ? EAGAIN
                                               : __real_pthread_create(thread, attr, run, arg);
}

int main(int argc, char **argv)
{
    return sweep_main(argc, argv, calls, CALLS);
}
