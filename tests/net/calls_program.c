/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank that calls what it is told to, and says what came of it:
 *
 *   sum       an allreduce
 *   gather    the control plane's allgather
 *   recv:R    a message of rank R
 *   after:MS  so long before the next word it computes, and calls nothing
 *
 * It begins with the first line on stdin, and closes when stdin ends. It speaks in lines of JSON on stdout; times are of the
 * monotonic clock, which all processes of a machine share.
 */
#include <weft/weft.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define RANKS_MAX 64
#define WORDS 64

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void tell(const char *event, weft_status_t status, const weft_error_t *error)
{
    printf("{\"event\": \"%s\", \"what\": \"%s\", \"number\": %u, \"rank\": %d, \"at\": %.6f, "
           "\"text\": \"",
           event, weft_status_name(status), error->verdict, error->rank, now_s());
    for (const char *at = error->text; *at != '\0'; at++) {
        putchar((unsigned char)*at < 0x20 || *at == '"' || *at == '\\' ? '?' : *at);
    }
    printf("\"}\n");
    fflush(stdout);
}

static void compute(long ms)
{
    struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

static weft_status_t call(weft_comm_t comm, const char *word)
{
    static int64_t in[WORDS], out[RANKS_MAX * WORDS];
    if (strncmp(word, "after:", 6) == 0) {
        compute(strtol(word + 6, NULL, 10));
        return WEFT_OK;
    }
    if (strncmp(word, "recv:", 5) == 0) {
        return weft_recv(comm, out, sizeof(in), (int)strtol(word + 5, NULL, 10), 0, NULL, NULL);
    }
    if (strcmp(word, "gather") == 0) {
        return weft_control_allgather(comm, in, sizeof(in), out);
    }
    return weft_allreduce(comm, in, out, WORDS, WEFT_I64, WEFT_SUM, NULL);
}

int main(int argc, char **argv)
{
    const weft_error_t none = {.rank = -1};
    weft_status_t status = WEFT_OK;
    weft_error_t error;
    weft_comm_t comm;
    char line[16];
    if (weft_init(NULL, &comm) != WEFT_OK || call(comm, "sum") != WEFT_OK) {
        fprintf(stderr, "%s\n", weft_error_text());
        return 1;
    }
    tell("started", status, &none);
    if (fgets(line, sizeof(line), stdin) == NULL) {
        return 1;
    }
    for (int i = 1; i < argc && status == WEFT_OK; i++) {
        status = call(comm, argv[i]);
    }
    weft_comm_get_error(comm, &error);
    tell("called", status, &error);
    while (fgets(line, sizeof(line), stdin) != NULL) {
    }
    weft_comm_close(comm);
    tell("closed", WEFT_OK, &none);
    return 0;
}
