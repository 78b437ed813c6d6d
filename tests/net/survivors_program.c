/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank of a job that loses ranks and goes on: it sums until a sum fails, says what happened, shrinks and sums with
 * those who are left; with "leave" as argument it closes at once instead. With "ring" it passes messages around a ring
 * instead of sums, with "gather" it uses the control plane's allgather. It speaks in lines of JSON on stdout; times are
 * of the monotonic clock, which all processes of a machine share.
 *
 *   started  the job is there; work begins with the first line on stdin
 *   works    the first sum of a communicator of so many ranks, those who are left, came out right
 *   verdict  what ended it: status and words, its number, whom it blames
 *   cut      this rank may not go on, while others may
 *   failed   this call, and nothing more is tried
 *   closed   all communicators are
 *
 * The end of stdin ends the work, on all ranks after the same sum. Exit status: 0, or 1 when a sum was wrong or a call
 * failed that must not.
 */
#include <weft/weft.h>

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define RANKS_MAX 62
#define WORDS 64
#define VERDICT_S 10
#define PAUSE_NS 1000000L /* between sums, and between looks: the machine belongs to others too */

enum work { WORK_SUMS, WORK_RING, WORK_GATHERS };

struct team {
    weft_comm_t comms[RANKS_MAX]; /* each made by shrinking the one before */
    int made;
    int number, ranks; /* of the job */
    enum work work;
};

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void pause_a_little(void)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    nanosleep(&pause, NULL);
}

/* One line: the event, where this rank is, and words; what is not plain in them becomes a question mark. */
static void tell_error(const char *event, const char *what, int left, const weft_error_t *error,
                       const char *text)
{
    printf("{\"event\": \"%s\", \"what\": \"%s\", \"left\": %d, \"number\": %u, \"rank\": %d, "
           "\"at\": %.6f, \"text\": \"",
           event, what, left, error->verdict, error->rank, now_s());
    for (const char *at = text; *at != '\0'; at++) {
        putchar((unsigned char)*at < 0x20 || *at == '"' || *at == '\\' ? '?' : *at);
    }
    printf("\"}\n");
    fflush(stdout);
}

static void tell(const char *event, const char *what, int left, const char *text)
{
    tell_error(event, what, left, &(weft_error_t){.rank = -1}, text);
}

static int fail(const char *call)
{
    tell("failed", call, 0, weft_error_text());
    return 1;
}

static bool has_input(int timeout_ms)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    return poll(&input, 1, timeout_ms) > 0;
}

static bool is_enough(void)
{
    char byte;
    return has_input(0) && read(STDIN_FILENO, &byte, 1) == 0;
}

/* Each rank adds its bit: as many as there are, its own among them, the same in the first word and the last. */
static bool is_right(const int64_t out[WORDS], int number, int ranks)
{
    return __builtin_popcountll((uint64_t)out[0]) == ranks && (out[0] >> number & 1) != 0 &&
           out[WORDS - 1] == out[0];
}

/* As a sum would come out, with everybody's part of the first two words passed from rank to rank. */
static weft_status_t pass_around(weft_comm_t comm, const int64_t in[WORDS], int64_t out[WORDS],
                                 int ranks)
{
    int64_t part[WORDS];
    int rank = 0;
    weft_comm_rank(comm, &rank);
    memcpy(part, in, sizeof(part));
    memcpy(out, in, sizeof(part));
    for (int step = 1; step < ranks; step++) {
        weft_request_t request;
        weft_status_t status = weft_send(comm, part, sizeof(part), (rank + 1) % ranks, 0, &request);
        int64_t came[WORDS];
        status = status == WEFT_OK ? weft_recv(comm, came, sizeof(came), (rank + ranks - 1) % ranks,
                                               0, NULL, NULL)
                                   : status;
        status = status == WEFT_OK ? weft_wait(&request, WEFT_NO_LIMIT) : status;
        if (status != WEFT_OK) {
            return status;
        }
        memcpy(part, came, sizeof(part));
        for (int i = 0; i < WORDS; i++) {
            out[i] += came[i];
        }
    }
    return WEFT_OK;
}

static weft_status_t gather(weft_comm_t comm, const int64_t in[WORDS], int64_t out[WORDS],
                            int ranks)
{
    static int64_t all[RANKS_MAX][WORDS];
    weft_status_t status = weft_control_allgather(comm, in, sizeof(all[0]), all);
    memset(out, 0, sizeof(all[0]));
    for (int rank = 0; status == WEFT_OK && rank < ranks; rank++) {
        for (int i = 0; i < WORDS; i++) {
            out[i] += all[rank][i];
        }
    }
    return status;
}

static weft_status_t sum(const struct team *team, weft_comm_t comm, const int64_t in[WORDS],
                         int64_t out[WORDS], int ranks)
{
    switch (team->work) {
    case WORK_RING:
        return pass_around(comm, in, out, ranks);
    case WORK_GATHERS:
        return gather(comm, in, out, ranks);
    default:
        return weft_allreduce(comm, in, out, WORDS, WEFT_I64, WEFT_SUM, NULL);
    }
}

/* Until a sum fails, or all have made the last one: WEFT_OK. ERR_PROTOCOL: one was wrong. */
static weft_status_t work(const struct team *team, weft_comm_t comm)
{
    int64_t out[WORDS] = {0};
    bool has_said = false;
    int ranks = 0;
    weft_comm_ranks(comm, &ranks);
    while (out[1] == 0) {
        int64_t in[WORDS] = {INT64_C(1) << team->number, is_enough()};
        weft_status_t status;
        in[WORDS - 1] = in[0];
        status = sum(team, comm, in, out, ranks);
        if (status != WEFT_OK) {
            return status;
        }
        if (!is_right(out, team->number, ranks)) {
            return WEFT_ERR_PROTOCOL;
        }
        if (!has_said) {
            has_said = true;
            tell("works", "", ranks, "");
        }
        pause_a_little();
    }
    return weft_barrier(comm, NULL);
}

/* A call may have failed before the verdict came. */
static weft_status_t verdict_of(weft_comm_t comm)
{
    double end_s = now_s() + VERDICT_S;
    weft_status_t status;
    while ((status = weft_comm_status(comm)) == WEFT_OK && now_s() < end_s) {
        pause_a_little();
    }
    return status;
}

/* WEFT_ERR_TIMEOUT: there is none. */
static weft_status_t tell_verdict(weft_comm_t comm)
{
    weft_status_t status = verdict_of(comm);
    weft_error_t error = {0};
    int ranks = 0;
    weft_comm_ranks(comm, &ranks);
    if (status == WEFT_OK) {
        fail("allreduce, and there is no verdict");
        return WEFT_ERR_TIMEOUT;
    }
    weft_comm_get_error(comm, &error);
    tell_error("verdict", weft_status_name(status), ranks, &error, error.text);
    return WEFT_OK;
}

/* WEFT_OK: it goes on with those who are left. */
static weft_status_t shrink(struct team *team)
{
    weft_comm_t last = team->comms[team->made - 1];
    weft_status_t status = team->made < RANKS_MAX ? tell_verdict(last) : WEFT_ERR_TIMEOUT;
    if (status != WEFT_OK) {
        return status;
    }
    status = weft_comm_shrink(last, &team->comms[team->made]);
    if (status == WEFT_OK) {
        team->made++;
    } else if (status == WEFT_ERR_NETWORK) {
        tell("cut", weft_status_name(status), 0, weft_error_text());
    } else {
        fail("shrink");
    }
    return status;
}

static int go_on(struct team *team, bool is_leaving)
{
    for (;;) {
        weft_status_t status = work(team, team->comms[team->made - 1]);
        if (status == WEFT_OK) {
            return 0;
        }
        if (status == WEFT_ERR_PROTOCOL) {
            return fail("allreduce, and the sum is wrong");
        }
        if (is_leaving) {
            return tell_verdict(team->comms[0]) == WEFT_OK ? 0 : 1;
        }
        status = shrink(team);
        if (status != WEFT_OK) {
            return status == WEFT_ERR_NETWORK ? 0 : 1;
        }
    }
}

int main(int argc, char **argv)
{
    struct team team = {.made = 1};
    bool is_leaving = false;
    int code;
    for (int i = 1; i < argc; i++) {
        is_leaving |= strcmp(argv[i], "leave") == 0;
        team.work = strcmp(argv[i], "ring") == 0     ? WORK_RING
                    : strcmp(argv[i], "gather") == 0 ? WORK_GATHERS
                                                     : team.work;
    }
    if (weft_init(NULL, &team.comms[0]) != WEFT_OK ||
        weft_comm_rank(team.comms[0], &team.number) != WEFT_OK ||
        weft_comm_ranks(team.comms[0], &team.ranks) != WEFT_OK || team.ranks > RANKS_MAX ||
        weft_control_barrier(team.comms[0]) != WEFT_OK) {
        return fail("start");
    }
    tell("started", "", team.ranks, "");
    has_input(-1);
    code = is_enough() ? 0 : go_on(&team, is_leaving);
    while (team.made > 0) {
        if (weft_comm_close(team.comms[--team.made]) != WEFT_OK) {
            code = fail("close");
        }
    }
    tell("closed", "", 0, "");
    return code;
}
