/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel knows of the path below a connection (TCP_INFO), and how long it is to try. */
#include "net/internal.h"
#include "topo/topo.h"

#include <arpa/inet.h>
#include <linux/tcp.h>
#include <stdio.h>
#include <stdlib.h>

#define SYN_SENT 2 /* a tcpi_state; <netinet/tcp.h>, which names it, excludes <linux/tcp.h> */
#define RTO_MAX 44 /* TCP_RTO_MAX_MS, which older headers do not have */
#define RTO_MAX_MS 1000
#define GIVE_UP_MS 900000 /* about what it takes without all this */

/* Older kernels fill less. */
static bool ask_kernel(const struct weft_net_conn *conn, struct tcp_info *info)
{
    socklen_t len = sizeof(*info);
    *info = (struct tcp_info){0};
    return !conn->is_local && conn->state == WEFT_CONN_OPEN &&
           getsockopt(conn->source.fd, IPPROTO_TCP, TCP_INFO, info, &len) == 0;
}

bool weft_net_conn_is_resending(const struct weft_net_conn *conn)
{
    struct tcp_info info;
    return ask_kernel(conn, &info) && info.tcpi_unacked > 0 &&
           (info.tcpi_retransmits > 0 || info.tcpi_backoff > 0);
}

void weft_net_conn_persist(const struct weft_net_conn *conn)
{
    const int rto_max_ms = RTO_MAX_MS;
    const unsigned give_up_ms = GIVE_UP_MS;
    if (!conn->is_local &&
        setsockopt(conn->source.fd, IPPROTO_TCP, RTO_MAX, &rto_max_ms, sizeof(rto_max_ms)) == 0) {
        setsockopt(conn->source.fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &give_up_ms, sizeof(give_up_ms));
    }
}

bool weft_net_conn_is_answered(const struct weft_net_conn *conn)
{
    struct tcp_info info = {0};
    socklen_t len = sizeof(info);
    return conn->is_local || getsockopt(conn->source.fd, IPPROTO_TCP, TCP_INFO, &info, &len) != 0 ||
           info.tcpi_state != SYN_SENT;
}

/* For how long bytes have waited while none was acknowledged, as far as we have looked. A kernel that is given a few
 * bytes now and then may put off sending anything again for as long as that goes on. */
static uint64_t stuck_ms(struct weft_net_conn *conn, const struct tcp_info *info, bool is_waiting)
{
    uint64_t now_ns = weft_clock_ns();
    if (!is_waiting) {
        conn->stuck_ns = 0;
        return 0;
    }
    if (conn->stuck_ns == 0 || conn->stuck_bytes != info->tcpi_bytes_acked) {
        conn->stuck_ns = now_ns;
        conn->stuck_bytes = info->tcpi_bytes_acked;
    }
    return (now_ns - conn->stuck_ns) / WEFT_NS_PER_MS;
}

bool weft_net_conn_is_path_dead(struct weft_net_conn *conn, uint64_t for_ms)
{
    struct tcp_info info;
    bool is_resending, is_stuck;
    if (!ask_kernel(conn, &info)) {
        return false;
    }
    /* The first bytes after a long rest are no sign of anything. */
    is_resending = info.tcpi_unacked > 0 && (info.tcpi_retransmits > 0 || info.tcpi_backoff > 0);
    /* Without a route nothing is sent at all; a stopped peer's closed window looks different. */
    is_stuck = info.tcpi_notsent_bytes > 0 && info.tcpi_snd_wnd > 0;
    return stuck_ms(conn, &info, info.tcpi_unacked > 0 || is_stuck) >= for_ms ||
           ((is_resending || is_stuck) && info.tcpi_last_ack_recv >= for_ms);
}

/* Sent again, and not in vain: the peer's kernel says of what it had already (a probe of the last bytes, sent because it takes
 * 40 ms to acknowledge them). */
static uint32_t lost(const struct tcp_info *info)
{
    return info->tcpi_total_retrans - info->tcpi_dsack_dups;
}

void weft_net_conn_note_resent(struct weft_net_conn *conn)
{
    struct tcp_info info;
    if (ask_kernel(conn, &info)) {
        conn->resent = lost(&info);
    }
}

bool weft_net_conn_is_acking(const struct weft_net_conn *conn, uint64_t since_ns)
{
    struct tcp_info info;
    return ask_kernel(conn, &info) && info.tcpi_unacked == 0 &&
           (int32_t)(lost(&info) - conn->resent) <=
               0 && /* it may have turned out since that less was */
           weft_clock_ns() - info.tcpi_last_ack_recv * WEFT_NS_PER_MS > since_ns;
}

void weft_net_conn_nic(const struct weft_net_conn *conn, char text[WEFT_NET_NIC_TEXT_LEN])
{
    struct sockaddr_storage ours = {0};
    socklen_t len = sizeof(ours);
    struct weft_wire_addr addr = {0};
    struct weft_topo_nic *nics = NULL;
    unsigned count = 0;
    char host[INET6_ADDRSTRLEN] = "?";
    if (!conn->is_local && getsockname(conn->source.fd, (struct sockaddr *)&ours, &len) == 0) {
        weft_net_addr_to_wire(&ours, &addr);
        inet_ntop(addr.family == 6 ? AF_INET6 : AF_INET, addr.bytes, host, sizeof(host));
    }
    snprintf(text, WEFT_NET_NIC_TEXT_LEN, "%s", host);
    if (addr.family == 0 || weft_topo_nics(&nics, &count) != WEFT_OK) {
        return;
    }
    for (unsigned i = 0; i < count; i++) {
        if (weft_topo_is_same_addr(&nics[i].addr, &ours)) {
            snprintf(text, WEFT_NET_NIC_TEXT_LEN, "%s (%s)", host, nics[i].name);
            break;
        }
    }
    free(nics);
}
