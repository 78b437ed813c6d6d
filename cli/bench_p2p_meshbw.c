/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every rank sends one message to every other, all at once: what the network between them gives
 * when all of it is used. A sample is one message, from the beginning of the round (all ranks leave
 * a barrier) to its arrival, by its receiver's clock; a round lasts until the slowest rank has sent
 * and received everything.
 */
#include "bench_p2p.h"

#include <math.h>
#include <stdlib.h>

#define TAG 6
#define MATRIX_MAX 12 /* ranks whose matrix fits a line */

size_t weft_bench_p2p_flood_index(int from, int to, int ranks)
{
    return (size_t)to * (size_t)(ranks - 1) + (size_t)(from < to ? from : from - 1);
}

/* Receives first, so that nothing comes unexpected; everybody begins with another partner. Requests:
 * receives, then sends, each in the order of the partners. */
static bool post_all(struct p2p_rank *rank, const struct p2p_series *series)
{
    int ranks = rank->plan->ranks;
    for (int i = 0; i < ranks - 1; i++) {
        int from = (rank->rank + ranks - 1 - i) % ranks;
        weft_status_t status =
            weft_recv(rank->comm, rank->recv + (size_t)from * series->bytes, series->bytes, from,
                      TAG, &rank->messages[i], &rank->requests[i]);
        if (status != WEFT_OK) {
            return weft_bench_p2p_fail_status(rank, "weft_recv", status);
        }
    }
    for (int i = 0; i < ranks - 1; i++) {
        int to = (rank->rank + 1 + i) % ranks;
        weft_status_t status = weft_send(rank->comm, rank->send, series->bytes, to, TAG,
                                         &rank->requests[ranks - 1 + i]);
        if (status != WEFT_OK) {
            return weft_bench_p2p_fail_status(rank, "weft_send", status);
        }
    }
    return true;
}

bool weft_bench_p2p_flood(struct p2p_rank *rank, const struct p2p_series *series,
                          uint64_t *samples_ps)
{
    int ranks = rank->plan->ranks, count = 2 * (ranks - 1);
    uint64_t begin_ns = weft_clock_ns();
    if (!post_all(rank, series)) {
        return false;
    }
    for (int done = 0; done < count; done++) {
        int index = -1;
        weft_status_t status = weft_wait_any(rank->requests, count, WEFT_NO_LIMIT, &index);
        if (status != WEFT_OK) {
            return weft_bench_p2p_fail_status(rank, "weft_wait_any", status);
        }
        if (index >= ranks - 1) {
            continue; /* a send */
        }
        const weft_message_t *message = &rank->messages[index];
        if (message->len != series->bytes) {
            return weft_bench_p2p_fail(rank, "a message of %zu bytes came from rank %d as %zu",
                                       series->bytes, message->source, message->len);
        }
        if (samples_ps != NULL) {
            samples_ps[weft_bench_p2p_flood_index(message->source, rank->rank, ranks)] =
                (weft_clock_ns() - begin_ns) * 1000;
        }
    }
    return true;
}

/* ---- showing it ---- */

double *weft_bench_p2p_matrix(const struct p2p_series *series, int ranks,
                              const uint64_t *samples_ps)
{
    size_t iters = (size_t)series->iters, stride = series->samples / iters;
    double *gbs = weft_cli_alloc((size_t)ranks * (size_t)ranks, sizeof(gbs[0]));
    double *us = weft_cli_alloc(iters, sizeof(us[0]));
    for (int from = 0; from < ranks; from++) {
        for (int to = 0; to < ranks; to++) {
            for (size_t i = 0; from != to && i < iters; i++) {
                size_t index = i * stride + weft_bench_p2p_flood_index(from, to, ranks);
                us[i] = (double)samples_ps[index] / 1e6;
            }
            gbs[from * ranks + to] =
                from == to ? NAN : (double)series->bytes / weft_bench_median(us, iters) / 1e3;
        }
    }
    free(us);
    return gbs;
}

static void print_cells(const struct p2p_row *row)
{
    static const char *const numbers[MATRIX_MAX] = {"0", "1", "2", "3", "4",  "5",
                                                    "6", "7", "8", "9", "10", "11"};
    struct weft_cli_column columns[MATRIX_MAX + 1] = {{"from", true}};
    for (int to = 0; to < row->ranks; to++) {
        columns[to + 1] = (struct weft_cli_column){numbers[to], true};
    }
    struct weft_cli_table *table = weft_cli_table_open(columns, (unsigned)row->ranks + 1);
    for (int from = 0; from < row->ranks; from++) {
        weft_cli_table_cell(table, "%d", from);
        for (int to = 0; to < row->ranks; to++) {
            double gbs = row->pair_gbs[from * row->ranks + to];
            if (from == to) {
                weft_cli_table_cell(table, "-");
            } else {
                weft_cli_table_cell(table, "%.*f", gbs >= 10 ? 2 : gbs >= 1 ? 3 : 4, gbs);
            }
        }
    }
    weft_cli_table_print(table, stdout);
    weft_cli_table_close(table);
}

void weft_bench_p2p_print_matrix(const struct p2p_row *row)
{
    double least = INFINITY, most = 0;
    char size[24];
    for (int i = 0; i < row->ranks * row->ranks; i++) {
        if (isfinite(row->pair_gbs[i])) {
            least = fmin(least, row->pair_gbs[i]);
            most = fmax(most, row->pair_gbs[i]);
        }
    }
    printf("\nmeshbw %s, %.4g GB/s in all; each pair %.4g to %.4g GB/s%s\n",
           weft_cli_print_size(row->series.bytes, size), row->gbs, least, most,
           row->ranks <= MATRIX_MAX ? ", from row to column:" : "");
    if (row->ranks <= MATRIX_MAX) {
        printf("\n");
        print_cells(row);
    }
}
