/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers with units, as settings and command lines write them: "-1", "512K", "1.5G", "250ms". A
 * value is read in thousandths and must come out whole in its base unit (bytes, ms), so that "0.5s"
 * is 500 ms and "0.5ms" is refused instead of rounded to nothing.
 */
#include "base/base.h"

#include <inttypes.h>
#include <stdio.h>
#include <strings.h>

struct unit {
    const char *name;
    int64_t scale;
};

/* largest last, as printing looks from the end */
static const struct unit plain_units[] = {{"", 1}};
static const struct unit size_units[] = {
    {"", 1}, {"K", INT64_C(1) << 10}, {"M", INT64_C(1) << 20}, {"G", INT64_C(1) << 30}};
static const struct unit duration_units[] = {
    {"ms", 1}, {"", 1000}, {"s", 1000}, {"min", 60000}, {"h", 3600000}};

static const struct unit *units_of(enum weft_param_type type, size_t *count_p)
{
    switch (type) {
    case WEFT_PARAM_SIZE:
        *count_p = WEFT_COUNT_OF(size_units);
        return size_units;
    case WEFT_PARAM_DURATION:
        *count_p = WEFT_COUNT_OF(duration_units);
        return duration_units;
    case WEFT_PARAM_INT:
    case WEFT_PARAM_CHOICE:
    case WEFT_PARAM_TEXT:
        break;
    }
    *count_p = WEFT_COUNT_OF(plain_units);
    return plain_units;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Digits, perhaps a point and up to three more; the rest is the unit. */
static bool read_thousandths(const char *text, int64_t *value_p, const char **rest_p)
{
    int64_t value = 0;
    unsigned decimals = 0;
    bool has_point = false;

    if (!is_digit(*text)) {
        return false;
    }
    for (; is_digit(*text) || (*text == '.' && !has_point); text++) {
        if (*text == '.') {
            has_point = true;
            continue;
        }
        decimals += has_point;
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, *text - '0', &value)) {
            return false;
        }
    }
    if (decimals > 3 || (has_point && decimals == 0)) {
        return false;
    }
    for (; decimals < 3; decimals++) {
        if (__builtin_mul_overflow(value, 10, &value)) {
            return false;
        }
    }
    *value_p = value;
    *rest_p = text;
    return true;
}

bool weft_value_parse(enum weft_param_type type, const char *text, int64_t *number_p)
{
    size_t count;
    const struct unit *units = units_of(type, &count);
    bool is_negative = type == WEFT_PARAM_INT && *text == '-';
    const char *rest;
    int64_t value;

    if (!read_thousandths(text + is_negative, &value, &rest)) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (strcasecmp(rest, units[i].name) == 0) {
            if (__builtin_mul_overflow(value, units[i].scale, &value) || value % 1000 != 0) {
                return false;
            }
            *number_p = (is_negative ? -value : value) / 1000;
            return true;
        }
    }
    return false;
}

void weft_value_print(enum weft_param_type type, int64_t number, char *text, size_t room)
{
    size_t count;
    const struct unit *units = units_of(type, &count);
    const struct unit *unit = &units[0];

    for (size_t i = 1; i < count; i++) {
        /* a single minute or hour reads better as 60s, 60min */
        bool is_worth =
            units[i].scale <= 1000 || type == WEFT_PARAM_SIZE || number >= 2 * units[i].scale;

        if (number != 0 && number % units[i].scale == 0 && is_worth) {
            unit = &units[i];
        }
    }
    snprintf(text, room, "%" PRId64 "%s", number / unit->scale, unit->name);
}
