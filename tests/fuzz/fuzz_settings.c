/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texts that people write: values of settings, calibrations, lists of CPUs, NICs and nodes, what ranks compare at the
 * start. Input: which, then the text. What was understood prints as something that is understood the same way.
 */
#include "fuzz.h"

#include "comm/launch.h"
#include "plan/model.h"
#include "topo/topo.h"

static void fuzz_value(enum weft_param_type type, const char *text)
{
    char printed[WEFT_PARAM_TEXT_LEN];
    int64_t number, again;

    if (weft_value_parse(type, text, &number)) {
        weft_value_print(type, number, printed, sizeof(printed));
        FUZZ_CHECK(number < 0 || (weft_value_parse(type, printed, &again) && again == number));
    }
}

/* The first character says which setting. */
static void fuzz_setting(const char *text)
{
    static struct weft_params params;
    static bool is_loaded;
    char printed[WEFT_PARAM_TEXT_LEN], agreed[4096];
    enum weft_param param = (enum weft_param)((uint8_t)text[0] % WEFT_PARAM_COUNT);

    if (!is_loaded) {
        FUZZ_CHECK(weft_params_load(&params) == WEFT_OK);
        is_loaded = true;
    }
    if (text[0] != '\0' && weft_params_set(&params, param, text + 1) == WEFT_OK) {
        weft_params_print(&params, param, printed);
        FUZZ_CHECK(strnlen(printed, sizeof(printed)) < sizeof(printed));
        (void)weft_params_agreed(&params, agreed, sizeof(agreed));
    }
}

static void fuzz_calibration(const char *text)
{
    struct weft_plan_calibration calibration, again;
    char printed[WEFT_PLAN_CALIBRATION_LEN], twice[WEFT_PLAN_CALIBRATION_LEN];
    const char *why = NULL;
    size_t at = 0;

    FUZZ_CHECK(weft_plan_calibration_check(text, &why, &at) ==
               weft_plan_calibration_parse(text, &calibration, &why));
    FUZZ_CHECK(at <= strlen(text));
    if (weft_plan_calibration_parse(text, &calibration, &why)) {
        weft_plan_calibration_print(&calibration, printed);
        FUZZ_CHECK(weft_plan_calibration_parse(printed, &again, &why));
        weft_plan_calibration_print(&again, twice);
        FUZZ_CHECK(strcmp(printed, twice) == 0);
    } else {
        FUZZ_CHECK(why != NULL);
    }
}

static void fuzz_cpus(const char *text)
{
    cpu_set_t cpus, again;
    char printed[16384];

    if (weft_topo_cpulist_read(text, &cpus)) {
        weft_topo_cpulist_print(&cpus, printed, sizeof(printed));
        FUZZ_CHECK(CPU_COUNT(&cpus) == 0 ||
                   (weft_topo_cpulist_read(printed, &again) && CPU_EQUAL(&cpus, &again)));
    }
}

static void fuzz_bindings(const char *text)
{
    static const struct weft_topo_iface ifaces[] = {{.name = "eth0"}, {.name = "eth1"}};
    struct weft_topo_scope scope = {.ifaces = ifaces, .iface_count = 2};
    struct weft_topo_bindings *bindings = NULL;

    for (int cpu = 0; cpu < 64; cpu++) {
        CPU_SET(cpu, &scope.online);
        CPU_SET(cpu, &scope.affinity);
    }
    if (weft_topo_bindings_parse("WEFT_TX_BINDINGS", text, &scope, &bindings) == WEFT_OK) {
        for (unsigned i = 0; i < bindings->count; i++) {
            FUZZ_CHECK(CPU_COUNT(&bindings->binding[i].cpus) > 0);
        }
        free(bindings);
    }
}

static void fuzz_nodes(const char *text)
{
    char host[WEFT_LAUNCH_HOST_LEN] = "";

    if (weft_launch_first_host(text, host, sizeof(host)) == WEFT_OK) {
        FUZZ_CHECK(host[0] != '\0' && strnlen(host, sizeof(host)) < sizeof(host));
    }
}

/* Two settings' texts, with a bar between them. */
static void fuzz_differences(char *text)
{
    char name[WEFT_PARAM_TEXT_LEN], mine[WEFT_PARAM_TEXT_LEN], theirs[WEFT_PARAM_TEXT_LEN];
    char *bar = strchr(text, '|');

    if (bar != NULL) {
        *bar = '\0';
        if (weft_params_differ(text, bar + 1, name, mine, theirs)) {
            FUZZ_CHECK(fuzz_is_printable(name, sizeof(name)));
            FUZZ_CHECK(fuzz_is_printable(mine, sizeof(mine)));
            FUZZ_CHECK(fuzz_is_printable(theirs, sizeof(theirs)));
        }
        FUZZ_CHECK(!weft_params_differ(text, text, name, mine, theirs));
    }
}

static void fuzz_text(uint8_t which, char *text)
{
    switch (which % 9) {
    case 0:
        fuzz_value(WEFT_PARAM_INT, text);
        break;
    case 1:
        fuzz_value(WEFT_PARAM_SIZE, text);
        break;
    case 2:
        fuzz_value(WEFT_PARAM_DURATION, text);
        break;
    case 3:
        fuzz_setting(text);
        break;
    case 4:
        fuzz_calibration(text);
        break;
    case 5:
        fuzz_cpus(text);
        break;
    case 6:
        fuzz_bindings(text);
        break;
    case 7:
        fuzz_nodes(text);
        break;
    default:
        fuzz_differences(text);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text;

    if (size == 0) {
        return 0;
    }
    text = malloc(size);
    FUZZ_CHECK(text != NULL);
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    fuzz_text(data[0], text);
    free(text);
    return 0;
}
