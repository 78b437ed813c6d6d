/* SPDX-License-Identifier: Apache-2.0 */
/* weft lab: hosts with several NICs on this machine, and a job on them. */
#include "lab.h"

#include "run.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define ROOT_PORT 23400 /* of rank 0; nobody else is on a new host */

static int64_t hosts = 2, nics, mtu, ranks_per_host = 1;
static const char *rate = "1G", *loss = "0", *delay = "0", *reorder = "0";
static bool is_kept, is_tagged, is_json;
static uint64_t timeout_ms, grace_ms = 2000;

static const struct weft_cli_option options[] = {
    {"hosts", 'H', WEFT_CLI_INT, "N", "how many hosts, default 2", &hosts, 1, WEFT_LAB_HOSTS_MAX},
    {"nics", 0, WEFT_CLI_INT, "N", "NICs per host: eth0, eth1, ..., default 4", &nics, 1,
     WEFT_LAB_NICS_MAX},
    {"rate", 0, WEFT_CLI_TEXT, "RATES", "bit/s each way: of all NICs, or 1G,250M,...; default 1G",
     &rate, 0, 0},
    {"mtu", 0, WEFT_CLI_INT, "BYTES", "of all links, default 1500", &mtu, 576, 65535},
    {"loss", 0, WEFT_CLI_TEXT, "PERCENT", "of the packets that the switch forwards", &loss, 0, 0},
    {"delay", 0, WEFT_CLI_TEXT, "MS", "added to every packet, each way (also 200us)", &delay, 0, 0},
    {"reorder", 0, WEFT_CLI_TEXT, "PERCENT", "of the packets, which come 1 ms late", &reorder, 0,
     0},
    {"ranks-per-host", 'r', WEFT_CLI_INT, "N", "how many ranks on each host, default 1",
     &ranks_per_host, 1, WEFT_RUN_RANKS_MAX / 4},
    {"keep", 0, WEFT_CLI_FLAG, NULL, "no program: keep the hosts until stdin ends, or Ctrl-C",
     &is_kept, 0, 0},
    {"tag-output", 0, WEFT_CLI_FLAG, NULL, "begin each line of output with its rank: [3] ...",
     &is_tagged, 0, 0},
    {"timeout", 0, WEFT_CLI_DURATION, "TIME", "end the job after this long (90s, 5min)",
     &timeout_ms, 1, INT64_C(86400000) * 365},
    {"grace", 0, WEFT_CLI_DURATION, "TIME", "between SIGTERM and SIGKILL, default 2s", &grace_ms, 0,
     INT64_C(86400000)},
    {"json", 0, WEFT_CLI_FLAG, NULL, "hosts and results on stdout; ranks' output goes to stderr",
     &is_json, 0, 0},
    {0},
};

static const struct weft_cli_command command = {
    .name = "lab",
    .summary =
        "Try a job on several hosts with several NICs, without having them: network namespaces\n"
        "h0, h1, ... of this machine, joined by one switch per NIC (eth0 is 10.1.0.x, eth1 "
        "10.2.0.x).\n"
        "Every host runs the program; ranks are numbered host by host. Needs root, and leaves "
        "nothing\n"
        "behind, however it ends. With --delay, --loss and --reorder it is a bad network.",
    .usage = "[options] [--] program [args...]",
    .options = options,
    .examples =
        {"weft lab --nics 4 --rate 1G -- ./train --epochs 3",
         "weft lab --hosts 3 --rate 1G,250M --loss 0.1 --delay 5 --tag-output python3 job.py"},
    .is_prefix_of_others = true,
};

/* ---- what was asked for ---- */

/* -1: go on. */
static int read_network(struct weft_lab_spec *spec)
{
    unsigned count;

    if (!weft_lab_read_rates(rate, spec->rate, &count)) {
        return weft_cli_usage_error(
            &command, "--rate %s: expected bits per second such as 1G, 2.5G, none, or 1G,250M",
            rate);
    }
    spec->nics = nics > 0 ? (unsigned)nics : count > 1 ? count : 4;
    if (count > 1 && count != spec->nics) {
        return weft_cli_usage_error(
            &command, "--rate %s has %u rates for %u NICs: give one for all, or one each", rate,
            count, spec->nics);
    }
    for (unsigned i = count; i < spec->nics; i++) {
        spec->rate[i] = spec->rate[0];
    }
    if (!weft_lab_read_percent(loss, &spec->loss_ppm)) {
        return weft_cli_usage_error(&command, "--loss %s: expected a percentage such as 0.1", loss);
    }
    if (!weft_lab_read_percent(reorder, &spec->reorder_ppm)) {
        return weft_cli_usage_error(&command, "--reorder %s: expected a percentage such as 0.1",
                                    reorder);
    }
    if (!weft_lab_read_delay(delay, &spec->delay_ns)) {
        return weft_cli_usage_error(
            &command, "--delay %s: expected milliseconds such as 5, or 200us, up to 10s", delay);
    }
    return -1;
}

static int read_spec(struct weft_lab_spec *spec)
{
    spec->hosts = (unsigned)hosts;
    spec->ranks_per_host = (unsigned)ranks_per_host;
    spec->mtu = (unsigned)mtu;
    unsigned ranks = spec->hosts * spec->ranks_per_host;
    if (ranks > WEFT_RUN_RANKS_MAX) {
        return weft_cli_usage_error(&command, "%u ranks; at most %d are supported", ranks,
                                    WEFT_RUN_RANKS_MAX);
    }
    return read_network(spec);
}

/* ---- what is there ---- */

static void describe_host(const struct weft_lab *lab, unsigned host, struct weft_cli_json *json)
{
    char text[24];

    weft_cli_json_object(json, NULL);
    weft_cli_json_text(json, "name", weft_lab_place_name(lab, host, text));
    weft_cli_json_int(json, "pid", lab->place[host].pid);
    weft_cli_json_array(json, "nics");
    for (unsigned nic = 0; nic < lab->spec.nics; nic++) {
        weft_cli_json_object(json, NULL);
        snprintf(text, sizeof(text), "eth%u", nic);
        weft_cli_json_text(json, "name", text);
        weft_lab_address(host, nic, text);
        weft_cli_json_text(json, "address", text);
        snprintf(text, sizeof(text), "p%u-%u", host, nic);
        weft_cli_json_text(json, "port", text);
        if (lab->spec.rate[nic] > 0) {
            weft_cli_json_int(json, "rate_bps", (int64_t)lab->spec.rate[nic]);
        } else {
            weft_cli_json_null(json, "rate_bps");
        }
        weft_cli_json_end(json);
    }
    weft_cli_json_end(json);
    weft_cli_json_end(json);
}

static void describe(void *context, struct weft_cli_json *json)
{
    const struct weft_lab *lab = context;
    const struct weft_lab_spec *spec = &lab->spec;

    weft_cli_json_text(json, "name", lab->name);
    weft_cli_json_array(json, "hosts");
    for (unsigned host = 0; host < spec->hosts; host++) {
        describe_host(lab, host, json);
    }
    weft_cli_json_end(json);
    weft_cli_json_object(json, "switch");
    weft_cli_json_int(json, "pid", lab->place[spec->hosts].pid);
    weft_cli_json_end(json);
    weft_cli_json_object(json, "links");
    weft_cli_json_int(json, "mtu", spec->mtu > 0 ? spec->mtu : 1500);
    weft_cli_json_int(json, "burst_bytes", WEFT_LAB_BURST_BYTES);
    weft_cli_json_int(json, "latency_ms", WEFT_LAB_LATENCY_MS);
    weft_cli_json_real(json, "loss_percent", spec->loss_ppm / (WEFT_LAB_PPM / 100.0));
    weft_cli_json_real(json, "reorder_percent", spec->reorder_ppm / (WEFT_LAB_PPM / 100.0));
    weft_cli_json_real(json, "delay_ms", (double)spec->delay_ns / 1e6);
    weft_cli_json_end(json);
}

static void say_rates(const struct weft_lab_spec *spec)
{
    char text[24];
    bool is_same = true;

    for (unsigned nic = 1; nic < spec->nics; nic++) {
        is_same = is_same && spec->rate[nic] == spec->rate[0];
    }
    for (unsigned nic = 0; nic < (is_same ? 1 : spec->nics); nic++) {
        fprintf(stderr, "%s%s", nic > 0 ? "," : " at ", weft_lab_print_rate(spec->rate[nic], text));
    }
}

/* On stderr: where the hosts are, and how to look at one from outside. */
static void say_hosts(const struct weft_lab *lab, uint64_t since_ns)
{
    const struct weft_lab_spec *spec = &lab->spec;
    char name[16], first[16];

    weft_cli_progress_clear();
    fprintf(stderr, "weft lab: %s: %u host%s with %u NIC%s", lab->name, spec->hosts,
            spec->hosts > 1 ? "s" : "", spec->nics, spec->nics > 1 ? "s" : "");
    say_rates(spec);
    fprintf(stderr, ", made in %llu ms\n",
            (unsigned long long)((weft_clock_ns() - since_ns) / WEFT_NS_PER_MS));
    for (unsigned i = 0; i <= spec->hosts; i++) {
        weft_lab_address(i, 0, first);
        fprintf(stderr, "weft lab: %-6s %-10s nsenter -t %d -n -u -m --wd=.\n",
                weft_lab_place_name(lab, i, name), i < spec->hosts ? first : "",
                (int)lab->place[i].pid);
    }
}

/* ---- ranks ---- */

static unsigned host_of(const struct weft_lab *lab, int rank)
{
    return (unsigned)rank / lab->spec.ranks_per_host;
}

static pid_t fork_rank(void *context, int rank)
{
    struct weft_lab *lab = context;

    return weft_lab_fork(lab, host_of(lab, rank));
}

static bool enter_rank(void *context, int rank)
{
    const struct weft_lab *lab = context;
    char text[32], address[16];

    weft_lab_address(0, 0, address);
    snprintf(text, sizeof(text), "%s:%d", address, ROOT_PORT);
    setenv("WEFT_ROOT", text, 1);
    snprintf(text, sizeof(text), "%u", (unsigned)rank % lab->spec.ranks_per_host);
    setenv("WEFT_LOCAL_RANK", text, 1);
    snprintf(text, sizeof(text), "%u", lab->spec.ranks_per_host);
    setenv("WEFT_LOCAL_RANKS", text, 1);
    setenv("WEFT_LAB", lab->name, 1);
    return weft_lab_enter_as_rank(lab, host_of(lab, rank));
}

static int run_ranks(struct weft_lab *lab, char **argv)
{
    const struct weft_run_ground ground = {
        .fork = fork_rank, .enter = enter_rank, .describe = describe, .context = lab};
    struct weft_run_job job = {
        .command = &command,
        .ground = &ground,
        .ranks = (int)(lab->spec.hosts * lab->spec.ranks_per_host),
        .is_tagged = is_tagged,
        .is_json = is_json,
        .timeout_ms = timeout_ms,
        .grace_ms = grace_ms,
        .argv = argv,
    };

    return weft_run(&job);
}

/* ---- --keep ---- */

/* Until stdin ends, or a signal asks us to. */
static int wait_for_end(void)
{
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    char bytes[256];
    sigset_t mask;

    sigemptyset(&mask);
    for (size_t i = 0; i < WEFT_COUNT_OF(ends); i++) {
        sigaddset(&mask, ends[i]);
    }
    sigprocmask(SIG_BLOCK, &mask, NULL);
    struct pollfd fds[2] = {{.fd = STDIN_FILENO, .events = POLLIN},
                            {.fd = signalfd(-1, &mask, SFD_CLOEXEC), .events = POLLIN}};
    if (fds[1].fd < 0) {
        return weft_cli_fail(&command, "watching for signals: %s", strerror(errno));
    }
    while (fds[1].revents == 0) {
        int ready = poll(fds, 2, -1);
        if (ready < 0) {
            fds[0].revents = fds[1].revents = 0;
        } else if (fds[0].revents != 0 && read(STDIN_FILENO, bytes, sizeof(bytes)) <= 0) {
            break;
        }
    }
    close(fds[1].fd);
    return WEFT_CLI_OK;
}

static int keep_hosts(struct weft_lab *lab)
{
    struct weft_cli_json json;

    if (is_json) {
        weft_cli_json_open(&json, stdout);
        weft_cli_json_text(&json, "command", command.name);
        describe(lab, &json);
        if (!weft_cli_json_close(&json)) {
            return WEFT_CLI_FAILED;
        }
    }
    return wait_for_end();
}

int weft_cli_lab(int argc, char **argv)
{
    struct weft_lab lab = WEFT_LAB_NONE;
    int rest;
    int status = weft_cli_parse(&command, argc, argv, &rest);

    status = status < 0 ? read_spec(&lab.spec) : status;
    if (status >= 0) {
        return status;
    }
    if ((rest == argc) != is_kept) {
        return weft_cli_usage_error(&command, is_kept ? "--keep takes no program"
                                                      : "the program is missing (or --keep)");
    }
    uint64_t since_ns = weft_clock_ns();
    if (!weft_lab_has_means(&lab) || !weft_lab_open(&lab)) {
        weft_cli_fail(&command, "%s", lab.reason);
        status = WEFT_CLI_USAGE; /* not on this machine, or not by this user */
    } else if (!weft_lab_connect(&lab)) {
        status = weft_cli_fail(&command, "%s", lab.reason);
    } else {
        say_hosts(&lab, since_ns);
        status = is_kept ? keep_hosts(&lab) : run_ranks(&lab, argv + rest);
    }
    weft_lab_close(&lab);
    return status;
}
