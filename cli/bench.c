/* SPDX-License-Identifier: Apache-2.0 */
/* weft bench NAME …: finds the benchmark; and what all benchmarks need to turn samples into
 * figures. */
#include "bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>

#include "comm/launch.h"
#include "topo/topo.h"

struct bench {
    const char *name;
    const char *summary;
    int (*run)(int argc, char **argv);
};

static const struct bench benches[] = {
    {"bootstrap", "start-up time, allgather, barrier, beside a bare control",
     weft_cli_bench_bootstrap},
    {"p2p", "latency, bandwidth, puts and the mesh, beside what the machine gives",
     weft_cli_bench_p2p},
    {"report", "a page with curves of results that were kept as JSON", weft_cli_bench_report},
};
#define NAMES (WEFT_COUNT_OF(benches) + WEFT_COLLS)

static void print_help(FILE *out)
{
    fprintf(out, "usage: weft bench NAME [options]\n\nbenchmarks:\n");
    for (size_t i = 0; i < WEFT_COUNT_OF(benches); i++) {
        fprintf(out, "  %-14s %s\n", benches[i].name, benches[i].summary);
    }
    fprintf(out, "collectives, with nccl-tests' tables:\n ");
    for (unsigned i = 0; i < WEFT_COLLS; i++) {
        fprintf(out, " %s", weft_coll_name((weft_coll_t)i));
    }
    fprintf(out, "\n\n`weft bench NAME --help` has options and examples.\n"
                 "exit status: 0 fine, 1 ran and failed, 2 bad usage\n\nexamples:\n"
                 "  weft bench allreduce -n 8 -f 8 --report allreduce.html\n"
                 "  weft bench p2p --path tcp --json\n");
}

static int unknown(const char *word)
{
    const char *names[NAMES];

    for (size_t i = 0; i < NAMES; i++) {
        names[i] = i < WEFT_COLLS ? weft_coll_name((weft_coll_t)i) : benches[i - WEFT_COLLS].name;
    }
    const char *near = weft_cli_nearest(word, names, NAMES);
    if (near != NULL) {
        fprintf(stderr, "weft bench: there is no benchmark \"%s\"; did you mean \"%s\"?\n", word,
                near);
    } else {
        fprintf(stderr, "weft bench: there is no benchmark \"%s\"; see `weft bench --help`\n",
                word);
    }
    return WEFT_CLI_USAGE;
}

int weft_cli_bench(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return WEFT_CLI_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_help(stdout);
        return WEFT_CLI_OK;
    }
    for (size_t i = 0; i < WEFT_COUNT_OF(benches); i++) {
        if (strcmp(argv[1], benches[i].name) == 0) {
            return benches[i].run(argc - 1, argv + 1);
        }
    }
    for (unsigned i = 0; i < WEFT_COLLS; i++) {
        if (strcmp(argv[1], weft_coll_name((weft_coll_t)i)) == 0) {
            return weft_cli_bench_coll((weft_coll_t)i, argc - 1, argv + 1);
        }
    }
    return unknown(argv[1]);
}

/* ---- figures ---- */

static int compare(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

/* The smallest sample that `percent` of all do not exceed. */
static double percentile_us(const uint64_t *sorted, size_t count, unsigned percent)
{
    size_t rank = (count * percent + 99) / 100;
    return (double)sorted[rank - 1] / 1e3;
}

/* As usual: of an even number of samples, the mean of the middle two. */
static double median_us(const uint64_t *sorted, size_t count)
{
    const uint64_t *low = &sorted[(count - 1) / 2], *high = &sorted[count / 2];
    return ((double)*low + (double)*high) / 2e3;
}

void weft_bench_figures(uint64_t *samples_ns, size_t count, struct weft_bench_figures *figures_p)
{
    double sum = 0, squares = 0;

    qsort(samples_ns, count, sizeof(samples_ns[0]), compare);
    for (size_t i = 0; i < count; i++) {
        sum += (double)samples_ns[i] / 1e3;
    }
    double avg = sum / (double)count;
    for (size_t i = 0; i < count; i++) {
        double off = (double)samples_ns[i] / 1e3 - avg;
        squares += off * off;
    }
    *figures_p = (struct weft_bench_figures){
        .min = (double)samples_ns[0] / 1e3,
        .p50 = median_us(samples_ns, count),
        .avg = avg,
        .p90 = percentile_us(samples_ns, count, 90),
        .p99 = percentile_us(samples_ns, count, 99),
        .max = (double)samples_ns[count - 1] / 1e3,
        .stddev = count > 1 ? sqrt(squares / (double)(count - 1)) : 0,
    };
}

void weft_bench_json_figures(struct weft_cli_json *json, const struct weft_bench_figures *figures)
{
    weft_cli_json_object(json, "time_us");
    weft_cli_json_real(json, "min", figures->min);
    weft_cli_json_real(json, "p50", figures->p50);
    weft_cli_json_real(json, "avg", figures->avg);
    weft_cli_json_real(json, "p90", figures->p90);
    weft_cli_json_real(json, "p99", figures->p99);
    weft_cli_json_real(json, "max", figures->max);
    weft_cli_json_real(json, "stddev", figures->stddev);
    weft_cli_json_end(json);
}

/* "AMD EPYC …"; "": not known */
static void read_cpu_name(char *name, size_t len)
{
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "re");
    name[0] = '\0';
    while (file != NULL && name[0] == '\0' && fgets(line, sizeof(line), file) != NULL) {
        const char *colon = strstr(line, ": ");
        if (strncmp(line, "model name", strlen("model name")) == 0 && colon != NULL) {
            snprintf(name, len, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
        }
    }
    if (file != NULL) {
        fclose(file);
    }
}

void weft_bench_json_host(struct weft_cli_json *json)
{
    struct utsname system;
    char cpu[128];
    read_cpu_name(cpu, sizeof(cpu));
    weft_cli_json_object(json, "host");
    weft_cli_json_int(json, "cores", weft_topo_cpus(""));
    if (cpu[0] != '\0') {
        weft_cli_json_text(json, "cpu", cpu);
    }
    if (uname(&system) == 0) {
        weft_cli_json_text(json, "kernel", system.release);
    }
    weft_cli_json_end(json);
}

void weft_bench_keep_slowest(_Atomic uint64_t *sample, uint64_t ns)
{
    uint64_t seen = atomic_load(sample);
    while (seen < ns && !atomic_compare_exchange_weak(sample, &seen, ns)) {
    }
}

void weft_bench_raise_fd_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit); /* refused: the first EMFILE will say so */
    }
}

/* ---- under a launcher ---- */

static const char *from_process(const char *name, void *context)
{
    (void)context;
    return getenv(name);
}

enum weft_bench_launch weft_bench_find_job(struct weft_bench_job *job_p)
{
    struct weft_params *params = weft_cli_alloc(1, sizeof(*params));
    struct weft_launch launch;
    enum weft_bench_launch found = WEFT_BENCH_BROKEN_JOB;
    if (weft_params_load(params) == WEFT_OK) {
        if (!weft_launch_is_there(params, from_process, NULL)) {
            found = WEFT_BENCH_ALONE;
        } else if (weft_launch_detect(params, from_process, NULL, &launch) == WEFT_OK) {
            *job_p = (struct weft_bench_job){
                .rank = launch.rank, .ranks = launch.ranks, .is_one_host = launch.is_one_host};
            found = launch.ranks > 1 ? WEFT_BENCH_IN_JOB
                                     : WEFT_BENCH_ALONE; /* a shell that srun has started */
        }
    }
    free(params);
    return found;
}
