/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/bytes.h"
#include "wire/wire.h"

#include <assert.h>
#include <sodium.h>
#include <stdio.h>

#define ID_MAGIC "WFID"
#define ID_VERSION 1
#define ID_PREFIX "weft1:"
#define ID_PREFIX_LEN (sizeof(ID_PREFIX) - 1)

struct id_layout {
    uint8_t magic[4];
    uint8_t version[2];
    uint8_t zero[2];
    uint8_t flags[4];
    uint8_t epoch[4];
    uint8_t root[WEFT_WIRE_ADDR_LEN];
    uint8_t job[16];
    uint8_t secret[WEFT_SECRET_LEN];
    uint8_t later[36]; /* zero, for what a later version may add */
    uint8_t crc[4];    /* of all before it */
};
static_assert(sizeof(struct id_layout) == sizeof(weft_id_t), "an id is 128 bytes");
static_assert(offsetof(struct id_layout, flags) == 8, "layout");
static_assert(offsetof(struct id_layout, root) == 16, "layout");
static_assert(offsetof(struct id_layout, job) == 40, "layout");
static_assert(offsetof(struct id_layout, secret) == 56, "layout");
static_assert(offsetof(struct id_layout, crc) == 124, "layout");
static_assert(ID_PREFIX_LEN + sodium_base64_ENCODED_LEN(sizeof(weft_id_t),
                                                        sodium_base64_VARIANT_URLSAFE_NO_PADDING) <=
                  WEFT_ID_TEXT_LEN,
              "the printed form fits");

void weft_wire_id_encode(const struct weft_wire_id *id, weft_id_t *id_p)
{
    struct id_layout *layout = (struct id_layout *)id_p;

    memset(layout, 0, sizeof(*layout));
    memcpy(layout->magic, ID_MAGIC, 4);
    put_u16(layout->version, ID_VERSION);
    put_u32(layout->flags, id->flags);
    put_u32(layout->epoch, id->epoch);
    weft_wire_addr_encode(&id->root, layout->root);
    memcpy(layout->job, id->job, 16);
    if ((id->flags & WEFT_WIRE_ID_AUTHENTICATED) != 0) {
        memcpy(layout->secret, id->secret, WEFT_SECRET_LEN);
    }
    put_u32(layout->crc, weft_wire_crc32c(0, layout, offsetof(struct id_layout, crc)));
}

static bool is_well_formed(const struct id_layout *layout)
{
    uint32_t flags = get_u32(layout->flags);

    if (get_u32(layout->crc) != weft_wire_crc32c(0, layout, offsetof(struct id_layout, crc))) {
        return false;
    }
    if ((flags & ~(uint32_t)WEFT_WIRE_ID_AUTHENTICATED) != 0 || !is_zero(layout->zero, 2) ||
        !is_zero(layout->later, sizeof(layout->later))) {
        return false;
    }
    return flags != 0 || is_zero(layout->secret, WEFT_SECRET_LEN);
}

weft_status_t weft_wire_id_decode(const weft_id_t *id, struct weft_wire_id *id_p)
{
    const struct id_layout *layout = (const struct id_layout *)id;
    struct weft_wire_addr root;

    if (memcmp(layout->magic, ID_MAGIC, 4) != 0) {
        return weft_fail(WEFT_ERR_INVALID, "this is not an id made by weft_id_create()");
    }
    /* before the CRC: another version may keep it elsewhere */
    if (get_u16(layout->version) != ID_VERSION) {
        return weft_fail(
            WEFT_ERR_VERSION,
            "the id has version %u, this library reads %u: use the same Weft everywhere",
            get_u16(layout->version), ID_VERSION);
    }
    if (!is_well_formed(layout) || weft_wire_addr_decode(layout->root, &root) != WEFT_OK) {
        return weft_fail(WEFT_ERR_INVALID, "the id is damaged: pass all of its bytes on unchanged");
    }
    id_p->root = root;
    id_p->flags = get_u32(layout->flags);
    id_p->epoch = get_u32(layout->epoch);
    memcpy(id_p->job, layout->job, 16);
    memcpy(id_p->secret, layout->secret, WEFT_SECRET_LEN);
    return WEFT_OK;
}

void weft_wire_id_print(const weft_id_t *id, char *text)
{
    memcpy(text, ID_PREFIX, ID_PREFIX_LEN);
    sodium_bin2base64(text + ID_PREFIX_LEN, WEFT_ID_TEXT_LEN - ID_PREFIX_LEN, id->bytes,
                      sizeof(id->bytes), sodium_base64_VARIANT_URLSAFE_NO_PADDING);
}

/* Is this how we would print the id? libsodium's decoder also takes some bytes above 127 for
 * letters. */
static bool is_printed_form(const weft_id_t *id, const char *text)
{
    char printed[WEFT_ID_TEXT_LEN];
    bool is_same;

    weft_wire_id_print(id, printed);
    is_same = strcmp(printed, text) == 0;
    sodium_memzero(printed, sizeof(printed));
    return is_same;
}

/* "weft2:", "weft14:" */
static bool is_of_other_version(const char *text)
{
    size_t digits = strncmp(text, "weft", 4) == 0 ? strspn(text + 4, "0123456789") : 0;
    return digits > 0 && digits < 4 && text[4 + digits] == ':' &&
           strncmp(text, ID_PREFIX, ID_PREFIX_LEN) != 0;
}

weft_status_t weft_wire_id_parse(const char *text, weft_id_t *id_p)
{
    weft_id_t id;
    struct weft_wire_id facts;
    size_t text_len = strnlen(text, WEFT_ID_TEXT_LEN);
    size_t len = 0;
    weft_status_t status;

    if (is_of_other_version(text)) {
        return weft_fail(WEFT_ERR_VERSION,
                         "the id's text is of another version of Weft, this one reads " ID_PREFIX
                         ": use the same everywhere");
    }
    /* the text is not quoted: it may be a secret with one wrong letter */
    if (text_len == WEFT_ID_TEXT_LEN || strncmp(text, ID_PREFIX, ID_PREFIX_LEN) != 0) {
        return weft_fail(WEFT_ERR_INVALID,
                         "an id's text begins with " ID_PREFIX " and has fewer than %d characters",
                         WEFT_ID_TEXT_LEN);
    }
    if (sodium_base642bin(id.bytes, sizeof(id.bytes), text + ID_PREFIX_LEN,
                          text_len - ID_PREFIX_LEN, NULL, &len, NULL,
                          sodium_base64_VARIANT_URLSAFE_NO_PADDING) != 0 ||
        len != sizeof(id.bytes) || !is_printed_form(&id, text)) {
        status = weft_fail(WEFT_ERR_INVALID, "the id's text is cut or damaged");
        goto wipe;
    }
    status = weft_wire_id_decode(&id, &facts);
    if (status == WEFT_OK) {
        *id_p = id;
        sodium_memzero(&facts, sizeof(facts));
    }
wipe:
    sodium_memzero(&id, sizeof(id));
    return status;
}

weft_status_t weft_wire_id_print_public(const weft_id_t *id, char *text)
{
    struct weft_wire_id facts = {0};
    char root[WEFT_WIRE_ADDR_TEXT_LEN];
    weft_status_t status = weft_wire_id_decode(id, &facts);

    if (status != WEFT_OK) {
        return status;
    }
    weft_wire_addr_print(&facts.root, root);
    snprintf(text, WEFT_ID_TEXT_LEN, "job %02x%02x%02x%02x at %s, epoch %u, %s", facts.job[0],
             facts.job[1], facts.job[2], facts.job[3], root, facts.epoch,
             facts.flags != 0 ? "authenticated" : "unauthenticated");
    sodium_memzero(&facts, sizeof(facts));
    return WEFT_OK;
}

void weft_wire_local_name(const uint8_t key[WEFT_WIRE_KEY_LEN], const uint8_t job[16],
                          uint32_t epoch, const char *what, uint32_t rank,
                          char name[WEFT_WIRE_NAME_LEN])
{
    uint8_t facts[16 + 4 + 4 + 16] = {0};
    uint8_t digest[32];

    static_assert(WEFT_WIRE_NAME_LEN >= 5 + 2 * 16 + 1, "the name fits");
    assert(strlen(what) <= 16);
    memcpy(facts, job, 16);
    put_u32(facts + 16, epoch);
    put_u32(facts + 20, rank);
    memcpy(facts + 24, what, strlen(what));
    weft_wire_derive(key, "weft local name", facts, sizeof(facts), digest);
    memcpy(name, "weft-", 5);
    sodium_bin2hex(name + 5, WEFT_WIRE_NAME_LEN - 5, digest, 16);
}
