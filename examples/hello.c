/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The smallest Weft program: join the job, tell everybody one's process id, leave.
 *
 *   cc hello.c $(pkg-config --cflags --libs weft) -o hello && weft run -n 4 -- ./hello
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <weft/weft.h>

static void check(weft_status_t status)
{
    if (status != WEFT_OK) {
        fprintf(stderr, "%s: %s\n", weft_status_name(status), weft_error_text());
        exit(1);
    }
}

int main(void)
{
    weft_comm_t comm;
    int rank, ranks;
    int pid = (int)getpid();
    int *pids;

    check(weft_init(NULL, &comm));
    check(weft_comm_rank(comm, &rank));
    check(weft_comm_ranks(comm, &ranks));
    pids = calloc((size_t)ranks, sizeof(*pids));
    check(pids != NULL ? WEFT_OK : WEFT_ERR_MEMORY);
    check(weft_control_allgather(comm, &pid, sizeof(pid), pids));
    if (rank == 0) {
        for (int i = 0; i < ranks; i++) {
            printf("rank %d of %d is process %d\n", i, ranks, pids[i]);
        }
    }
    check(weft_control_barrier(comm)); /* nobody leaves while somebody still needs it */
    free(pids);
    check(weft_comm_close(comm));
    return 0;
}
