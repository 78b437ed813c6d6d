/* SPDX-License-Identifier: Apache-2.0 */
/* weft tune collectives: measures what messages, copies and flags cost here, and keeps it in the profile. */
#include "tune_coll.h"

#include "crew.h"
#include "tune.h"

#include <stdlib.h>
#include <string.h>

#define OLD_MAX 8192
#define BODY_LEN (OLD_MAX + 1024)

static const char *output;
static bool is_json;

static const struct weft_cli_option options[] = {
    {"output", 'o', WEFT_CLI_TEXT, "FILE", "where the profile goes, default ~/.config/weft/profile",
     &output, 0, 0},
    {"json", 0, WEFT_CLI_FLAG, NULL, "one JSON object on stdout", &is_json, 0, 0},
    {0},
};

static const struct weft_cli_command command = {
    .name = "tune collectives",
    .summary = "Measure what messages, copies, additions and flags cost on this host, and write it "
               "to the\n"
               "profile, where the choice among algorithms finds it (`weft explain` shows what it "
               "chooses).\n"
               "Other settings in the profile stay.\n\n"
               "JSON keys: measured {}, costs, profile",
    .usage = "[options]",
    .options = options,
    .examples = {"weft tune collectives", "weft tune collectives --output host.profile --json"},
};

/* The settings of a profile that is there, without the one that is new. */
static void keep_settings(const char *path, char body[BODY_LEN])
{
    char *old = weft_cli_alloc(OLD_MAX, 1), *rest = old, *line;
    size_t used = 0;

    body[0] = '\0';
    if (weft_file_read(path, old, OLD_MAX)) {
        while ((line = strsep(&rest, "\n")) != NULL) {
            if (strncmp(line, "WEFT_", 5) == 0 && strncmp(line, "WEFT_COSTS", 10) != 0) {
                used += (size_t)snprintf(body + used, BODY_LEN - used, "%s\n", line);
            }
        }
    }
    free(old);
}

static bool write_profile(const char *path, const char *costs, char *why)
{
    char *body = weft_cli_alloc(BODY_LEN, 1);

    keep_settings(path, body);
    size_t used = strlen(body);
    snprintf(body + used, BODY_LEN - used, "# found:   by weft tune collectives\nWEFT_COSTS = %s\n",
             costs);
    bool is_fine = weft_tune_profile_write(path, body, why);
    free(body);
    return is_fine;
}

static const char *choose_path(void)
{
    static char path[WEFT_PROFILE_PATH_LEN];
    const char *lab = getenv("WEFT_LAB");
    const char *reason = lab != NULL && lab[0] != '\0' ? "as this is a lab"
                         : !weft_profile_path(path)    ? "as HOME is not set"
                                                       : NULL;

    if (output != NULL || reason == NULL) {
        return output != NULL ? output : path;
    }
    fprintf(stderr, "weft tune: no profile written, %s: --output FILE\n", reason);
    return NULL;
}

/* ---- showing it ---- */

struct line {
    const char *name, *key, *unit;
    double factor;
    size_t at;
};

#define AT(member) offsetof(struct tune_coll_seen, member)
static const struct line lines[] = {
    {"half a round trip of 8 bytes, shm", "shm_half_us", "us", 1e6, AT(shm.half_s)},
    {"a short message, shm", "shm_message_us", "us", 1e6, AT(shm.message_s)},
    {"long messages, shm", "shm_gbs", "GB/s", 1e-9, AT(shm.rate)},
    {"half a round trip of 8 bytes, tcp", "tcp_half_us", "us", 1e6, AT(tcp.half_s)},
    {"a short message, tcp", "tcp_message_us", "us", 1e6, AT(tcp.message_s)},
    {"long messages, tcp", "tcp_gbs", "GB/s", 1e-9, AT(tcp.rate)},
    {"a flag from core to core", "flag_ns", "ns", 1e9, AT(flag_s)},
    {"copying in the cache", "copy_gbs", "GB/s", 1e-9, AT(copy_rate)},
    {"adding in the cache, results", "add_gbs", "GB/s", 1e-9, AT(add_rate)},
    {"into memory that another core reads", "write_gbs", "GB/s", 1e-9, AT(write_rate)},
    {"out of it", "read_gbs", "GB/s", 1e-9, AT(read_rate)},
    {"memory, all cores", "memory_gbs", "GB/s", 1e-9, AT(memory_rate)},
    {"allreduce of 8 bytes in a crowd, tcp", "crowd_tcp_us", "us", 1e6, AT(crowd_tcp_s)},
    {"allreduce of 8 bytes in a crowd, shm", "crowd_shm_us", "us", 1e6, AT(crowd_shm_s)},
};

static double value_of(const struct tune_coll_seen *seen, const struct line *line)
{
    return *(const double *)(const void *)((const char *)seen + line->at) * line->factor;
}

static void print_text(const struct tune_coll_seen *seen, const char *costs, const char *path)
{
    static const struct weft_cli_column columns[] = {{"measured", false}, {"", true}, {"", false}};
    struct weft_cli_table *table = weft_cli_table_open(columns, WEFT_COUNT_OF(columns));

    for (size_t i = 0; i < WEFT_COUNT_OF(lines); i++) {
        double value = value_of(seen, &lines[i]);
        weft_cli_table_cell(table, "%s", lines[i].name);
        if (value > 0) {
            weft_cli_table_cell(table, "%.4g", value);
        } else {
            weft_cli_table_cell(table, "-");
        }
        weft_cli_table_cell(table, "%s", lines[i].unit);
    }
    weft_cli_table_print(table, stdout);
    weft_cli_table_close(table);
    printf("a crowd: %u ranks on %u cores\n\nWEFT_COSTS = %s\nprofile: %s\n", seen->crowd,
           seen->cores, costs, path != NULL ? path : "none");
}

static bool print_json(const struct tune_coll_seen *seen, const char *costs, const char *path)
{
    struct weft_cli_json json;

    weft_cli_json_open(&json, stdout);
    weft_cli_json_text(&json, "command", "tune collectives");
    weft_cli_json_object(&json, "measured");
    for (size_t i = 0; i < WEFT_COUNT_OF(lines); i++) {
        weft_cli_json_real(&json, lines[i].key, value_of(seen, &lines[i]));
    }
    weft_cli_json_int(&json, "cores", seen->cores);
    weft_cli_json_int(&json, "crowd", seen->crowd);
    weft_cli_json_end(&json);
    weft_cli_json_text(&json, "costs", costs);
    weft_cli_json_text(&json, "profile", path);
    return weft_cli_json_close(&json);
}

int weft_cli_tune_collectives(int argc, char **argv)
{
    struct tune_coll_seen seen;
    struct weft_plan_calibration calibration;
    char why[WEFT_CREW_TEXT_LEN], costs[WEFT_PLAN_CALIBRATION_LEN];
    int rest, status = weft_cli_parse(&command, argc, argv, &rest);

    if (status >= 0) {
        return status;
    }
    if (rest < argc) {
        return weft_cli_usage_error(&command, "\"%s\" is one word too many", argv[rest]);
    }
    if (!weft_tune_profile_has_folder(output, why)) {
        return weft_cli_usage_error(&command, "%s", why);
    }
    if (!weft_tune_coll_measure(&seen, why)) {
        weft_cli_progress_clear();
        return weft_cli_fail(&command, "%s", why);
    }
    weft_tune_coll_fit(&seen, &calibration);
    weft_plan_calibration_print(&calibration, costs);
    const char *path = choose_path();
    status = WEFT_CLI_OK;
    if (path != NULL && !write_profile(path, costs, why)) {
        status = weft_cli_fail(&command, "%s", why);
        path = NULL;
    }
    if (!is_json) {
        print_text(&seen, costs, path);
    } else if (!print_json(&seen, costs, path)) {
        status = WEFT_CLI_FAILED;
    }
    return status;
}
