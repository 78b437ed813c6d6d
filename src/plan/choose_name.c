/* SPDX-License-Identifier: Apache-2.0 */
/*
 * WEFT_ALGO: "ring" for every operation that it can do, "allreduce:ring,broadcast:chain" per operation;
 * both may be mixed, the word with the operation's name counts. Errors name the word; who asked says where it
 * stands.
 */
#include "plan/choose.h"

#include <string.h>

struct word {
    const char *text;
    size_t len;
};

static struct word next_word(const char **text_p)
{
    struct word word = {*text_p, strcspn(*text_p, ",")};

    *text_p += word.len + ((*text_p)[word.len] == ',');
    while (word.len > 0 && *word.text == ' ') {
        word.text++;
        word.len--;
    }
    while (word.len > 0 && word.text[word.len - 1] == ' ') {
        word.len--;
    }
    return word;
}

static bool is_word(struct word word, const char *name)
{
    return strlen(name) == word.len && memcmp(word.text, name, word.len) == 0;
}

/* WEFT_COLLS: none. */
static unsigned find_coll(struct word word)
{
    unsigned coll = 0;

    while (coll < WEFT_COLLS && !is_word(word, weft_coll_name((weft_coll_t)coll))) {
        coll++;
    }
    return coll;
}

static bool is_algorithm(struct word word)
{
    for (const struct weft_plan_builder *const *at = weft_plan_builders; *at != NULL; at++) {
        if (is_word(word, (*at)->name)) {
            return true;
        }
    }
    return is_word(word, weft_plan_hierarchical.name);
}

/* Splits "allreduce:ring"; *coll_p is WEFT_COLLS when no operation is named. */
static weft_status_t read_word(struct word word, unsigned *coll_p, struct word *name_p)
{
    const char *colon = memchr(word.text, ':', word.len);
    struct word name = word;

    *coll_p = WEFT_COLLS;
    if (colon != NULL) {
        struct word coll = {word.text, (size_t)(colon - word.text)};
        name = (struct word){colon + 1, word.len - coll.len - 1};
        *coll_p = find_coll(coll);
        if (*coll_p == WEFT_COLLS) {
            return weft_fail(WEFT_ERR_INVALID,
                             "there is no operation \"%.*s\" (allreduce, broadcast, ...)",
                             (int)coll.len, coll.text);
        }
    }
    if (!is_algorithm(name) || name.len >= WEFT_PLAN_NAME_LEN) {
        return weft_fail(WEFT_ERR_INVALID,
                         "there is no algorithm \"%.*s\"; `weft explain allreduce -n 8` "
                         "lists them",
                         (int)name.len, name.text);
    }
    *name_p = name;
    return WEFT_OK;
}

static weft_status_t look_up(const char *algo, weft_coll_t coll, char name[WEFT_PLAN_NAME_LEN],
                             bool *is_meant_p)
{
    unsigned seen = 0;

    name[0] = '\0';
    *is_meant_p = false;
    while (algo[strspn(algo, " ")] != '\0') {
        struct word word = next_word(&algo), found;
        unsigned its;
        if (word.len == 0) {
            return weft_fail(WEFT_ERR_INVALID, "nothing before the comma in \"%s\"", word.text);
        }
        weft_status_t status = read_word(word, &its, &found);
        if (status != WEFT_OK) {
            return status;
        }
        if ((seen >> its & 1) != 0) {
            return weft_fail(WEFT_ERR_INVALID, "a second algorithm for %s at \"%.*s\"",
                             its < WEFT_COLLS ? weft_coll_name((weft_coll_t)its)
                                              : "every operation",
                             (int)word.len, word.text);
        }
        seen |= 1u << its;
        if (its == (unsigned)coll || (its == WEFT_COLLS && !*is_meant_p)) {
            memcpy(name, found.text, found.len);
            name[found.len] = '\0';
            *is_meant_p = its == (unsigned)coll;
        }
    }
    return WEFT_OK;
}

weft_status_t weft_plan_algo_of(const char *algo, weft_coll_t coll, char name[WEFT_PLAN_NAME_LEN])
{
    char found[WEFT_PLAN_NAME_LEN];
    bool is_meant;
    weft_status_t status = look_up(algo, coll, found, &is_meant);

    if (status == WEFT_OK) {
        memcpy(name, found, sizeof(found));
    }
    return status;
}

bool weft_choose_is_meant(const char *algo, weft_coll_t coll)
{
    char found[WEFT_PLAN_NAME_LEN];
    bool is_meant;

    return look_up(algo, coll, found, &is_meant) == WEFT_OK && is_meant;
}
