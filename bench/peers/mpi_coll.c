/* SPDX-License-Identifier: Apache-2.0 */
/* MPI's collectives as a peer (peer.h): mpirun -np N mpi_coll FILE, where FILE is empty and every rank can
 * map it. reduce_scatter_v is MPI_Reduce_scatter, which some libraries do better than the _block form. */
#include "peer.h"

#include <mpi.h>

static int counts[PEER_RANKS_MAX];

static void barrier(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
}

enum way { ALLREDUCE, REDUCE_SCATTER, REDUCE_SCATTER_V, ALLGATHER, BROADCAST, ALLTOALL, BARRIER };

static const struct peer_op ops[] = {
    [ALLREDUCE] = {"allreduce", PEER_ALLREDUCE, 0},
    [REDUCE_SCATTER] = {"reduce_scatter", PEER_REDUCE_SCATTER, 0},
    [REDUCE_SCATTER_V] = {"reduce_scatter_v", PEER_REDUCE_SCATTER, 0},
    [ALLGATHER] = {"allgather", PEER_ALLGATHER, 0},
    [BROADCAST] = {"broadcast", PEER_BROADCAST, 0},
    [ALLTOALL] = {"alltoall", PEER_ALLTOALL, 0},
    [BARRIER] = {"barrier", PEER_BARRIER, 0},
};

static int prepare(const struct peer_cell *cell)
{
    for (int i = 0; i < peer.ranks; i++) {
        counts[i] = (int)cell->piece;
    }
    return 1;
}

static void run(const struct peer_cell *cell)
{
    int whole = (int)cell->whole, piece = (int)cell->piece;
    switch ((enum way)(cell->op - ops)) {
    case ALLREDUCE:
        MPI_Allreduce(peer.in, peer.out, whole, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
    case REDUCE_SCATTER:
        MPI_Reduce_scatter_block(peer.in, peer.out, piece, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
    case REDUCE_SCATTER_V:
        MPI_Reduce_scatter(peer.in, peer.out, counts, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
    case ALLGATHER:
        MPI_Allgather(peer.in, piece, MPI_FLOAT, peer.out, piece, MPI_FLOAT, MPI_COMM_WORLD);
        break;
    case BROADCAST:
        peer.root = (peer.root + 1) % peer.ranks;
        MPI_Bcast(peer.rank == peer.root ? peer.in : peer.out, whole, MPI_FLOAT, peer.root,
                  MPI_COMM_WORLD);
        break;
    case ALLTOALL:
        MPI_Alltoall(peer.in, piece, MPI_FLOAT, peer.out, piece, MPI_FLOAT, MPI_COMM_WORLD);
        break;
    case BARRIER:
        MPI_Barrier(MPI_COMM_WORLD);
        break;
    }
}

int main(int argc, char **argv)
{
    peer_die_with_parent();
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &peer.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &peer.ranks);
    if (argc != 2 || peer.ranks > PEER_RANKS_MAX) {
        peer_die("usage: mpi_coll FILE, for up to 64 ranks");
    }
    peer.ops = ops;
    peer.op_count = (int)(sizeof(ops) / sizeof(ops[0]));
    peer.barrier = barrier;
    peer.prepare = prepare;
    peer.run = run;
    peer_map(argv[1]);
    barrier();
    peer_serve();
    MPI_Finalize();
    return 0;
}
