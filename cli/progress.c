/* SPDX-License-Identifier: Apache-2.0 */
/* The progress line: on a terminal it rewrites itself, in a pipe there is none. */
#include "cli.h"

#include <unistd.h>

#define PAUSE_NS (100 * WEFT_NS_PER_MS)
#define ERASE "\r\033[K"

static bool is_shown;
static uint64_t next_ns;

void weft_cli_progress(const char *fmt, ...)
{
    char line[WEFT_CLI_WIDTH];
    va_list args;

    uint64_t now_ns = weft_clock_ns();
    if (now_ns < next_ns || isatty(STDERR_FILENO) == 0) {
        return;
    }
    next_ns = now_ns + PAUSE_NS;
    va_start(args, fmt);
    vsnprintf(line, sizeof(line) - 1, fmt, args);
    va_end(args);
    fprintf(stderr, ERASE "%s", line);
    fflush(stderr);
    is_shown = true;
}

void weft_cli_progress_clear(void)
{
    if (is_shown) {
        fputs(ERASE, stderr);
        fflush(stderr);
        is_shown = false;
    }
    next_ns = 0;
}
