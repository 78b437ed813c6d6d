/* SPDX-License-Identifier: Apache-2.0 */
/* Times, sizes and shares as people say them. */
#include "explain.h"

#include <string.h>

const char *weft_explain_time(double seconds, char text[EXPLAIN_WORD_LEN])
{
    static const struct {
        double factor;
        const char *name;
    } units[] = {{1, "s"}, {1e-3, "ms"}, {1e-6, "us"}, {1e-9, "ns"}};
    size_t at = 0;

    if (seconds < 0) {
        return "?";
    }
    while (at + 1 < WEFT_COUNT_OF(units) && seconds < units[at].factor * 0.9995) {
        at++;
    }
    double shown = seconds / units[at].factor;
    int decimals = shown >= 99.95 ? 0 : shown >= 9.995 ? 1 : 2;
    snprintf(text, EXPLAIN_WORD_LEN, "%.*f %s", decimals, shown, units[at].name);
    return text;
}

const char *weft_explain_bytes(double bytes, char text[EXPLAIN_WORD_LEN])
{
    static const char *const units[] = {"", "K", "M", "G", "T", "P"};
    size_t at = 0;

    while (at + 1 < WEFT_COUNT_OF(units) && bytes >= 1023.5) {
        bytes /= 1024;
        at++;
    }
    bool is_whole = bytes >= 99.95 || bytes - (double)(long)bytes < 0.05;
    snprintf(text, EXPLAIN_WORD_LEN, "%.*f%s", is_whole ? 0 : 1, bytes, units[at]);
    return text;
}

struct share {
    const char *name;
    double seconds;
};

const char *weft_explain_parts(const struct weft_plan_parts *parts, double time_s,
                               char text[EXPLAIN_TEXT_LEN])
{
    struct share shares[] = {{"per message", parts->message}, {"copying", parts->copy},
                             {"reducing", parts->reduce},     {"wire", parts->wire},
                             {"latency", parts->latency},     {"waiting", parts->wait}};
    size_t used = 0;

    text[0] = '\0';
    for (size_t i = 0; i < WEFT_COUNT_OF(shares) && time_s > 0; i++) {
        struct share *most = shares;
        for (size_t k = 1; k < WEFT_COUNT_OF(shares); k++) {
            most = shares[k].seconds > most->seconds ? &shares[k] : most;
        }
        if (most->seconds < 0.005 * time_s) {
            break;
        }
        used += (size_t)snprintf(text + used, EXPLAIN_TEXT_LEN - used, "%s%.0f %% %s",
                                 used > 0 ? ", " : "", 100 * most->seconds / time_s, most->name);
        most->seconds = -1;
    }
    return text;
}

void weft_explain_cost_json(struct weft_cli_json *json, const struct weft_plan_cost *cost)
{
    weft_cli_json_real(json, "time_us", cost->time_s * 1e6);
    weft_cli_json_object(json, "parts_us");
    weft_cli_json_real(json, "message", cost->parts.message * 1e6);
    weft_cli_json_real(json, "copy", cost->parts.copy * 1e6);
    weft_cli_json_real(json, "reduce", cost->parts.reduce * 1e6);
    weft_cli_json_real(json, "wire", cost->parts.wire * 1e6);
    weft_cli_json_real(json, "latency", cost->parts.latency * 1e6);
    weft_cli_json_real(json, "wait", cost->parts.wait * 1e6);
    weft_cli_json_end(json);
    weft_cli_json_int(json, "rounds", cost->rounds);
    weft_cli_json_int(json, "messages", (int64_t)cost->messages);
    weft_cli_json_object(json, "bytes");
    weft_cli_json_real(json, "rank_inside", cost->sent_inside);
    weft_cli_json_real(json, "rank_between", cost->sent_between);
    weft_cli_json_real(json, "host_out", cost->nic_out);
    weft_cli_json_real(json, "host_in", cost->nic_in);
    weft_cli_json_real(json, "total_inside", cost->total_inside);
    weft_cli_json_real(json, "total_between", cost->total_between);
    weft_cli_json_end(json);
    weft_cli_json_real(json, "copies_per_byte", cost->copies);
    weft_cli_json_int(json, "ranks_run", cost->classes);
    weft_cli_json_int(json, "last_rank", cost->last_rank);
}
