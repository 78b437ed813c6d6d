/* SPDX-License-Identifier: Apache-2.0 */
/* Gloo's collectives over loopback TCP as a peer (peer.h): gloo_coll RANKS FILE STORE forks its ranks, which
 * meet in the empty folder STORE. allreduce is gloo::allreduce as PyTorch calls it (ring), _bcube the same
 * call's other algorithm; _hd and reduce_scatter are the older halving-doubling classes, which work in place. */
#include "peer.h"

#include <sys/wait.h>

#include <functional>
#include <memory>
#include <vector>

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

static std::shared_ptr<gloo::rendezvous::Context> context;
static std::unique_ptr<gloo::Algorithm> algorithm; // of the cell, for the older classes

enum way { RING, BCUBE, HD, REDUCE_SCATTER, ALLGATHER, BROADCAST, ALLTOALL, BARRIER };

static const struct peer_op ops[] = {
    {"allreduce", PEER_ALLREDUCE, 0},    {"allreduce_bcube", PEER_ALLREDUCE, 0},
    {"allreduce_hd", PEER_ALLREDUCE, 1}, {"reduce_scatter", PEER_REDUCE_SCATTER, 1},
    {"allgather", PEER_ALLGATHER, 0},    {"broadcast", PEER_BROADCAST, 0},
    {"alltoall", PEER_ALLTOALL, 0},      {"barrier", PEER_BARRIER, 0},
};

static void barrier()
{
    gloo::BarrierOptions options(context);
    gloo::barrier(options);
}

static int prepare(const struct peer_cell *cell)
{
    const gloo::ReductionFunction<float> *sum = gloo::ReductionFunction<float>::sum;
    std::vector<float *> data{peer.out};
    int count = static_cast<int>(cell->whole);
    algorithm.reset();
    if (cell->op - ops == HD) {
        algorithm.reset(new gloo::AllreduceHalvingDoubling<float>(context, data, count, sum));
    } else if (cell->op - ops == REDUCE_SCATTER) {
        std::vector<int> pieces(static_cast<size_t>(peer.ranks), static_cast<int>(cell->piece));
        algorithm.reset(
            new gloo::ReduceScatterHalvingDoubling<float>(context, data, count, pieces, sum));
    }
    return 1;
}

static void allreduce(const struct peer_cell *cell, gloo::AllreduceOptions::Algorithm how)
{
    void (*add)(void *, const void *, const void *, size_t) = &gloo::sum<float>;
    gloo::AllreduceOptions options(context);
    options.setInput(peer.in, cell->whole);
    options.setOutput(peer.out, cell->whole);
    options.setReduceFunction(add);
    options.setAlgorithm(how);
    gloo::allreduce(options);
}

static void allgather(const struct peer_cell *cell)
{
    gloo::AllgatherOptions options(context);
    options.setInput(peer.in, cell->piece);
    options.setOutput(peer.out, cell->whole);
    gloo::allgather(options);
}

static void broadcast(const struct peer_cell *cell)
{
    peer.root = (peer.root + 1) % peer.ranks;
    gloo::BroadcastOptions options(context);
    options.setOutput(peer.rank == peer.root ? peer.in : peer.out, cell->whole);
    options.setRoot(peer.root);
    gloo::broadcast(options);
}

static void alltoall(const struct peer_cell *cell)
{
    gloo::AlltoallOptions options(context);
    options.setInput(peer.in, cell->whole);
    options.setOutput(peer.out, cell->whole);
    gloo::alltoall(options);
}

static void run(const struct peer_cell *cell)
{
    switch (static_cast<way>(cell->op - ops)) {
    case RING:
        return allreduce(cell, gloo::AllreduceOptions::Algorithm::RING);
    case BCUBE:
        return allreduce(cell, gloo::AllreduceOptions::Algorithm::BCUBE);
    case HD:
    case REDUCE_SCATTER:
        return algorithm->run();
    case ALLGATHER:
        return allgather(cell);
    case BROADCAST:
        return broadcast(cell);
    case ALLTOALL:
        return alltoall(cell);
    case BARRIER:
        return barrier();
    }
}

static void be_rank(const char *shared, const char *store_path)
{
    try {
        gloo::transport::tcp::attr address("127.0.0.1");
        auto device = gloo::transport::tcp::CreateDevice(address);
        gloo::rendezvous::FileStore store(store_path);
        context = std::make_shared<gloo::rendezvous::Context>(peer.rank, peer.ranks);
        context->connectFullMesh(store, device);
        peer_map(shared);
        barrier();
        peer_serve();
    } catch (const std::exception &error) {
        peer_die(error.what());
    }
}

int main(int argc, char **argv)
{
    peer.ranks = argc == 4 ? atoi(argv[1]) : 0;
    if (peer.ranks < 2 || peer.ranks > PEER_RANKS_MAX) {
        peer_die("usage: gloo_coll RANKS FILE STORE, for 2 to 64 ranks");
    }
    peer.ops = ops;
    peer.op_count = static_cast<int>(sizeof(ops) / sizeof(ops[0]));
    peer.barrier = barrier;
    peer.prepare = prepare;
    peer.run = run;
    std::vector<pid_t> children;
    for (int rank = 0; rank < peer.ranks; rank++) {
        pid_t child = fork();
        if (child == 0) {
            peer_die_with_parent();
            peer.rank = rank;
            be_rank(argv[2], argv[3]);
            fflush(stdout);
            _exit(0);
        }
        children.push_back(child);
    }
    int status = 0, failed = 0;
    while (wait(&status) > 0) {
        if (status != 0 && !failed) { // one down, all down
            failed = 1;
            for (pid_t child : children) {
                kill(child, SIGTERM);
            }
        }
    }
    return failed;
}
