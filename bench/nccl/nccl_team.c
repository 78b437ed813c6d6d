/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A team of ranks that run NCCL's collectives on one GPU, each a process that NCCL takes for a host of its own, so that
 * all data goes by the network. Reads commands from stdin, answers each with one line:
 *
 *   run OP BYTES WARMUP ITERS CHECK   allreduce, allgather, broadcast, alltoall  -> "ok SECONDS CPU_SECONDS WRONG"
 *   cycle COUNT ALL                   communicators made, used and destroyed; ALL 1: the first one, too -> "ok SECONDS CPU_SECONDS WRONG"
 *
 * SECONDS: of one operation, the slowest rank; CPU_SECONDS: of all ranks, for one operation.
 *
 *   nccl_team RANKS LIBNCCL
 *
 * NCCL and the CUDA driver are loaded when it runs, by prototypes of our own: it builds anywhere.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define RANKS_MAX 16
#define BYTES_MAX ((size_t)256 << 20)

/* ---- NCCL and CUDA, as facts ---- */

enum { NCCL_FLOAT = 7, NCCL_INT8 = 0, NCCL_SUM = 0, CU_BLOCKING_SYNC = 4 };
typedef struct {
    char bytes[128];
} nccl_id_t;

static struct {
    int (*get_id)(nccl_id_t *id);
    int (*init)(void **comm, int count, nccl_id_t id, int rank);
    int (*destroy)(void *comm);
    int (*all_reduce)(const void *in, void *out, size_t count, int type, int op, void *comm, void *stream);
    int (*all_gather)(const void *in, void *out, size_t count, int type, void *comm, void *stream);
    int (*broadcast)(const void *in, void *out, size_t count, int type, int root, void *comm, void *stream);
    int (*send)(const void *in, size_t count, int type, int peer, void *comm, void *stream);
    int (*recv)(void *out, size_t count, int type, int peer, void *comm, void *stream);
    int (*group_start)(void);
    int (*group_end)(void);
    int (*get_version)(int *version);
} nccl;

static struct {
    int (*init)(unsigned flags);
    int (*device_get)(int *device, int number);
    int (*set_flags)(int device, unsigned flags);
    int (*retain)(void **context, int device);
    int (*set_current)(void *context);
    int (*alloc)(uint64_t *memory, size_t len);
    int (*to_device)(uint64_t to, const void *from, size_t len);
    int (*to_host)(void *to, uint64_t from, size_t len);
    int (*stream_create)(void **stream, unsigned flags);
    int (*stream_wait)(void *stream);
} cuda;

static void *find(void *library, const char *name)
{
    void *symbol = dlsym(library, name);
    if (symbol == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    return symbol;
}

static void *load(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    return library;
}

static void load_all(const char *nccl_path)
{
    void *driver = load("libcuda.so.1"), *library = load(nccl_path);
    *(void **)&cuda.init = find(driver, "cuInit");
    *(void **)&cuda.device_get = find(driver, "cuDeviceGet");
    *(void **)&cuda.set_flags = find(driver, "cuDevicePrimaryCtxSetFlags_v2");
    *(void **)&cuda.retain = find(driver, "cuDevicePrimaryCtxRetain");
    *(void **)&cuda.set_current = find(driver, "cuCtxSetCurrent");
    *(void **)&cuda.alloc = find(driver, "cuMemAlloc_v2");
    *(void **)&cuda.to_device = find(driver, "cuMemcpyHtoD_v2");
    *(void **)&cuda.to_host = find(driver, "cuMemcpyDtoH_v2");
    *(void **)&cuda.stream_create = find(driver, "cuStreamCreate");
    *(void **)&cuda.stream_wait = find(driver, "cuStreamSynchronize");
    *(void **)&nccl.get_id = find(library, "ncclGetUniqueId");
    *(void **)&nccl.init = find(library, "ncclCommInitRank");
    *(void **)&nccl.destroy = find(library, "ncclCommDestroy");
    *(void **)&nccl.all_reduce = find(library, "ncclAllReduce");
    *(void **)&nccl.all_gather = find(library, "ncclAllGather");
    *(void **)&nccl.broadcast = find(library, "ncclBroadcast");
    *(void **)&nccl.send = find(library, "ncclSend");
    *(void **)&nccl.recv = find(library, "ncclRecv");
    *(void **)&nccl.group_start = find(library, "ncclGroupStart");
    *(void **)&nccl.group_end = find(library, "ncclGroupEnd");
    *(void **)&nccl.get_version = find(library, "ncclGetVersion");
}

static int rank, ranks;

static void check(int result, const char *what)
{
    if (result != 0) {
        fprintf(stderr, "rank %d: %s: %d\n", rank, what, result);
        exit(1);
    }
}

/* ---- what the ranks share ---- */

struct shared {
    pthread_barrier_t barrier; /* all ranks and the reader of commands */
    nccl_id_t id;
    char op[32];
    long bytes, warmup, iters, is_checked;
    double seconds[RANKS_MAX], cpu[RANKS_MAX];
    long wrong[RANKS_MAX];
};
static struct shared *shared;

static void meet(void)
{
    pthread_barrier_wait(&shared->barrier);
}

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static double cpu_s(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

/* ---- one rank ---- */

static void *comm, *stream;
static uint64_t in, out;
static float *host;

static void post(void)
{
    size_t bytes = (size_t)shared->bytes, count = bytes / 4, part = count / (size_t)ranks;
    const char *op = shared->op;
    if (strcmp(op, "allreduce") == 0) {
        check(nccl.all_reduce((void *)in, (void *)out, count, NCCL_FLOAT, NCCL_SUM, comm, stream), op);
    } else if (strcmp(op, "allgather") == 0) {
        check(nccl.all_gather((void *)in, (void *)out, part, NCCL_FLOAT, comm, stream), op);
    } else if (strcmp(op, "broadcast") == 0) {
        check(nccl.broadcast((void *)in, (void *)out, count, NCCL_FLOAT, 0, comm, stream), op);
    } else {
        check(nccl.group_start(), "group");
        for (int i = 0; i < ranks; i++) {
            check(nccl.send((char *)in + (size_t)i * part * 4, part, NCCL_FLOAT, i, comm, stream), op);
            check(nccl.recv((char *)out + (size_t)i * part * 4, part, NCCL_FLOAT, i, comm, stream), op);
        }
        check(nccl.group_end(), op);
    }
}

/* What element i of a rank's input is: small whole numbers, so that sums are exact. */
static float input(int of, size_t i)
{
    return (float)((i * 7 + (size_t)of * 31) % 251);
}

static float expected(char kind, size_t i, size_t part)
{
    float sum = 0;
    if (kind == 'r') {
        for (int r = 0; r < ranks; r++) {
            sum += input(r, i);
        }
        return sum;
    }
    if (kind == 'g') {
        return input((int)(i / part), i % part);
    }
    if (kind == 'a') {
        return input(0, i);
    }
    return input((int)(i / part), (size_t)rank * part + i % part);
}

static long verify(void)
{
    size_t count = (size_t)shared->bytes / 4, part = count / (size_t)ranks;
    const char kind = shared->op[0] == 'b' ? 'a' : shared->op[3]; /* allReduce, allGather, bcAst, allToall */
    long wrong = 0;
    if (strcmp(shared->op, "allreduce") != 0 && strcmp(shared->op, "broadcast") != 0) {
        count = part * (size_t)ranks;
    }
    memset(host, 0, count * 4);
    check(cuda.to_device(out, host, count * 4), "clear");
    check(cuda.stream_wait(NULL), "clear"); /* it may be on its way still, and our stream would not wait for it */
    meet();
    post();
    check(cuda.stream_wait(stream), "wait");
    check(cuda.to_host(host, out, count * 4), "copy");
    for (size_t i = 0; i < count; i++) {
        wrong += host[i] != expected(kind, i, part);
    }
    return wrong;
}

static void run(void)
{
    double start, cpu;
    shared->wrong[rank] = shared->is_checked ? verify() : 0;
    for (long i = 0; i < shared->warmup; i++) {
        post();
    }
    check(cuda.stream_wait(stream), "wait");
    meet();
    cpu = cpu_s();
    start = now_s();
    for (long i = 0; i < shared->iters; i++) {
        post();
    }
    check(cuda.stream_wait(stream), "wait");
    shared->seconds[rank] = (now_s() - start) / (double)shared->iters;
    shared->cpu[rank] = (cpu_s() - cpu) / (double)shared->iters;
}

static void join(void)
{
    if (rank == 0) {
        check(nccl.get_id(&shared->id), "id");
    }
    meet();
    check(nccl.init(&comm, ranks, shared->id, rank), "init");
}

static void cycle(void)
{
    double start = now_s(), cpu = cpu_s();
    void *first = comm; /* lives on, unless all are to go: with the last one NCCL unloads the plugin */
    long is_all = shared->is_checked;
    if (is_all) {
        check(nccl.destroy(first), "destroy");
    }
    shared->wrong[rank] = 0;
    for (long i = 0; i < shared->iters; i++) {
        join();
        strcpy(shared->op, "allreduce");
        shared->wrong[rank] += verify();
        meet();
        check(nccl.destroy(comm), "destroy");
    }
    comm = first;
    if (is_all) {
        join();
    }
    shared->seconds[rank] = (now_s() - start) / (double)shared->iters;
    shared->cpu[rank] = (cpu_s() - cpu) / (double)shared->iters;
}

static void open_device(void)
{
    void *context;
    int device;
    check(cuda.init(0), "cuInit");
    check(cuda.device_get(&device, 0), "device");
    cuda.set_flags(device, CU_BLOCKING_SYNC); /* or waiting would cost a core */
    check(cuda.retain(&context, device), "context");
    check(cuda.set_current(context), "context");
    check(cuda.alloc(&in, BYTES_MAX), "memory");
    check(cuda.alloc(&out, BYTES_MAX), "memory");
    check(cuda.stream_create(&stream, 1), "stream");
    host = malloc(BYTES_MAX);
    for (size_t i = 0; i < BYTES_MAX / 4; i++) {
        host[i] = input(rank, i);
    }
    check(cuda.to_device(in, host, BYTES_MAX), "input");
    check(cuda.stream_wait(NULL), "input");
}

static int rank_main(const char *nccl_path)
{
    char name[64];
    snprintf(name, sizeof(name), "weft-bench-%d-%d", (int)getppid(), rank);
    setenv("NCCL_HOSTID", name, 1);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    load_all(nccl_path);
    open_device();
    join();
    meet();
    for (;;) {
        meet(); /* a command is there */
        if (strcmp(shared->op, "quit") == 0) {
            nccl.destroy(comm);
            return 0;
        }
        if (strcmp(shared->op, "cycle") == 0) {
            meet();
            cycle();
        } else {
            meet();
            run();
        }
        meet();
    }
}

/* ---- the one who reads commands: takes part in the barriers that all do ---- */

static void answer(long extra_meetings)
{
    double seconds = 0, cpu = 0;
    long wrong = 0;
    meet();
    meet();
    for (long i = 0; i < extra_meetings; i++) {
        meet();
    }
    meet();
    for (int i = 0; i < ranks; i++) {
        seconds = shared->seconds[i] > seconds ? shared->seconds[i] : seconds;
        cpu += shared->cpu[i];
        wrong += shared->wrong[i];
    }
    printf("ok %.9f %.9f %ld\n", seconds, cpu, wrong);
    fflush(stdout);
}

static void lead(void)
{
    char line[256];
    meet(); /* the first join */
    meet();
    printf("ready\n");
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin) != NULL) {
        if (sscanf(line, "run %31s %ld %ld %ld %ld", shared->op, &shared->bytes, &shared->warmup,
                   &shared->iters, &shared->is_checked) == 5) {
            answer(1 + shared->is_checked);
        } else if (sscanf(line, "cycle %ld %ld", &shared->iters, &shared->is_checked) == 2) {
            strcpy(shared->op, "cycle");
            shared->bytes = 8;
            answer(3 * shared->iters + shared->is_checked);
        } else {
            break;
        }
    }
    strcpy(shared->op, "quit");
    meet();
}

int main(int argc, char **argv)
{
    pthread_barrierattr_t attr;
    int status, failed = 0;
    if (argc != 3 || (ranks = atoi(argv[1])) < 1 || ranks > RANKS_MAX) {
        fprintf(stderr, "usage: nccl_team RANKS LIBNCCL\n");
        return 2;
    }
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_barrierattr_init(&attr);
    pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&shared->barrier, &attr, (unsigned)ranks + 1);
    for (rank = 0; rank < ranks; rank++) {
        pid_t pid = fork();
        if (pid == 0) {
            _exit(rank_main(argv[2]));
        }
    }
    if (fork() == 0) { /* the leader apart, so that a rank that fails ends the team */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        lead();
        _exit(0);
    }
    for (int i = 0; i <= ranks; i++) {
        wait(&status);
        failed |= status;
        if (failed != 0) {
            fprintf(stderr, "a rank failed\n");
            return 1;
        }
    }
    return 0;
}
