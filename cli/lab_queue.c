/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Delay and reordering: what a host receives waits in the kernel (NFQUEUE) until its keeper lets it
 * go. Only the packets' numbers come here, never their bytes, so a segment of 64 KB costs as much
 * as a small one. A packet waits `delay`; `reorder` of them wait LATE_NS longer, so that those
 * behind overtake them. Each of the two waits is of one length for all: two plain queues do.
 *
 * The kernel's protocol is netlink, spoken here directly: a message in, a verdict out.
 */
#include "lab.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_queue.h>
#include <linux/netlink.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define QUEUE_LEN 65536u /* packets that may wait; a power of two. More pass at once */
#define SOCKET_LEN (32 << 20)
#define LATE_NS 1000000u
#define BATCH 64 /* messages per round each way */
#define ANSWER_MS 2000
#define PADDED(len) (((size_t)(len) + NLA_ALIGNTO - 1) / NLA_ALIGNTO * NLA_ALIGNTO)

struct request {
    struct nlmsghdr head;
    struct nfgenmsg body;
    char attributes[64];
};

struct waiting {
    uint32_t id;
    uint64_t due_ns;
};

struct line {
    struct waiting *packet; /* [QUEUE_LEN], owned */
    uint32_t first, end;    /* free running */
    uint64_t wait_ns;
};

struct verdict {
    struct nlmsghdr head;
    struct nfgenmsg body;
    struct nlattr attribute;
    struct nfqnl_msg_verdict_hdr value;
};
_Static_assert(sizeof(struct verdict) % NLMSG_ALIGNTO == 0, "verdicts follow each other");

struct queue {
    int fd;
    struct line line[2]; /* on time, late */
    unsigned late_ppm;
    uint64_t random;
    struct verdict verdict[BATCH];
    unsigned verdicts;
};

/* ---- opening ---- */

static void begin(struct request *request, uint8_t type, uint8_t family)
{
    *request = (struct request){
        .head = {.nlmsg_len = NLMSG_LENGTH(sizeof(struct nfgenmsg)),
                 .nlmsg_type = (uint16_t)(NFNL_SUBSYS_QUEUE << 8 | type),
                 .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK},
        .body = {.nfgen_family = family, .version = NFNETLINK_V0},
    };
}

static void add(struct request *request, uint16_t type, const void *value, uint16_t len)
{
    struct nlattr head = {.nla_len = (uint16_t)(sizeof(struct nlattr) + len), .nla_type = type};
    char *at = (char *)request + request->head.nlmsg_len;

    memcpy(at, &head, sizeof(head));
    memcpy(at + sizeof(struct nlattr), value, len);
    request->head.nlmsg_len += (uint32_t)PADDED(head.nla_len);
}

/* Sends it and reads the answer; false: errno. */
static bool ask(int fd, const struct request *request)
{
    struct {
        struct nlmsghdr head;
        struct nlmsgerr body;
        char more[256];
    } answer;
    struct pollfd readable = {.fd = fd, .events = POLLIN};

    if (send(fd, request, request->head.nlmsg_len, 0) < 0) {
        return false;
    }
    if (poll(&readable, 1, ANSWER_MS) != 1) {
        errno = ETIMEDOUT;
        return false;
    }
    ssize_t len = recv(fd, &answer, sizeof(answer), 0);
    if (len < (ssize_t)NLMSG_LENGTH(sizeof(int)) || answer.head.nlmsg_type != NLMSG_ERROR) {
        errno = len < 0 ? errno : EPROTO;
        return false;
    }
    errno = -answer.body.error;
    return answer.body.error == 0;
}

static bool configure(int fd)
{
    struct request request;
    struct nfqnl_msg_config_cmd bind_it = {.command = NFQNL_CFG_CMD_BIND, .pf = htons(AF_INET)};
    struct nfqnl_msg_config_params params = {.copy_range = 0, .copy_mode = NFQNL_COPY_META};
    uint32_t len = htonl(QUEUE_LEN);
    uint32_t flags = htonl(NFQA_CFG_F_FAIL_OPEN | NFQA_CFG_F_GSO);

    begin(&request, NFQNL_MSG_CONFIG, AF_UNSPEC);
    add(&request, NFQA_CFG_CMD, &bind_it, sizeof(bind_it));
    if (!ask(fd, &request)) {
        return false;
    }
    begin(&request, NFQNL_MSG_CONFIG, AF_UNSPEC);
    add(&request, NFQA_CFG_PARAMS, &params, sizeof(params));
    add(&request, NFQA_CFG_QUEUE_MAXLEN, &len, sizeof(len));
    add(&request, NFQA_CFG_FLAGS, &flags, sizeof(flags));
    add(&request, NFQA_CFG_MASK, &flags, sizeof(flags));
    return ask(fd, &request);
}

bool weft_lab_queue_open(int *fd_p)
{
    struct sockaddr_nl self = {.nl_family = AF_NETLINK};
    int room = SOCKET_LEN, on = 1;
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER);

    if (fd < 0) {
        return false;
    }
    if (bind(fd, (struct sockaddr *)&self, sizeof(self)) != 0 || !configure(fd)) {
        int saved = errno;
        close(fd);
        errno = saved;
        return false;
    }
    setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room));
    setsockopt(fd, SOL_NETLINK, NETLINK_NO_ENOBUFS, &on, sizeof(on));
    *fd_p = fd;
    return true;
}

/* ---- serving ---- */

/* What cannot be sent stays in the kernel's queue, which is what a lost packet looks like. */
static void send_verdicts(struct queue *queue)
{
    if (queue->verdicts > 0) {
        while (send(queue->fd, queue->verdict, queue->verdicts * sizeof(*queue->verdict), 0) < 0 &&
               errno == EINTR) {
        }
        queue->verdicts = 0;
    }
}

static void release(struct queue *queue, uint32_t id)
{
    queue->verdict[queue->verdicts++] = (struct verdict){
        .head = {.nlmsg_len = sizeof(struct verdict),
                 .nlmsg_type = NFNL_SUBSYS_QUEUE << 8 | NFQNL_MSG_VERDICT,
                 .nlmsg_flags = NLM_F_REQUEST},
        .body = {.version = NFNETLINK_V0},
        .attribute = {.nla_len = sizeof(struct nlattr) + sizeof(struct nfqnl_msg_verdict_hdr),
                      .nla_type = NFQA_VERDICT_HDR},
        .value = {.verdict = htonl(NF_ACCEPT), .id = htonl(id)},
    };
    if (queue->verdicts == BATCH) {
        send_verdicts(queue);
    }
}

static uint32_t next_random(struct queue *queue)
{
    queue->random ^= queue->random << 13; /* xorshift: the same run gives the same order */
    queue->random ^= queue->random >> 7;
    queue->random ^= queue->random << 17;
    return (uint32_t)(queue->random >> 32);
}

static void hold(struct queue *queue, uint32_t id, uint64_t now_ns)
{
    bool is_late = next_random(queue) % WEFT_LAB_PPM < queue->late_ppm;
    struct line *line = &queue->line[is_late];

    if (line->wait_ns == 0 || line->end - line->first == QUEUE_LEN) {
        release(queue, id);
        return;
    }
    line->packet[line->end++ % QUEUE_LEN] = (struct waiting){id, now_ns + line->wait_ns};
}

/* The number of the packet that a message is about; false: it is about none. */
static bool read_id(const char *bytes, size_t len, uint32_t *id_p)
{
    struct nlmsghdr head;
    struct nlattr attribute;
    struct nfqnl_msg_packet_hdr packet;
    size_t at = NLMSG_LENGTH(sizeof(struct nfgenmsg));

    if (len < sizeof(head)) {
        return false;
    }
    memcpy(&head, bytes, sizeof(head));
    if (head.nlmsg_type != (NFNL_SUBSYS_QUEUE << 8 | NFQNL_MSG_PACKET)) {
        return false;
    }
    while (at + sizeof(attribute) <= len) {
        memcpy(&attribute, bytes + at, sizeof(attribute));
        if (attribute.nla_len < sizeof(attribute)) {
            return false;
        }
        if (attribute.nla_type == NFQA_PACKET_HDR &&
            at + sizeof(struct nlattr) + sizeof(packet) <= len) {
            memcpy(&packet, bytes + at + sizeof(struct nlattr), sizeof(packet));
            *id_p = ntohl(packet.packet_id);
            return true;
        }
        at += PADDED(attribute.nla_len);
    }
    return false;
}

static void take_packets(struct queue *queue)
{
    char bytes[1024];
    uint32_t id;

    for (int i = 0; i < BATCH; i++) {
        ssize_t len = recv(queue->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
        if (len < 0) {
            return;
        }
        if (read_id(bytes, (size_t)len, &id)) {
            hold(queue, id, weft_clock_ns());
        }
    }
}

/* Lets go what is due; returns when the next one is. */
static uint64_t release_due(struct queue *queue)
{
    uint64_t now_ns = weft_clock_ns(), next_ns = WEFT_NEVER;

    for (int i = 0; i < 2; i++) {
        struct line *line = &queue->line[i];
        while (line->first != line->end && line->packet[line->first % QUEUE_LEN].due_ns <= now_ns) {
            release(queue, line->packet[line->first++ % QUEUE_LEN].id);
        }
        if (line->first != line->end) {
            uint64_t due_ns = line->packet[line->first % QUEUE_LEN].due_ns;
            next_ns = due_ns < next_ns ? due_ns : next_ns;
        }
    }
    send_verdicts(queue);
    return next_ns;
}

void weft_lab_queue_serve(int fd, int leash_fd, const struct weft_lab_spec *spec, uint64_t seed)
{
    struct queue queue = {
        .fd = fd, .late_ppm = spec->reorder_ppm, .random = seed * UINT64_C(0x9e3779b97f4a7c15)};
    struct pollfd fds[2] = {{.fd = fd, .events = POLLIN}, {.fd = leash_fd}};
    uint64_t next_ns = WEFT_NEVER;

    for (int i = 0; i < 2; i++) {
        queue.line[i].packet = weft_cli_alloc(QUEUE_LEN, sizeof(struct waiting));
        queue.line[i].wait_ns = spec->delay_ns + (i == 1 ? LATE_NS : 0);
    }
    while (fds[1].revents == 0) {
        uint64_t now_ns = weft_clock_ns();
        uint64_t left_ns = next_ns > now_ns ? next_ns - now_ns : 0;
        struct timespec left = {.tv_sec = (time_t)(left_ns / (1000 * WEFT_NS_PER_MS)),
                                .tv_nsec = (long)(left_ns % (1000 * WEFT_NS_PER_MS))};
        int ready = ppoll(fds, 2, next_ns == WEFT_NEVER ? NULL : &left, NULL);
        if (ready > 0 && fds[0].revents != 0) {
            take_packets(&queue);
        }
        if (ready <= 0) {
            fds[1].revents = 0;
        }
        next_ns = release_due(&queue);
    }
    for (int i = 0; i < 2; i++) {
        free(queue.line[i].packet);
    }
    close(fd);
}
