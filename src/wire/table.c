/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of all ranks: head, then group and pid of each rank, then the groups. The arrays of
 * fixed size come first, so that one comparison with the length proves that they are there. Time
 * and memory are linear in the number of bytes: at 100,000 ranks on as many hosts about 5 MB.
 */
#include "wire/bytes.h"
#include "wire/wire.h"

#include <assert.h>
#include <stdlib.h>

struct table_layout {
    uint8_t ranks[4];
    uint8_t groups[4];
    uint8_t root[4];
    uint8_t fan_groups[2];
    uint8_t fan_local[2];
    /* then group_of[ranks] and pid[ranks], four bytes each, then the groups */
};
static_assert(sizeof(struct table_layout) == 16, "a table begins with 16 bytes");
static_assert(offsetof(struct table_layout, fan_groups) == 12, "layout");

struct group_layout {
    uint8_t leader[4];
    uint8_t addr[WEFT_WIRE_ADDR_LEN];
    uint8_t host_len[2];
    /* then the host, without its final zero */
};
static_assert(sizeof(struct group_layout) == 30, "a group begins with 30 bytes");
static_assert(offsetof(struct group_layout, host_len) == 28, "layout");

#define RANK_LEN 8 /* what one rank takes in the two arrays */

weft_status_t weft_wire_table_open(uint32_t ranks, uint32_t groups, struct weft_wire_table *table_p)
{
    struct weft_wire_table table = {
        .ranks = ranks, .groups = groups, .fan_groups = 1, .fan_local = 1};

    table.group_of = calloc(ranks, sizeof(*table.group_of));
    table.pid = calloc(ranks, sizeof(*table.pid));
    table.group = calloc(groups, sizeof(*table.group));
    if (table.group_of == NULL || table.pid == NULL || table.group == NULL) {
        weft_wire_table_close(&table);
        weft_fail(WEFT_ERR_MEMORY, "no memory for a table of %u ranks in %u groups", ranks, groups);
        return WEFT_ERR_MEMORY;
    }
    *table_p = table;
    return WEFT_OK;
}

void weft_wire_table_close(struct weft_wire_table *table)
{
    free(table->group_of);
    free(table->pid);
    free(table->group);
    memset(table, 0, sizeof(*table));
}

size_t weft_wire_table_len(const struct weft_wire_table *table)
{
    size_t len = sizeof(struct table_layout) + (size_t)table->ranks * RANK_LEN;

    for (uint32_t g = 0; g < table->groups; g++) {
        len += sizeof(struct group_layout) + strnlen(table->group[g].host, WEFT_WIRE_HOST_LEN - 1);
    }
    return len;
}

static size_t group_encode(const struct weft_wire_group *group, uint8_t *out)
{
    struct group_layout *layout = (struct group_layout *)out;
    size_t host_len =
        weft_wire_text_put(group->host, WEFT_WIRE_HOST_LEN - 1, out + sizeof(*layout));

    put_u32(layout->leader, group->leader);
    weft_wire_addr_encode(&group->addr, layout->addr);
    put_u16(layout->host_len, (uint16_t)host_len);
    return sizeof(*layout) + host_len;
}

size_t weft_wire_table_encode(const struct weft_wire_table *table, uint8_t *out, size_t room)
{
    struct table_layout *layout = (struct table_layout *)out;
    uint8_t *group_of, *pid, *at;
    size_t len = weft_wire_table_len(table);

    if (len > room) {
        return 0;
    }
    group_of = out + sizeof(*layout);
    pid = group_of + (size_t)table->ranks * 4;
    at = pid + (size_t)table->ranks * 4;
    put_u32(layout->ranks, table->ranks);
    put_u32(layout->groups, table->groups);
    put_u32(layout->root, table->root);
    put_u16(layout->fan_groups, table->fan_groups);
    put_u16(layout->fan_local, table->fan_local);
    for (size_t r = 0; r < table->ranks; r++) {
        put_u32(group_of + r * 4, table->group_of[r]);
        put_u32(pid + r * 4, table->pid[r]);
    }
    for (uint32_t g = 0; g < table->groups; g++) {
        at += group_encode(&table->group[g], at);
    }
    return len;
}

/* Are the counts possible in what is left of the message? Afterwards allocating is safe: no more
 * than about three bytes for each that arrived. */
static bool is_plausible(const struct table_layout *layout, size_t left)
{
    size_t ranks = get_u32(layout->ranks);
    size_t groups = get_u32(layout->groups);

    if (ranks == 0 || ranks > left / RANK_LEN) {
        return false;
    }
    left -= ranks * RANK_LEN;
    return groups > 0 && groups <= left / sizeof(struct group_layout);
}

static bool group_decode(struct weft_wire_reader *reader, struct weft_wire_group *group_p)
{
    const uint8_t *fixed = reader_take(reader, sizeof(struct group_layout));
    const struct group_layout *layout = (const struct group_layout *)fixed;
    const uint8_t *host;
    size_t host_len;

    if (fixed == NULL) {
        return false;
    }
    host_len = get_u16(layout->host_len);
    if (host_len >= WEFT_WIRE_HOST_LEN) {
        return false;
    }
    host = reader_take(reader, host_len);
    if (host == NULL || weft_wire_addr_decode(layout->addr, &group_p->addr) != WEFT_OK) {
        return false;
    }
    group_p->leader = get_u32(layout->leader);
    weft_wire_text_get(host, host_len, group_p->host);
    return true;
}

/* Fills the arrays; true when all was there, nothing is left over and every index is in range. */
static bool table_fill(struct weft_wire_reader *reader, struct weft_wire_table *table)
{
    const uint8_t *group_of = reader_take(reader, (size_t)table->ranks * 4);
    const uint8_t *pid = reader_take(reader, (size_t)table->ranks * 4);

    if (group_of == NULL || pid == NULL) {
        return false;
    }
    for (size_t r = 0; r < table->ranks; r++) {
        table->group_of[r] = get_u32(group_of + r * 4);
        table->pid[r] = get_u32(pid + r * 4);
        if (table->group_of[r] >= table->groups) {
            return false;
        }
    }
    for (uint32_t g = 0; g < table->groups; g++) {
        uint32_t leader;

        if (!group_decode(reader, &table->group[g])) {
            return false;
        }
        leader = table->group[g].leader;
        /* this also refuses more groups than ranks: no rank can lead two */
        if (leader >= table->ranks || table->group_of[leader] != g) {
            return false;
        }
    }
    return reader->left == 0 && table->root == table->group[0].leader;
}

weft_status_t weft_wire_table_decode(const void *bytes, size_t len, struct weft_wire_table *table_p)
{
    struct weft_wire_reader reader = {bytes, len};
    const uint8_t *fixed = reader_take(&reader, sizeof(struct table_layout));
    const struct table_layout *layout = (const struct table_layout *)fixed;
    struct weft_wire_table table = {0};
    weft_status_t status;

    if (fixed == NULL || !is_plausible(layout, reader.left)) {
        return weft_fail(WEFT_ERR_PROTOCOL, "a table of %zu bytes contradicts its counts", len);
    }
    status = weft_wire_table_open(get_u32(layout->ranks), get_u32(layout->groups), &table);
    if (status != WEFT_OK) {
        return status;
    }
    table.root = get_u32(layout->root);
    table.fan_groups = get_u16(layout->fan_groups);
    table.fan_local = get_u16(layout->fan_local);
    if (!table_fill(&reader, &table) || table.fan_groups == 0 || table.fan_local == 0) {
        weft_wire_table_close(&table);
        return weft_fail(WEFT_ERR_PROTOCOL, "malformed table of ranks (%zu bytes)", len);
    }
    *table_p = table;
    return WEFT_OK;
}
