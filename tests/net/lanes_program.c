/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Traffic between ranks of different hosts, for tests that take NICs away meanwhile. Every byte is
 * compared with a pattern that changes every round, when it arrives and again before its place is
 * used for something else: what is lost, or written a second time later, shows.
 *
 *   lanes_program TRAFFIC…          each one in a thread of its own, until stdin ends
 *   lanes_program --hold TRAFFIC…   … from when a line comes: no lane is there before
 *
 *   long, short               messages of rank 0 to rank 1, sixteen or more at a time
 *   back                      as long, from rank 1 to rank 0
 *   put                       rank 0 puts and waits for quiet, rank 1 looks, and one of them then writes
 *                             something else there, which must stay
 *   signal                    puts with signals, each place with a word whose sum must be exact
 *   get                       rank 0 gets what rank 1 changes
 *   all                       messages of every rank to every other
 *   burst                     short messages all the time, long ones now and then, of rank 0 and 1 by turns
 *   control                   no messages: broadcasts, allgathers, mail and splits over the control plane
 *
 * It says lines of JSON: "started"; each second what was done and the longest stall between two bits of
 * progress; "stall" for each that took 50 ms or more; "failed" or "wrong"; "done" at the end. Times are of
 * the monotonic clock. Exit status: 0; 1 when a call failed, 3 when bytes were wrong.
 */
#include "lanes.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define TRAFFICS_MAX 8

static const struct {
    const char *name;
    void (*run)(struct traffic *traffic);
} kinds[] = {
    {"long", lanes_long}, {"short", lanes_short},     {"back", lanes_back},
    {"all", lanes_all},   {"put", lanes_put},         {"signal", lanes_signal},
    {"get", lanes_get},   {"control", lanes_control}, {"burst", lanes_burst},
};

#define KINDS ((int)(sizeof(kinds) / sizeof(kinds[0])))

static bool choose(const char *name, struct traffic *traffic)
{
    for (int i = 0; i < KINDS; i++) {
        if (strcmp(name, kinds[i].name) == 0) {
            traffic->name = name;
            traffic->run = kinds[i].run;
            traffic->tag = i + 1;
            return true;
        }
    }
    return false;
}

static void *run(void *traffic_p)
{
    struct traffic *traffic = traffic_p;
    traffic->run(traffic);
    return NULL;
}

/* Returns whether all did what they should. */
static bool run_all(weft_comm_t comm, struct traffic *traffics, int count)
{
    pthread_t threads[TRAFFICS_MAX];
    bool is_good = true;
    for (int i = 0; i < count; i++) {
        traffics[i].comm = comm;
        weft_comm_rank(comm, &traffics[i].rank);
        weft_comm_ranks(comm, &traffics[i].ranks);
        if (pthread_create(&threads[i], NULL, run, &traffics[i]) != 0) {
            return false;
        }
    }
    for (int i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
        is_good = is_good && !traffics[i].has_failed;
    }
    return is_good;
}

/* Who looks for a message gets ready for all that messages need, but calls nobody yet. */
static weft_status_t hold(weft_comm_t comm)
{
    char line[8];
    weft_message_t message;
    weft_status_t status = weft_probe(comm, WEFT_ANY_SOURCE, WEFT_ANY_TAG, 0, &message);
    return status == WEFT_ERR_TIMEOUT && fgets(line, sizeof(line), stdin) != NULL ? WEFT_OK
                                                                                  : status;
}

int main(int argc, char **argv)
{
    struct traffic traffics[TRAFFICS_MAX] = {0};
    weft_comm_t comm;
    bool is_held = argc > 1 && strcmp(argv[1], "--hold") == 0;
    argc -= is_held;
    argv += is_held;
    for (int i = 1; i < argc; i++) {
        if (i > TRAFFICS_MAX || !choose(argv[i], &traffics[i - 1])) {
            fprintf(stderr, "%s: no such traffic\n", argv[i]);
            return 2;
        }
    }
    weft_status_t status = weft_init(NULL, &comm);
    if (status != WEFT_OK) {
        lanes_print_failure("-", "weft_init", status);
        return 1;
    }
    printf("{\"event\": \"started\", \"at\": %.6f}\n", lanes_now_s());
    fflush(stdout);
    status = is_held ? hold(comm) : WEFT_OK;
    if (status != WEFT_OK) {
        lanes_print_failure("-", "weft_probe", status);
        return 1;
    }
    bool is_good = run_all(comm, traffics, argc - 1);
    status = is_good ? weft_control_barrier(comm) : WEFT_OK;
    if (status != WEFT_OK) {
        lanes_print_failure("-", "weft_control_barrier", status);
        is_good = false;
    }
    for (int i = 0; is_good && i < argc - 1; i++) {
        lanes_print_stats(&traffics[i], "done", traffics[i].began_s);
    }
    weft_comm_close(comm);
    lanes_free_all();
    return is_good ? 0 : 1;
}
