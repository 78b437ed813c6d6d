/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calibration as text, for the profile and for `weft explain`: "loopback=2us:5.5G:1us:4us copy=12G".
 * Times end in s, ms, us or ns; rates and sizes may end in K, M, G (here thousands, as of networks:
 * nothing of it is an exact size).
 */
#include "plan/model.h"

#include <stdio.h>
#include <string.h>

enum unit { UNIT_TIME, UNIT_RATE };

struct entry {
    const char *name;
    size_t at; /* of the first number in the struct */
    unsigned count;
    enum unit unit[4];
};

#define AT(member) offsetof(struct weft_plan_calibration, member)
#define PATH(name)                                                                                 \
    {                                                                                              \
#name, AT(name), 4,                                                                        \
        {                                                                                          \
            UNIT_TIME, UNIT_RATE, UNIT_TIME                                                        \
        }                                                                                          \
    }
#define TIME(name, member)                                                                         \
    {                                                                                              \
        name, AT(member), 1,                                                                       \
        {                                                                                          \
            UNIT_TIME                                                                              \
        }                                                                                          \
    }
#define RATE(name, member)                                                                         \
    {                                                                                              \
        name, AT(member), 1,                                                                       \
        {                                                                                          \
            UNIT_RATE                                                                              \
        }                                                                                          \
    }
static const struct entry entries[] = {
    PATH(shm),
    PATH(loopback),
    PATH(net),
    TIME("flag", flag_s),
    RATE("copy", copy_rate),
    RATE("reduce", reduce_rate),
    RATE("write", slot_write_rate),
    RATE("read", slot_read_rate),
    RATE("memory", memory_rate),
    TIME("wait", flag_wait_s),
    RATE("duplex", duplex),
    RATE("oneshot", oneshot_max),
    RATE("chunk", chunk_cached),
    RATE("chunk_past", chunk_past),
};
/* In profiles of before: whichever was measured. */
static const struct entry former[] = {TIME("near", flag_s), TIME("far", flag_s)};

/* Two cores of a virtual machine, kernel 6.18; `weft tune collectives` measures its own. */
void weft_plan_calibration_default(struct weft_plan_calibration *calibration_p)
{
    *calibration_p = (struct weft_plan_calibration){
        .shm = {.latency_s = 100e-9, .rate = 13e9, .message_s = 50e-9, .wait_s = 400e-9},
        .loopback = {.latency_s = 2e-6, .rate = 5e9, .message_s = 2.2e-6, .wait_s = 4.5e-6},
        .net = {.latency_s = 15e-6, .rate = 5e9, .message_s = 2.2e-6, .wait_s = 4.5e-6},
        .flag_s = 55e-9,
        .copy_rate = 12e9,
        .reduce_rate = 10e9,
        .slot_write_rate = 12e9,
        .slot_read_rate = 20e9,
        .memory_rate = 40e9,
        .flag_wait_s = 400e-9,
        .duplex = 0.9,
        .oneshot_max = 65536,
        .chunk_cached = 262144,
        .chunk_past = 1048576,
    };
}

static const double *number_of(const struct weft_plan_calibration *calibration,
                               const struct entry *entry, unsigned index)
{
    return (const double *)(const void *)((const char *)calibration + entry->at) + index;
}

/* ---- print ---- */

/* In the unit in which it is between 1 and 1000, with up to three decimals. By hand, as printf and strtod
 * write and expect a comma in some languages. */
static void print_number(enum unit unit, double number, char *text, size_t room)
{
    static const struct {
        double factor;
        const char *name;
    } units[2][4] = {{{1, "s"}, {1e-3, "ms"}, {1e-6, "us"}, {1e-9, "ns"}},
                     {{1e9, "G"}, {1e6, "M"}, {1e3, "K"}, {1, ""}}};
    unsigned at = 0, decimals = 3;
    unsigned long long thousandths;

    while (at < 3 && number < units[unit][at].factor * 0.9999995) {
        at++;
    }
    thousandths = (unsigned long long)(number / units[unit][at].factor * 1000 + 0.5);
    thousandths = thousandths > 0 ? thousandths : 1;
    while (decimals > 0 && thousandths % 10 == 0) {
        thousandths /= 10;
        decimals--;
    }
    unsigned long long one = decimals == 3 ? 1000 : decimals == 2 ? 100 : decimals == 1 ? 10 : 1;
    if (decimals > 0) {
        snprintf(text, room, "%llu.%0*llu%s", thousandths / one, (int)decimals, thousandths % one,
                 units[unit][at].name);
    } else {
        snprintf(text, room, "%llu%s", thousandths, units[unit][at].name);
    }
}

void weft_plan_calibration_print(const struct weft_plan_calibration *calibration,
                                 char text[WEFT_PLAN_CALIBRATION_LEN])
{
    struct weft_plan_calibration usual;
    size_t used = 0;

    weft_plan_calibration_default(&usual);
    text[0] = '\0';
    for (size_t i = 0; i < WEFT_COUNT_OF(entries); i++) {
        const struct entry *entry = &entries[i];
        if (memcmp(number_of(calibration, entry, 0), number_of(&usual, entry, 0),
                   entry->count * sizeof(double)) == 0) {
            continue;
        }
        for (unsigned k = 0; k < entry->count; k++) {
            char number[32];
            print_number(entry->unit[k], *number_of(calibration, entry, k), number, sizeof(number));
            used += (size_t)snprintf(text + used, WEFT_PLAN_CALIBRATION_LEN - used, "%s%s%s%s",
                                     k == 0 && used > 0 ? " " : "", k == 0 ? entry->name : ":",
                                     k == 0 ? "=" : "", number);
        }
    }
}

/* ---- parse ---- */

/* "12", "5.5"; at most 15 digits, so that the quotient is the nearest double. */
static bool read_decimal(const char **text_p, double *number_p)
{
    uint64_t digits = 0;
    double divisor = 1;
    unsigned count = 0;
    bool is_behind = false;
    const char *at = *text_p;

    for (; (*at >= '0' && *at <= '9') || (*at == '.' && !is_behind); at++) {
        if (*at == '.') {
            is_behind = true;
            continue;
        }
        if (++count > 15) {
            return false;
        }
        digits = digits * 10 + (uint64_t)(*at - '0');
        divisor = is_behind ? divisor * 10 : divisor;
    }
    *number_p = (double)digits / divisor;
    *text_p = at;
    return count > 0;
}

/* false: no number with this unit, or none above zero. */
static bool read_number(const char **text_p, enum unit unit, double *number_p)
{
    static const struct {
        const char *name;
        double factor;
        enum unit unit;
    } units[] = {{"ns", 1e-9, UNIT_TIME}, {"us", 1e-6, UNIT_TIME}, {"ms", 1e-3, UNIT_TIME},
                 {"s", 1, UNIT_TIME},     {"K", 1e3, UNIT_RATE},   {"M", 1e6, UNIT_RATE},
                 {"G", 1e9, UNIT_RATE},   {"", 1, UNIT_RATE}};

    if (!read_decimal(text_p, number_p)) {
        return false;
    }
    for (size_t i = 0; i < WEFT_COUNT_OF(units); i++) {
        size_t len = strlen(units[i].name);
        if (units[i].unit == unit && strncmp(*text_p, units[i].name, len) == 0) {
            *text_p += len;
            *number_p *= units[i].factor;
            return *number_p > 0;
        }
    }
    return false;
}

static const struct entry *find_in(const struct entry *table, size_t count, const char **text_p)
{
    for (size_t i = 0; i < count; i++) {
        size_t len = strlen(table[i].name);
        if (strncmp(*text_p, table[i].name, len) == 0 && (*text_p)[len] == '=') {
            *text_p += len + 1;
            return &table[i];
        }
    }
    return NULL;
}

static const struct entry *find_entry(const char **text_p)
{
    const struct entry *entry = find_in(entries, WEFT_COUNT_OF(entries), text_p);

    return entry != NULL ? entry : find_in(former, WEFT_COUNT_OF(former), text_p);
}

/* *text_p: where it stopped. */
static bool parse(const char **text_p, struct weft_plan_calibration *calibration_p,
                  const char **why_p)
{
    struct weft_plan_calibration found;
    const char *text = *text_p;

    weft_plan_calibration_default(&found);
    for (text += strspn(text, " "); *text != '\0'; text += strspn(text, " ")) {
        const struct entry *entry;
        *text_p = text;
        entry = find_entry(&text);
        if (entry == NULL) {
            *why_p = "expected shm, loopback, net, flag, copy, reduce, write, read, memory, "
                     "wait, duplex, oneshot, chunk or chunk_past, followed by =";
            return false;
        }
        for (unsigned k = 0; k < entry->count; k++) {
            double *number = (double *)(void *)((char *)&found + entry->at) + k;
            text += k > 0 && *text == ':';
            if (!read_number(&text, entry->unit[k], number)) {
                *why_p = entry->count > 1
                             ? "a path is latency:rate:cost:wait, as in loopback=2us:5.5G:1us:4us"
                         : entry->unit[0] == UNIT_TIME ? "expected a time, as in 1.5us"
                                                       : "expected a rate or size, as in 12G";
                return false;
            }
        }
        if (*text != '\0' && *text != ' ') {
            *why_p = "a space goes between two entries";
            return false;
        }
        if (found.duplex > 1) {
            *why_p = "duplex is a part of one, as in 0.9";
            return false;
        }
    }
    *calibration_p = found;
    return true;
}

bool weft_plan_calibration_parse(const char *text, struct weft_plan_calibration *calibration_p,
                                 const char **why_p)
{
    return parse(&text, calibration_p, why_p);
}

bool weft_plan_calibration_check(const char *text, const char **why_p, size_t *at_p)
{
    struct weft_plan_calibration unused;
    const char *at = text;
    bool is_fine = parse(&at, &unused, why_p);

    *at_p = (size_t)(at - text);
    return is_fine;
}
