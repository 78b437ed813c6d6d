/* SPDX-License-Identifier: Apache-2.0 */
/* weft bench report FILE: the page of results that were kept as JSON. */
#include "bench.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"

#define PART_LEN ((size_t)64 << 10)

/* NULL: errno. "-" is stdin. */
static char *read_file(const char *path)
{
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
    char *text = weft_cli_alloc(1, 1);
    size_t len = 0;
    while (file != NULL && !feof(file) && !ferror(file)) {
        text = weft_cli_grow(text, len + PART_LEN + 1, 1);
        len += fread(text + len, 1, PART_LEN, file);
    }
    text[len] = '\0';
    bool is_read = file != NULL && !ferror(file);
    if (file != NULL && file != stdin) {
        fclose(file);
    }
    if (!is_read) {
        free(text);
        return NULL;
    }
    return text;
}

int weft_cli_bench_report(int argc, char **argv)
{
    const char *output = "report.html";
    const struct weft_cli_option options[] = {
        {"output", 0, WEFT_CLI_TEXT, "FILE", "where the page goes (report.html)", &output, 0, 0},
        {0},
    };
    const struct weft_cli_command command = {
        .name = "bench report",
        .summary =
            "makes a page with curves of what `weft bench --json` (or bench/compare.py) wrote;\n"
            "one file, nothing from elsewhere",
        .usage = "FILE.json [options]",
        .options = options,
        .examples = {"weft bench report build/bench/compare.json --output compare.html",
                     "weft bench allreduce -n 8 --algo all --json | weft bench report -"},
    };
    int rest = argc;
    int exit_status = weft_cli_parse(&command, argc, argv, &rest);
    if (exit_status >= 0) {
        return exit_status;
    }
    if (argc - rest != 1) {
        return weft_cli_usage_error(&command, "expected one file of results");
    }
    char *text = read_file(argv[rest]), *why = NULL;
    if (text == NULL) {
        return weft_cli_fail(&command, "%s: %s", argv[rest], strerror(errno));
    }
    if (!weft_report_write(text, output, &why)) {
        exit_status = weft_cli_fail(&command, "%s: %s", argv[rest], why);
        free(why);
    }
    free(text);
    return exit_status >= 0 ? exit_status : WEFT_CLI_OK;
}
