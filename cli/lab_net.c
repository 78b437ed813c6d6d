/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lab's network, made by the programs everybody knows: ip, tc, nft, iptables. Each runs once
 * per namespace, without a shell, its commands on stdin (iptables: in its arguments).
 *
 *   rate     tbf at both ends of every link: what a host sends, and what the switch sends it
 *   loss     nft in the switch, on what bridges forward; not ARP, whose loss only costs seconds
 *   delay,   NFQUEUE on what a host receives; its keeper lets packets go (lab_queue.c). By
 *   reorder  iptables: it works also where the kernel has no queue expression for nft
 *
 * With loss or reordering NICs take packets one by one (no TSO; the kernel cuts segments behind the
 * qdisc, which is cheap): else one loss would take 64 KB.
 */
#include "lab.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXEC_FAILED 127
#define LINKS_MS 10000u
#define FORWARDING "3" /* a bridge port's state */

struct program {
    const char *name, *package;
    char path[PATH_MAX]; /* when found */
};

enum { IP, TC, NFT, IPTABLES };
static struct program programs[] = {
    [IP] = {.name = "ip", .package = "iproute2"},
    [TC] = {.name = "tc", .package = "iproute2"},
    [NFT] = {.name = "nft", .package = "nftables"},
    [IPTABLES] = {.name = "iptables", .package = "iptables"},
};

void weft_lab_address(unsigned host, unsigned nic, char text[16])
{
    snprintf(text, 16, "10.%u.0.%u", (nic + 1) & 0xff, (host + 1) & 0xff);
}

/* ---- what it takes ---- */

static bool find_program(struct program *program)
{
    const char *path = getenv("PATH");
    char *folders = weft_cli_format("%s:/usr/sbin:/sbin", path != NULL ? path : "/usr/bin:/bin");
    char *rest = folders;
    bool is_found = false;

    for (const char *folder; !is_found && (folder = strsep(&rest, ":")) != NULL;) {
        int len = snprintf(program->path, sizeof(program->path), "%s/%s", folder, program->name);
        is_found =
            len > 0 && (size_t)len < sizeof(program->path) && access(program->path, X_OK) == 0;
    }
    free(folders);
    return is_found;
}

static bool has_capability(unsigned number)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];

    return syscall(SYS_capget, &head, data) == 0 &&
           (data[number / 32].effective & 1u << number % 32) != 0;
}

bool weft_lab_has_means(struct weft_lab *lab)
{
    const struct weft_lab_spec *spec = &lab->spec;
    bool is_needed[] = {[IP] = true,
                        [TC] = true,
                        [NFT] = spec->loss_ppm > 0,
                        [IPTABLES] = spec->delay_ns > 0 || spec->reorder_ppm > 0};
    bool may_net = has_capability(CAP_NET_ADMIN);

    if (!may_net || !has_capability(CAP_SYS_ADMIN)) {
        return weft_lab_fail(lab, "making hosts needs root, %s is missing: try `sudo weft lab ...`",
                             may_net ? "CAP_SYS_ADMIN" : "CAP_NET_ADMIN");
    }
    for (size_t i = 0; i < WEFT_COUNT_OF(programs); i++) {
        if (is_needed[i] && !find_program(&programs[i])) {
            return weft_lab_fail(lab, "there is no %s on this machine: install package %s",
                                 programs[i].name, programs[i].package);
        }
    }
    return true;
}

/* ---- running a program in a place ---- */

static _Noreturn void become_program(const struct weft_lab *lab, unsigned index,
                                     const char *const *argv, const int streams[2])
{
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (null >= 0 && dup2(streams[0], STDIN_FILENO) >= 0 && dup2(null, STDOUT_FILENO) >= 0 &&
        dup2(streams[1], STDERR_FILENO) >= 0 && weft_lab_enter(lab, index, CLONE_NEWNET)) {
        execv(argv[0], (char *const *)argv); /* which does not write */
    }
    dprintf(streams[1], "cannot start: %s\n", strerror(errno));
    _exit(EXEC_FAILED);
}

/* What it said first is why it failed; ip and tc go on to tell which line of ours it was. */
static bool blame(struct weft_lab *lab, unsigned index, const char *program, int said_fd)
{
    char said[160] = "", name[16];
    ssize_t len = pread(said_fd, said, sizeof(said) - 1, 0);

    said[len > 0 ? (size_t)len : 0] = '\0';
    said[strcspn(said, "\n")] = '\0';
    return weft_lab_fail(lab, "%s on %s failed: %s", program, weft_lab_place_name(lab, index, name),
                         said[0] != '\0' ? said : "it did not say why");
}

static bool run_program(struct weft_lab *lab, unsigned index, int which, const char *const *argv,
                        const char *input)
{
    size_t len = strlen(input);
    int streams[2] = {memfd_create("commands", MFD_CLOEXEC), memfd_create("said", MFD_CLOEXEC)};
    int status = -1;

    if (streams[0] >= 0 && streams[1] >= 0 && pwrite(streams[0], input, len, 0) == (ssize_t)len) {
        pid_t pid = fork();
        if (pid == 0) {
            become_program(lab, index, argv, streams);
        }
        while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
        }
    }
    bool is_fine = status == 0 || blame(lab, index, programs[which].name, streams[1]);
    for (int i = 0; i < 2; i++) {
        if (streams[i] >= 0) {
            close(streams[i]);
        }
    }
    return is_fine;
}

/* ---- its commands ---- */

/* Commands as they are written; weft_lab_connect() runs and frees them. */
struct script {
    FILE *out;
    char *text;
    size_t len;
};

static FILE *begin(struct script *script)
{
    *script = (struct script){0};
    script->out = open_memstream(&script->text, &script->len);
    if (script->out == NULL) {
        fputs("weft: out of memory\n", stderr);
        exit(WEFT_CLI_FAILED);
    }
    return script->out;
}

static bool run_script(struct weft_lab *lab, unsigned index, int which, struct script *script)
{
    const char *argv[] = {programs[which].path, which == NFT ? "-f" : "-batch", "-", NULL};

    fclose(script->out);
    bool is_fine = script->len == 0 || run_program(lab, index, which, argv, script->text);
    free(script->text);
    return is_fine;
}

static bool build_switch(struct weft_lab *lab)
{
    const struct weft_lab_spec *spec = &lab->spec;
    struct script script;
    FILE *out = begin(&script);
    char mtu[24] = "";

    if (spec->mtu > 0) {
        snprintf(mtu, sizeof(mtu), "mtu %u ", spec->mtu);
    }
    fputs("link set lo up\n", out);
    for (unsigned nic = 0; nic < spec->nics; nic++) {
        fprintf(out, "link add br%u %stype bridge forward_delay 0 mcast_snooping 0\n", nic, mtu);
        for (unsigned host = 0; host < spec->hosts; host++) {
            fprintf(out, "link add p%u-%u %stype veth peer name eth%u %snetns %d\n", host, nic, mtu,
                    nic, mtu, (int)lab->place[host].pid);
            fprintf(out, "link set p%u-%u master br%u up\n", host, nic, nic);
        }
        fprintf(out, "link set br%u up\n", nic);
    }
    return run_script(lab, spec->hosts, IP, &script);
}

/* In a child: the host's NICs take packets of the MTU only. Returns errno. */
static int split_segments(const struct weft_lab *lab, unsigned host)
{
    if (!weft_lab_enter(lab, host, CLONE_NEWNET)) {
        return errno;
    }
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    for (unsigned nic = 0; fd >= 0 && nic < lab->spec.nics; nic++) {
        struct ethtool_value off = {.cmd = ETHTOOL_STSO, .data = 0};
        struct ifreq request = {.ifr_data = (char *)&off};
        snprintf(request.ifr_name, sizeof(request.ifr_name), "eth%u", nic);
        if (ioctl(fd, SIOCETHTOOL, &request) != 0) {
            return errno;
        }
    }
    return fd >= 0 ? 0 : errno;
}

static bool send_one_by_one(struct weft_lab *lab, unsigned host)
{
    int status = -1;
    pid_t pid = fork();

    if (pid == 0) {
        _exit(split_segments(lab, host));
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return status == 0 ||
           weft_lab_fail(lab, "turning TSO off on h%u: %s", host,
                         status > 0 && WIFEXITED(status) ? strerror(WEXITSTATUS(status))
                                                         : "the process failed");
}

static bool build_host(struct weft_lab *lab, unsigned host)
{
    const struct weft_lab_spec *spec = &lab->spec;
    bool is_one_by_one = spec->loss_ppm > 0 || spec->reorder_ppm > 0;
    struct script script;
    FILE *out = begin(&script);
    char address[16];

    fputs("link set lo up\n", out);
    for (unsigned nic = 0; nic < spec->nics; nic++) {
        weft_lab_address(host, nic, address);
        fprintf(out, "address add %s/24 dev eth%u\n", address, nic);
        fprintf(out, "link set eth%u up\n", nic);
    }
    return run_script(lab, host, IP, &script) && (!is_one_by_one || send_one_by_one(lab, host));
}

/* One line of the sysfs of a place, which its keeper shows us. */
static bool says(const struct weft_lab *lab, unsigned index, const char *device, const char *file,
                 const char *wanted)
{
    char path[96], text[32];

    snprintf(path, sizeof(path), "/proc/%d/root/sys/class/net/%s/%s", (int)lab->place[index].pid,
             device, file);
    if (!weft_file_read(path, text, sizeof(text))) {
        return false;
    }
    text[strcspn(text, "\n")] = '\0';
    return strcmp(text, wanted) == 0;
}

static bool is_link_up(const struct weft_lab *lab, unsigned host, unsigned nic)
{
    char device[24], port[24];

    snprintf(device, sizeof(device), "eth%u", nic);
    snprintf(port, sizeof(port), "p%u-%u", host, nic);
    return says(lab, host, device, "operstate", "up") &&
           says(lab, lab->spec.hosts, port, "brport/state", FORWARDING);
}

/* The kernel tells of new carriers a little later. A first packet before that would be lost, and
 * its ARP request be sent again after a second. */
static bool await_links(struct weft_lab *lab)
{
    uint64_t deadline_ns = weft_clock_after_ms(LINKS_MS);

    for (unsigned i = 0; i < lab->spec.hosts * lab->spec.nics; i++) {
        unsigned host = i / lab->spec.nics, nic = i % lab->spec.nics;
        while (!is_link_up(lab, host, nic)) {
            if (weft_clock_ns() > deadline_ns) {
                return weft_lab_fail(lab, "eth%u of h%u has not come up within %u s", nic, host,
                                     LINKS_MS / 1000);
            }
            poll(NULL, 0, 1);
        }
    }
    return true;
}

static void limit(FILE *out, const char *device, uint64_t bits)
{
    if (bits > 0) {
        fprintf(out, "qdisc add dev %s root tbf rate %llubit burst %u latency %ums\n", device,
                (unsigned long long)bits, WEFT_LAB_BURST_BYTES, WEFT_LAB_LATENCY_MS);
    }
}

static bool limit_rates(struct weft_lab *lab)
{
    const struct weft_lab_spec *spec = &lab->spec;
    struct script at_switch, at_host;
    FILE *out = begin(&at_switch);
    char device[24];
    bool is_fine = true;

    for (unsigned host = 0; host < spec->hosts; host++) {
        FILE *host_out = begin(&at_host);
        for (unsigned nic = 0; nic < spec->nics; nic++) {
            snprintf(device, sizeof(device), "eth%u", nic);
            limit(host_out, device, spec->rate[nic]);
            snprintf(device, sizeof(device), "p%u-%u", host, nic);
            limit(out, device, spec->rate[nic]);
        }
        is_fine = run_script(lab, host, TC, &at_host) && is_fine;
    }
    return run_script(lab, spec->hosts, TC, &at_switch) && is_fine;
}

static bool lose_packets(struct weft_lab *lab)
{
    struct script script;
    FILE *out = begin(&script);

    if (lab->spec.loss_ppm > 0) {
        fprintf(out,
                "table bridge weft { chain loss { type filter hook forward priority 0; "
                "ether type { ip, ip6 } numgen random mod %u < %u drop; }; }\n",
                WEFT_LAB_PPM, lab->spec.loss_ppm);
    }
    return run_script(lab, lab->spec.hosts, NFT, &script);
}

static bool queue_packets(struct weft_lab *lab)
{
    const char *argv[] = {programs[IPTABLES].path,
                          "-w",
                          "-A",
                          "INPUT",
                          "-i",
                          "eth+",
                          "-j",
                          "NFQUEUE",
                          "--queue-num",
                          "0",
                          "--queue-bypass",
                          NULL};
    bool is_fine = true;

    if (lab->spec.delay_ns == 0 && lab->spec.reorder_ppm == 0) {
        return true;
    }
    for (unsigned host = 0; host < lab->spec.hosts && is_fine; host++) {
        is_fine = run_program(lab, host, IPTABLES, argv, "");
    }
    return is_fine;
}

bool weft_lab_connect(struct weft_lab *lab)
{
    weft_cli_progress("connecting %u hosts by %u networks", lab->spec.hosts, lab->spec.nics);
    if (!build_switch(lab)) {
        return false;
    }
    for (unsigned host = 0; host < lab->spec.hosts; host++) {
        if (!build_host(lab, host)) {
            return false;
        }
    }
    return await_links(lab) && limit_rates(lab) && lose_packets(lab) && queue_packets(lab);
}
