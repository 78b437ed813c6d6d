/* SPDX-License-Identifier: Apache-2.0 */
/* How many bytes each NIC of this host has sent, by the kernel's own count: headers and the traffic
 * of others are in it. */
#include "bench_p2p.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TEXT_LEN 16384 /* 100 interfaces */
#define SENT_COLUMN 9  /* behind the name: 8 columns of what was received */

/* One line, "  eth0: 1 2 3 …". false: it is none, or the interface has never sent. */
static bool parse_line(const char *line, size_t len, struct p2p_nic *nic_p)
{
    const char *colon = memchr(line, ':', len);
    size_t indent = strspn(line, " ");
    if (colon == NULL || (size_t)(colon - line) < indent ||
        (size_t)(colon - line) - indent >= sizeof(nic_p->name)) {
        return false;
    }
    char *at = (char *)colon + 1;
    memset(nic_p, 0, sizeof(*nic_p));
    memcpy(nic_p->name, line + indent, (size_t)(colon - line) - indent);
    for (int column = 0; column < SENT_COLUMN; column++) {
        char *end = at;
        nic_p->sent = strtoull(at, &end, 10);
        if (end == at || end > line + len) {
            return false;
        }
        at = end;
    }
    return nic_p->sent > 0;
}

void weft_bench_p2p_nics_parse(const char *text, struct p2p_nics *nics_p)
{
    nics_p->count = 0;
    for (const char *line = text; *line != '\0' && nics_p->count < P2P_NICS_MAX;) {
        size_t len = strcspn(line, "\n");
        nics_p->count += parse_line(line, len, &nics_p->nic[nics_p->count]);
        line += len + (line[len] == '\n');
    }
}

void weft_bench_p2p_nics_read(int fd, struct p2p_nics *nics_p)
{
    char text[TEXT_LEN];
    size_t len = 0;
    for (ssize_t got = 1; fd >= 0 && got > 0 && len < sizeof(text) - 1;) {
        got = pread(fd, text + len, sizeof(text) - 1 - len, (off_t)len);
        len += got > 0 ? (size_t)got : 0;
    }
    text[len] = '\0';
    weft_bench_p2p_nics_parse(text, nics_p);
}

static struct p2p_nic *find(const struct p2p_nics *nics, const char *name)
{
    for (unsigned i = 0; i < nics->count; i++) {
        if (strcmp(nics->nic[i].name, name) == 0) {
            return (struct p2p_nic *)&nics->nic[i];
        }
    }
    return NULL;
}

void weft_bench_p2p_nics_add(struct p2p_nics *sum, const struct p2p_nics *before,
                             const struct p2p_nics *after)
{
    for (unsigned i = 0; i < after->count; i++) {
        const struct p2p_nic *nic = &after->nic[i], *was = find(before, nic->name);
        struct p2p_nic *total = find(sum, nic->name);
        if (total == NULL && sum->count < P2P_NICS_MAX) {
            total = &sum->nic[sum->count++];
            memcpy(total->name, nic->name, sizeof(total->name));
            total->sent = 0;
        }
        uint64_t sent_before = was != NULL ? was->sent : 0;
        if (total != NULL && nic->sent > sent_before) { /* less: the interface was made anew */
            total->sent += nic->sent - sent_before;
        }
    }
}

bool weft_bench_p2p_nics_counts(const struct p2p_nic *nic)
{
    return nic->sent > 0 || strcmp(nic->name, "lo") != 0;
}
