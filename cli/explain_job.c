/* SPDX-License-Identifier: Apache-2.0 */
/* The job that explain and sim look at: this host, or what --topology says. */
#include "explain.h"

#include "topo/topo.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GBIT 1.25e8 /* bytes per second */
#define PAYLOAD                                                                                    \
    0.956 /* of a frame of 1514 bytes, TCP's and IP's headers and time stamps taken off */

static bool complain(char why[EXPLAIN_WHY_LEN], const char *fmt, ...) WEFT_PRINTF(2, 3);
static bool complain(char why[EXPLAIN_WHY_LEN], const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vsnprintf(why, EXPLAIN_WHY_LEN, fmt, args);
    va_end(args);
    return false;
}

/* ---- SPEC: hosts=12500,ranks=8,nics=4,rate=100G,latency=5us,cores=64 ---- */

struct spec {
    double hosts, ranks, nics, rate, latency_s, cores, cache; /* < 0: not said */
    const char *path;
};

struct spec_unit {
    const char *name;
    double factor;
};

/* A number with a unit, all of the text. */
static bool read_number(const char *text, const struct spec_unit *units, double *number_p)
{
    char *end;
    double number = strtod(text, &end);

    if (end == text || (text[0] != '.' && (text[0] < '0' || text[0] > '9')) || number > 1e15) {
        return false;
    }
    for (; units->name != NULL; units++) {
        if (strcmp(end, units->name) == 0) {
            *number_p = number * units->factor;
            return true;
        }
    }
    return false;
}

static bool read_entry(struct spec *spec, const char *name, const char *value,
                       char why[EXPLAIN_WHY_LEN])
{
    static const struct spec_unit plain[] = {{"", 1}, {"K", 1e3}, {"M", 1e6}, {NULL, 0}};
    static const struct spec_unit rates[] = {
        {"K", 125}, {"M", 125e3}, {"G", GBIT}, {"T", 1.25e11}, {NULL, 0}};
    static const struct spec_unit times[] = {
        {"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}, {NULL, 0}};
    static const struct spec_unit sizes[] = {
        {"K", 1024}, {"M", 1048576}, {"G", 1073741824}, {NULL, 0}};
    const struct {
        const char *name;
        const struct spec_unit *units;
        double *number;
        const char *example;
    } entries[] = {
        {"hosts", plain, &spec->hosts, "hosts=16"},
        {"ranks", plain, &spec->ranks, "ranks=8 (per host)"},
        {"nics", plain, &spec->nics, "nics=4 (per host)"},
        {"cores", plain, &spec->cores, "cores=64 (per host)"},
        {"rate", rates, &spec->rate, "rate=100G (bits per second, of one NIC)"},
        {"latency", times, &spec->latency_s, "latency=5us"},
        {"cache", sizes, &spec->cache, "cache=32M (last level)"},
    };

    if (strcmp(name, "path") == 0) {
        spec->path = strcmp(value, "shm") == 0 ? "shm" : strcmp(value, "tcp") == 0 ? "tcp" : NULL;
        return spec->path != NULL || complain(why, "path=%s: expected path=shm or path=tcp", value);
    }
    for (size_t i = 0; i < WEFT_COUNT_OF(entries); i++) {
        if (strcmp(name, entries[i].name) == 0) {
            bool is_count = entries[i].units == plain;
            return (read_number(value, entries[i].units, entries[i].number) &&
                    *entries[i].number >= (is_count ? 1 : 0) &&
                    (!is_count || *entries[i].number <= WEFT_RANKS_MAX)) ||
                   complain(why, "%s=%.40s: expected %s", name, value, entries[i].example);
        }
    }
    return complain(why,
                    "there is no \"%.40s\" in a topology: hosts, ranks, nics, rate, latency, "
                    "cores, cache, path",
                    name);
}

static bool read_spec(const char *text, struct spec *spec, char why[EXPLAIN_WHY_LEN])
{
    char *copy = weft_cli_format("%s", text), *rest = copy, *entry;
    bool is_fine = true;

    while (is_fine && (entry = strsep(&rest, ",")) != NULL) {
        char *equals = strchr(entry, '=');
        if (equals == NULL) {
            is_fine = complain(why, "\"%.40s\" in the topology: expected NAME=VALUE", entry);
        } else {
            *equals = '\0';
            is_fine = read_entry(spec, entry, equals + 1, why);
        }
    }
    free(copy);
    return is_fine;
}

/* ---- the job ---- */

static bool find_coll(const char *name, weft_coll_t *coll_p, char why[EXPLAIN_WHY_LEN])
{
    const char *names[WEFT_COLLS], *near;

    for (unsigned i = 0; i < WEFT_COLLS; i++) {
        names[i] = weft_coll_name((weft_coll_t)i);
        if (strcmp(name, names[i]) == 0) {
            *coll_p = (weft_coll_t)i;
            return true;
        }
    }
    near = weft_cli_nearest(name, names, WEFT_COLLS);
    return near != NULL
               ? complain(why, "there is no operation \"%.40s\"; did you mean \"%s\"?", name, near)
               : complain(why,
                          "there is no operation \"%.40s\": allreduce, reduce_scatter, "
                          "allgather, broadcast, reduce, gather, scatter, alltoall, barrier",
                          name);
}

/* Settings count here as they would in a job: the profile's calibration, WEFT_ALGO, WEFT_DETERMINISTIC. */
static bool take_settings(const struct explain_wish *wish, struct explain_job *job,
                          char why[EXPLAIN_WHY_LEN])
{
    static char algo[WEFT_PARAM_TEXT_LEN];
    struct weft_params *params = weft_cli_alloc(1, sizeof(*params));
    const char *wrong;
    bool is_fine = true;

    if (weft_params_load(params) != WEFT_OK) {
        is_fine = complain(why, "%s", weft_error_text());
    } else if (!weft_plan_calibration_parse(params->text[WEFT_PARAM_COSTS], &job->facts.calibration,
                                            &wrong)) {
        is_fine = complain(why, "WEFT_COSTS: %s", wrong);
    } else {
        snprintf(algo, sizeof(algo), "%s", params->text[WEFT_PARAM_ALGO]);
        job->ask.algo = wish->algo != NULL ? wish->algo : algo;
        job->ask.is_demanded = wish->algo != NULL;
        job->ask.is_deterministic =
            wish->is_deterministic || params->number[WEFT_PARAM_DETERMINISTIC] != 0;
        job->facts.eager_max = (double)params->number[WEFT_PARAM_EAGER];
    }
    free(params);
    return is_fine;
}

/* How many ranks on how many hosts: from -n, --hosts and the topology, which must agree. */
static bool lay_out(const struct explain_wish *wish, const struct spec *spec,
                    struct weft_plan_facts *facts, char why[EXPLAIN_WHY_LEN])
{
    double ranks = (double)wish->ranks, hosts = wish->hosts > 0 ? (double)wish->hosts : spec->hosts;
    double each = spec->ranks;

    if (hosts < 0) {
        hosts = each > 0 && ranks > 0 ? (ranks + each - 1) / each : 1;
        hosts = (double)(uint32_t)hosts;
    }
    if (each < 0) {
        each = ranks > 0 ? (double)(uint32_t)((ranks + hosts - 1) / hosts) : 1;
    }
    if (ranks == 0) {
        ranks = hosts * each;
    }
    if (ranks > WEFT_RANKS_MAX) {
        return complain(why, "%.0f ranks; a job has at most %d", ranks, WEFT_RANKS_MAX);
    }
    if (ranks > hosts * each || ranks <= (hosts - 1) * each) {
        return complain(why, "%.0f ranks do not fill %.0f hosts with %.0f each", ranks, hosts,
                        each);
    }
    facts->ranks = (uint32_t)ranks;
    facts->hosts = (uint32_t)hosts;
    facts->host_ranks = (uint32_t)each;
    return true;
}

static void describe(const struct explain_wish *wish, const struct spec *spec,
                     struct weft_plan_facts *facts)
{
    const char *path = wish->path != NULL ? wish->path : spec->path;
    double cores = wish->cores > 0 ? (double)wish->cores : spec->cores;

    facts->inside = path != NULL && strcmp(path, "tcp") == 0 ? WEFT_INSIDE_TCP : WEFT_INSIDE_SHM;
    facts->cores = cores > 0 ? (uint32_t)cores : facts->cores;
    facts->nics = spec->nics > 0 ? (uint32_t)spec->nics : 1;
    facts->nic_rate = (spec->rate > 0 ? spec->rate : facts->nic_rate) * PAYLOAD;
    if (spec->latency_s >= 0) {
        facts->calibration.net.latency_s = spec->latency_s;
    }
    facts->cache = spec->cache > 0 ? spec->cache : facts->cache;
    double room = facts->cache / 2 / facts->host_ranks;
    facts->slot_room = room > 4194304 ? 4194304 : room < 65536 ? 65536 : room;
}

bool weft_explain_job(const char *coll, const struct explain_wish *wish, struct explain_job *job_p,
                      char why[EXPLAIN_WHY_LEN])
{
    struct spec spec = {-1, -1, -1, -1, -1, -1, -1, NULL};
    struct explain_job job = {.ask = {.root = (uint32_t)wish->root}};
    long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);

    weft_plan_facts_default(1, weft_topo_cpus(""), &job.facts);
    job.facts.cache = cache > 0 ? (double)cache : job.facts.cache;
    if (!find_coll(coll, &job.ask.coll, why) ||
        (wish->topology != NULL && !read_spec(wish->topology, &spec, why)) ||
        !lay_out(wish, &spec, &job.facts, why) || !take_settings(wish, &job, why)) {
        return false;
    }
    if (wish->path != NULL && strcmp(wish->path, "shm") != 0 && strcmp(wish->path, "tcp") != 0) {
        return complain(why, "--path %.40s: expected shm or tcp", wish->path);
    }
    if (wish->root >= (int64_t)job.facts.ranks) {
        return complain(why, "--root %lld: there are %u ranks", (long long)wish->root,
                        job.facts.ranks);
    }
    describe(wish, &spec, &job.facts);
    weft_plan_ask_lengths(&job.ask, (double)wish->bytes, false);
    *job_p = job;
    return true;
}

const char *weft_explain_where(const struct weft_plan_facts *facts, char text[EXPLAIN_TEXT_LEN])
{
    char net[96] = "", time[EXPLAIN_WORD_LEN];

    if (facts->hosts > 1) {
        snprintf(net, sizeof(net), ", %u NIC%s of %.4g Gbit/s, %s", facts->nics,
                 facts->nics == 1 ? "" : "s", facts->nic_rate / PAYLOAD / GBIT,
                 weft_explain_time(facts->calibration.net.latency_s, time));
    }
    snprintf(text, EXPLAIN_TEXT_LEN, "%u rank%s on %u host%s (%u core%s%s%s%s)", facts->ranks,
             facts->ranks == 1 ? "" : "s", facts->hosts, facts->hosts == 1 ? "" : "s", facts->cores,
             facts->cores == 1 ? "" : "s", facts->hosts > 1 ? " each" : "",
             facts->inside == WEFT_INSIDE_SHM ? ", shm" : ", tcp", net);
    return text;
}

void weft_explain_topology_json(struct weft_cli_json *json, const struct weft_plan_facts *facts)
{
    weft_cli_json_object(json, "topology");
    weft_cli_json_int(json, "hosts", facts->hosts);
    weft_cli_json_int(json, "ranks_per_host", facts->host_ranks);
    weft_cli_json_int(json, "cores", facts->cores);
    weft_cli_json_text(json, "path", facts->inside == WEFT_INSIDE_SHM ? "shm" : "tcp");
    weft_cli_json_int(json, "nics", facts->nics);
    weft_cli_json_real(json, "rate_gbit", facts->nic_rate / PAYLOAD / GBIT);
    weft_cli_json_real(json, "latency_us", facts->calibration.net.latency_s * 1e6);
    weft_cli_json_end(json);
}
