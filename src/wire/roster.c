/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records of the start: who joins (up), who is there (down), where to attach, what went wrong. They
 * travel behind a handshake, but are decoded as if a stranger had written them: every count is
 * checked against the bytes that are there before anything is allocated or copied.
 */
#include "wire/bytes.h"
#include "wire/wire.h"

#include <assert.h>

/* ---- member ---- */

struct member_layout {
    uint8_t rank[4];
    uint8_t ranks[4];
    uint8_t leader[4];
    uint8_t pid[4];
    uint8_t timeout_ms[4];
    uint8_t addr[WEFT_WIRE_ADDR_LEN];
    uint8_t host_len[2];
    uint8_t settings_len[2];
    /* then host and settings, without their final zeros */
};
static_assert(sizeof(struct member_layout) == 48, "a member begins with 48 bytes");
static_assert(offsetof(struct member_layout, addr) == 20, "layout");
static_assert(offsetof(struct member_layout, host_len) == 44, "layout");
static_assert(sizeof(struct member_layout) + WEFT_WIRE_HOST_LEN - 1 + WEFT_WIRE_SETTINGS_LEN - 1 <=
                  WEFT_WIRE_MEMBER_MAX,
              "the longest member fits");
static_assert(WEFT_WIRE_MEMBER_MAX <= WEFT_WIRE_PAYLOAD_MAX, "a hello can carry a member");

size_t weft_wire_member_encode(const struct weft_wire_member *member, uint8_t *out, size_t room)
{
    struct member_layout *layout = (struct member_layout *)out;
    uint8_t *text;
    size_t host_len = strnlen(member->host, WEFT_WIRE_HOST_LEN - 1);
    size_t settings_len = strnlen(member->settings, WEFT_WIRE_SETTINGS_LEN - 1);
    size_t len = sizeof(*layout) + host_len + settings_len;

    if (len > room) {
        return 0;
    }
    text = out + sizeof(*layout);
    put_u32(layout->rank, member->rank);
    put_u32(layout->ranks, member->ranks);
    put_u32(layout->leader, member->leader);
    put_u32(layout->pid, member->pid);
    put_u32(layout->timeout_ms, member->timeout_ms);
    weft_wire_addr_encode(&member->addr, layout->addr);
    put_u16(layout->host_len, (uint16_t)host_len);
    put_u16(layout->settings_len, (uint16_t)settings_len);
    memcpy(text, member->host, host_len);
    memcpy(text + host_len, member->settings, settings_len);
    return len;
}

weft_status_t weft_wire_member_decode(const void *bytes, size_t len,
                                      struct weft_wire_member *member_p, size_t *used_p)
{
    struct weft_wire_reader reader = {bytes, len};
    const uint8_t *fixed = reader_take(&reader, sizeof(struct member_layout));
    const struct member_layout *layout = (const struct member_layout *)fixed;
    struct weft_wire_addr addr;
    const uint8_t *host, *settings;
    size_t host_len, settings_len;

    if (fixed == NULL) {
        return weft_fail(WEFT_ERR_PROTOCOL, "a member record is cut short (%zu bytes)", len);
    }
    host_len = get_u16(layout->host_len);
    settings_len = get_u16(layout->settings_len);
    if (host_len >= WEFT_WIRE_HOST_LEN || settings_len >= WEFT_WIRE_SETTINGS_LEN) {
        return weft_fail(WEFT_ERR_PROTOCOL, "a member record claims texts of %zu and %zu bytes",
                         host_len, settings_len);
    }
    host = reader_take(&reader, host_len);
    settings = reader_take(&reader, settings_len);
    if (host == NULL || settings == NULL) {
        return weft_fail(WEFT_ERR_PROTOCOL, "a member record is cut short (%zu bytes)", len);
    }
    if (weft_wire_addr_decode(layout->addr, &addr) != WEFT_OK) {
        return WEFT_ERR_PROTOCOL;
    }
    member_p->rank = get_u32(layout->rank);
    member_p->ranks = get_u32(layout->ranks);
    member_p->leader = get_u32(layout->leader);
    member_p->pid = get_u32(layout->pid);
    member_p->timeout_ms = get_u32(layout->timeout_ms);
    member_p->addr = addr;
    weft_wire_text_get(host, host_len, member_p->host);
    weft_wire_text_get(settings, settings_len, member_p->settings);
    *used_p = len - reader.left;
    return WEFT_OK;
}

/* ---- answer ---- */

struct answer_layout {
    uint8_t parent[4];
    uint8_t root[4];
    uint8_t fan_groups[2];
    uint8_t fan_local[2];
    uint8_t is_local[1];
    uint8_t zero[3];
    uint8_t addr[WEFT_WIRE_ADDR_LEN];
};
static_assert(sizeof(struct answer_layout) == WEFT_WIRE_ANSWER_LEN, "an answer is 40 bytes");
static_assert(offsetof(struct answer_layout, is_local) == 12, "layout");
static_assert(offsetof(struct answer_layout, addr) == 16, "layout");

void weft_wire_answer_encode(const struct weft_wire_answer *answer,
                             uint8_t out[WEFT_WIRE_ANSWER_LEN])
{
    struct answer_layout *layout = (struct answer_layout *)out;

    memset(layout, 0, sizeof(*layout));
    put_u32(layout->parent, answer->parent);
    put_u32(layout->root, answer->root);
    put_u16(layout->fan_groups, answer->fan_groups);
    put_u16(layout->fan_local, answer->fan_local);
    layout->is_local[0] = answer->is_local ? 1 : 0;
    weft_wire_addr_encode(&answer->addr, layout->addr);
}

weft_status_t weft_wire_answer_decode(const void *bytes, size_t len,
                                      struct weft_wire_answer *answer_p)
{
    const struct answer_layout *layout = bytes;
    struct weft_wire_addr addr;

    if (len != sizeof(*layout)) {
        return weft_fail(WEFT_ERR_PROTOCOL, "an answer has %zu bytes instead of %zu", len,
                         sizeof(*layout));
    }
    if (layout->is_local[0] > 1 || !is_zero(layout->zero, 3) || get_u16(layout->fan_groups) == 0 ||
        get_u16(layout->fan_local) == 0) {
        return weft_fail(WEFT_ERR_PROTOCOL, "malformed answer");
    }
    if (weft_wire_addr_decode(layout->addr, &addr) != WEFT_OK) {
        return WEFT_ERR_PROTOCOL;
    }
    answer_p->parent = get_u32(layout->parent);
    answer_p->root = get_u32(layout->root);
    answer_p->fan_groups = get_u16(layout->fan_groups);
    answer_p->fan_local = get_u16(layout->fan_local);
    answer_p->is_local = layout->is_local[0] == 1;
    answer_p->addr = addr;
    return WEFT_OK;
}

/* ---- notice ---- */

struct notice_layout {
    uint8_t status[4];
    uint8_t rank[4];
    uint8_t number[4];
    uint8_t text_len[4];
    /* then the text, without its final zero */
};
static_assert(sizeof(struct notice_layout) == 16, "a notice begins with 16 bytes");
static_assert(sizeof(struct notice_layout) + WEFT_WIRE_REASON_LEN - 1 <= WEFT_WIRE_NOTICE_MAX,
              "the longest notice fits");

size_t weft_wire_notice_encode(const struct weft_wire_notice *notice,
                               uint8_t out[WEFT_WIRE_NOTICE_MAX])
{
    struct notice_layout *layout = (struct notice_layout *)out;
    size_t len = weft_wire_text_put(notice->text, WEFT_WIRE_REASON_LEN - 1, out + sizeof(*layout));

    assert(weft_wire_is_error(notice->status));
    put_u32(layout->status, notice->status);
    put_u32(layout->rank, notice->rank);
    put_u32(layout->number, notice->number);
    put_u32(layout->text_len, (uint32_t)len);
    return sizeof(*layout) + len;
}

weft_status_t weft_wire_notice_decode(const void *bytes, size_t len,
                                      struct weft_wire_notice *notice_p)
{
    struct weft_wire_reader reader = {bytes, len};
    const uint8_t *fixed = reader_take(&reader, sizeof(struct notice_layout));
    const struct notice_layout *layout = (const struct notice_layout *)fixed;

    if (fixed == NULL || reader.left >= WEFT_WIRE_REASON_LEN ||
        get_u32(layout->text_len) != reader.left) {
        return weft_fail(WEFT_ERR_PROTOCOL, "a notice of %zu bytes contradicts its length", len);
    }
    if (!weft_wire_is_error(get_u32(layout->status))) {
        return weft_fail(WEFT_ERR_PROTOCOL, "a notice has the unknown status %u",
                         get_u32(layout->status));
    }
    notice_p->status = get_u32(layout->status);
    notice_p->rank = get_u32(layout->rank);
    notice_p->number = get_u32(layout->number);
    weft_wire_text_get(reader.at, reader.left, notice_p->text);
    return WEFT_OK;
}
