/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/bytes.h"
#include "wire/wire.h"

#include <arpa/inet.h>
#include <assert.h>
#include <stdio.h>

/*
 *  0        1      2      4       8                24
 *  | family | zero | port | scope | address bytes  |
 */
struct addr_layout {
    uint8_t family[1];
    uint8_t zero[1];
    uint8_t port[2];
    uint8_t scope[4];
    uint8_t bytes[16];
};
static_assert(sizeof(struct addr_layout) == WEFT_WIRE_ADDR_LEN, "an address is 24 bytes");
static_assert(sizeof(struct weft_wire_addr) == 1 + 1 + 2 + 4 + 16, "no padding");
static_assert(offsetof(struct addr_layout, port) == 2, "layout");
static_assert(offsetof(struct addr_layout, scope) == 4, "layout");
static_assert(offsetof(struct addr_layout, bytes) == 8, "layout");

/* Bytes of the address that mean something. */
static size_t family_len(uint8_t family)
{
    return family == 4 ? 4 : family == 6 ? 16 : 0;
}

void weft_wire_addr_encode(const struct weft_wire_addr *addr, uint8_t out[WEFT_WIRE_ADDR_LEN])
{
    struct addr_layout *layout = (struct addr_layout *)out;

    memset(out, 0, WEFT_WIRE_ADDR_LEN);
    if (addr->family == 0) {
        return;
    }
    layout->family[0] = addr->family;
    put_u16(layout->port, addr->port);
    put_u32(layout->scope, addr->family == 6 ? addr->scope : 0);
    memcpy(layout->bytes, addr->bytes, family_len(addr->family));
}

weft_status_t weft_wire_addr_decode(const uint8_t in[WEFT_WIRE_ADDR_LEN],
                                    struct weft_wire_addr *addr_p)
{
    const struct addr_layout *layout = (const struct addr_layout *)in;
    uint8_t family = layout->family[0];
    size_t used = family_len(family);
    bool is_clean = layout->zero[0] == 0 && is_zero(layout->bytes + used, 16 - used);

    if (family == 0) {
        is_clean = is_clean && is_zero(in, WEFT_WIRE_ADDR_LEN);
    } else if (family == 4) {
        is_clean = is_clean && is_zero(layout->scope, 4);
    }
    if ((family != 0 && used == 0) || !is_clean) {
        return weft_fail(WEFT_ERR_PROTOCOL, "malformed address (family %u)", family);
    }
    addr_p->zero = 0;
    addr_p->family = family;
    addr_p->port = get_u16(layout->port);
    addr_p->scope = get_u32(layout->scope);
    memcpy(addr_p->bytes, layout->bytes, 16);
    return WEFT_OK;
}

bool weft_wire_addr_is_same_net(const uint8_t *a, const uint8_t *b, uint32_t prefix_len)
{
    uint32_t bits = prefix_len % 8;
    return memcmp(a, b, prefix_len / 8) == 0 &&
           (bits == 0 || ((a[prefix_len / 8] ^ b[prefix_len / 8]) >> (8 - bits)) == 0);
}

void weft_wire_addr_print(const struct weft_wire_addr *addr, char text[WEFT_WIRE_ADDR_TEXT_LEN])
{
    char host[INET6_ADDRSTRLEN];
    int family = addr->family == 4 ? AF_INET : AF_INET6;

    if (family_len(addr->family) == 0 ||
        inet_ntop(family, addr->bytes, host, sizeof(host)) == NULL) {
        snprintf(text, WEFT_WIRE_ADDR_TEXT_LEN, "nowhere");
    } else if (family == AF_INET) {
        snprintf(text, WEFT_WIRE_ADDR_TEXT_LEN, "%s:%u", host, addr->port);
    } else if (addr->scope != 0) {
        snprintf(text, WEFT_WIRE_ADDR_TEXT_LEN, "[%s%%%u]:%u", host, addr->scope, addr->port);
    } else {
        snprintf(text, WEFT_WIRE_ADDR_TEXT_LEN, "[%s]:%u", host, addr->port);
    }
}
