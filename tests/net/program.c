/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of this folder run under launchers and on hosts: one rank that starts from its
 * environment, says what it found and proves that the job works. It speaks in lines of JSON on
 * stdout, so that a test can wait for them; times are of the monotonic clock, which all processes
 * of a machine share.
 *
 *   program                   start, check, close
 *   program --stay            the same, but closes only when stdin ends
 *   program --compute         … calls nothing until stdin ends, then once more what needs everybody
 *   program --until-failure   makes barriers until one fails, and says how
 *   program --id FILE …       rank 0 makes an id and leaves its text in FILE; the others read it
 *
 * Exit status: 0, or 1 when a call failed (in the last form: when none did).
 */
#include <weft/weft.h>

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ID_WAIT_MS 10000
#define BARRIER_PAUSE_NS 1000000L

struct card {
    int rank, ranks;
    unsigned check; /* of rank: bytes that came from elsewhere do not pass */
};

struct options {
    bool stays, computes, is_until_failure;
    const char *id_file;
};

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* A JSON string; what is not plain becomes a question mark. */
static void print_text(const char *text)
{
    putchar('"');
    for (const char *at = text; *at != '\0'; at++) {
        if (*at == '"' || *at == '\\') {
            putchar('\\');
        }
        putchar((unsigned char)*at < 0x20 ? '?' : *at);
    }
    putchar('"');
}

static int fail(const char *call, weft_status_t status)
{
    printf("{\"event\": \"failed\", \"call\": \"%s\", \"status\": \"%s\", \"at\": %.6f, \"text\": ",
           call, weft_status_name(status), now_s());
    print_text(weft_error_text());
    printf("}\n");
    fflush(stdout);
    return 1;
}

static unsigned check_of(int rank)
{
    return (unsigned)rank * 2654435761U + 12345;
}

/* Everybody's card reaches everybody, in order. */
static weft_status_t compare_cards(weft_comm_t comm, int rank, int ranks, bool *is_right_p)
{
    struct card mine = {rank, ranks, check_of(rank)};
    struct card *all = calloc((size_t)ranks, sizeof(*all));
    if (all == NULL) {
        return WEFT_ERR_MEMORY;
    }
    weft_status_t status = weft_control_allgather(comm, &mine, sizeof(mine), all);
    *is_right_p = status == WEFT_OK;
    for (int i = 0; *is_right_p && i < ranks; i++) {
        *is_right_p = all[i].rank == i && all[i].ranks == ranks && all[i].check == check_of(i);
    }
    free(all);
    return status;
}

static weft_status_t write_id(const char *path, const weft_id_t *id)
{
    char text[WEFT_ID_TEXT_LEN], draft[4096];
    weft_status_t status = weft_id_print(id, text);
    if (status != WEFT_OK) {
        return status;
    }
    snprintf(draft, sizeof(draft), "%s.draft", path);
    int fd = open(draft, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    bool is_written = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0) {
        close(fd);
    }
    return is_written && rename(draft, path) == 0 ? WEFT_OK : WEFT_ERR_SYSTEM;
}

static weft_status_t read_id(const char *path, weft_id_t *id_p)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    char text[WEFT_ID_TEXT_LEN] = "";
    for (int i = 0; i < ID_WAIT_MS; i++) {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd >= 0) {
            ssize_t len = read(fd, text, sizeof(text) - 1);
            close(fd);
            text[len > 0 ? len : 0] = '\0';
            return weft_id_parse(text, id_p);
        }
        nanosleep(&pause, NULL);
    }
    return WEFT_ERR_TIMEOUT;
}

/* A variable as a number; -1: not set. */
static int number_of(const char *name)
{
    const char *text = getenv(name);
    return text != NULL ? (int)strtol(text, NULL, 10) : -1;
}

static weft_status_t start_by_id(const char *path, weft_comm_t *comm_p)
{
    int rank = number_of("WEFT_RANK");
    int ranks = number_of("WEFT_RANKS");
    weft_id_t id;
    weft_status_t status;
    if (rank == 0) {
        status = weft_id_create(NULL, &id);
        status = status == WEFT_OK ? write_id(path, &id) : status;
    } else {
        status = read_id(path, &id);
    }
    return status == WEFT_OK ? weft_comm_create(&id, rank, ranks, NULL, comm_p) : status;
}

static weft_status_t tell_start(weft_comm_t comm, double began_s)
{
    char host[256] = "";
    int rank, ranks, local_rank, local_ranks;
    bool is_right = false;
    weft_status_t status = weft_comm_rank(comm, &rank);
    status = status == WEFT_OK ? weft_comm_ranks(comm, &ranks) : status;
    status = status == WEFT_OK ? weft_comm_local(comm, &local_rank, &local_ranks) : status;
    status = status == WEFT_OK ? compare_cards(comm, rank, ranks, &is_right) : status;
    status = status == WEFT_OK ? weft_control_barrier(comm) : status;
    if (status != WEFT_OK) {
        return status;
    }
    gethostname(host, sizeof(host) - 1);
    printf("{\"event\": \"started\", \"rank\": %d, \"ranks\": %d, \"local_rank\": %d, "
           "\"local_ranks\": %d, \"is_right\": %s, \"took\": %.6f, \"host\": ",
           rank, ranks, local_rank, local_ranks, is_right ? "true" : "false", now_s() - began_s);
    print_text(host);
    printf("}\n");
    fflush(stdout);
    return is_right ? WEFT_OK : WEFT_ERR_PROTOCOL;
}

/* Barriers with a little rest between them: the machine belongs to others too. */
static int run_until_failure(weft_comm_t comm)
{
    const struct timespec pause = {.tv_nsec = BARRIER_PAUSE_NS};
    double end_s = now_s() + 30;
    while (now_s() < end_s) {
        weft_status_t status = weft_control_barrier(comm);
        if (status != WEFT_OK) {
            fail("weft_control_barrier", status);
            return 0;
        }
        nanosleep(&pause, NULL);
    }
    return 1;
}

static bool read_options(int argc, char **argv, struct options *options)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--stay") == 0) {
            options->stays = true;
        } else if (strcmp(argv[i], "--compute") == 0) {
            options->computes = true;
        } else if (strcmp(argv[i], "--until-failure") == 0) {
            options->is_until_failure = true;
        } else if (strcmp(argv[i], "--id") == 0 && i + 1 < argc) {
            options->id_file = argv[++i];
        } else {
            return false;
        }
    }
    return true;
}

static void wait_for_end_of_input(void)
{
    char byte;
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
}

/* Everybody is still there. */
static int meet_again(weft_comm_t comm)
{
    int rank = 0, ranks = 0;
    bool is_right = false;
    weft_comm_rank(comm, &rank);
    weft_comm_ranks(comm, &ranks);
    weft_status_t status = compare_cards(comm, rank, ranks, &is_right);
    status = status == WEFT_OK ? weft_control_barrier(comm) : status;
    if (status != WEFT_OK) {
        return fail("meeting again", status);
    }
    return is_right ? 0 : 1;
}

int main(int argc, char **argv)
{
    struct options options = {0};
    double began_s = now_s();
    weft_comm_t comm;
    int code = 0;
    if (!read_options(argc, argv, &options)) {
        fprintf(stderr, "usage: program [--stay | --compute | --until-failure] [--id FILE]\n");
        return 2;
    }
    weft_status_t status =
        options.id_file != NULL ? start_by_id(options.id_file, &comm) : weft_init(NULL, &comm);
    if (status != WEFT_OK) {
        return fail("start", status);
    }
    status = tell_start(comm, began_s);
    if (status != WEFT_OK) {
        code = fail("check", status);
    } else if (options.is_until_failure) {
        code = run_until_failure(comm);
    } else if (options.stays || options.computes) {
        wait_for_end_of_input();
        code = options.computes ? meet_again(comm) : 0;
    }
    weft_comm_close(comm);
    return code;
}
