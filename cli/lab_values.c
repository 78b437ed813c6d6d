/* SPDX-License-Identifier: Apache-2.0 */
/* Values of weft lab as people write them: 2.5G, 0.1%, 20ms. Rates are decimal, as on the box. */
#include "lab.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define RATE_LEAST 64e3 /* below, one TSO segment would take many seconds */
#define RATE_MOST 1e12
#define DELAY_MOST_NS 10e9

struct unit {
    const char *name;
    double factor;
};

/* digits, perhaps a point and more digits, then one of the units */
static bool read_number(const char *text, const struct unit *units, size_t count, double *value_p)
{
    size_t len = strspn(text, "0123456789.");
    char *end;

    if (text[0] < '0' || text[0] > '9') {
        return false; /* strtod would take signs, spaces, nan and inf */
    }
    double value = strtod(text, &end);
    if (end != text + len) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (strcasecmp(end, units[i].name) == 0) {
            *value_p = value * units[i].factor;
            return true;
        }
    }
    return false;
}

static bool read_rate(const char *text, uint64_t *bits_p)
{
    static const struct unit units[] = {{"", 1}, {"K", 1e3}, {"M", 1e6}, {"G", 1e9}};
    double bits;

    if (strcmp(text, "none") == 0) {
        *bits_p = 0;
        return true;
    }
    if (!read_number(text, units, WEFT_COUNT_OF(units), &bits) || bits < RATE_LEAST ||
        bits > RATE_MOST) {
        return false;
    }
    *bits_p = (uint64_t)llround(bits);
    return true;
}

bool weft_lab_read_rates(const char *text, uint64_t rate_p[WEFT_LAB_NICS_MAX], unsigned *count_p)
{
    uint64_t rate[WEFT_LAB_NICS_MAX] = {0};
    unsigned count = 0;
    char word[24];

    for (const char *at = text;; at++) {
        size_t len = strcspn(at, ",");
        if (len >= sizeof(word) || count == WEFT_LAB_NICS_MAX) {
            return false;
        }
        memcpy(word, at, len);
        word[len] = '\0';
        if (!read_rate(word, &rate[count])) {
            return false;
        }
        count++;
        at += len;
        if (*at == '\0') {
            memcpy(rate_p, rate, sizeof(rate));
            *count_p = count;
            return true;
        }
    }
}

bool weft_lab_read_percent(const char *text, unsigned *ppm_p)
{
    static const struct unit units[] = {{"", 1}, {"%", 1}};
    double percent;

    if (!read_number(text, units, WEFT_COUNT_OF(units), &percent) || percent > 100) {
        return false;
    }
    *ppm_p = (unsigned)lround(percent / 100 * WEFT_LAB_PPM);
    return true;
}

bool weft_lab_read_delay(const char *text, uint64_t *ns_p)
{
    static const struct unit units[] = {{"", 1e6}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};
    double ns;

    if (!read_number(text, units, WEFT_COUNT_OF(units), &ns) || ns > DELAY_MOST_NS) {
        return false;
    }
    *ns_p = (uint64_t)llround(ns);
    return true;
}

const char *weft_lab_print_rate(uint64_t bits, char *text)
{
    static const struct unit units[] = {{"G", 1e9}, {"M", 1e6}, {"K", 1e3}};

    if (bits == 0) {
        snprintf(text, 24, "none");
        return text;
    }
    for (size_t i = 0; i < WEFT_COUNT_OF(units); i++) {
        if ((double)bits >= units[i].factor) {
            snprintf(text, 24, "%.6g%s", (double)bits / units[i].factor, units[i].name);
            return text;
        }
    }
    snprintf(text, 24, "%llu", (unsigned long long)bits);
    return text;
}
