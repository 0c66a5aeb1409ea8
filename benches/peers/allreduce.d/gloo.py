"""The loop of benches/peers/allreduce for Gloo, as PyTorch brings it: one process a rank.

    PYTHON gloo.py RANK WORLD STORE_FILE BYTES[,BYTES..] BUDGET_MS

Same loop and same output as mpi.c beside it. GLOO_SOCKET_IFNAME names the interface.
"""
import sys
import time

import torch
import torch.distributed as dist

TRIES, LEAST, MOST = 5, 7, 2000


def main():
    rank, world, store, sizes, budget = sys.argv[1:6]
    rank, world, budget = int(rank), int(world), float(budget) / 1e3
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    for size in map(int, sizes.split(",")):
        count = size // 4
        data = torch.arange(count, dtype=torch.float32) % 1000 + rank
        right = (torch.arange(count, dtype=torch.float32) % 1000) * world + world * (world - 1) // 2
        dist.all_reduce(data)
        if not torch.equal(data, right):
            sys.exit(f"rank {rank}: {size} bytes: a wrong sum")
        data.zero_()
        dist.barrier()
        times = []
        for _ in range(TRIES):
            t = time.perf_counter_ns()
            dist.all_reduce(data)
            times.append(time.perf_counter_ns() - t)
        one = sorted(times)[TRIES // 2] / 1e9
        agreed = torch.tensor([max(LEAST, min(MOST, int(budget / one)))])
        dist.broadcast(agreed, 0)
        calls, times = int(agreed), []
        for _ in range(calls // 2):
            dist.all_reduce(data)
        dist.barrier()
        start = time.perf_counter_ns()
        for _ in range(calls):
            t = time.perf_counter_ns()
            dist.all_reduce(data)
            times.append(time.perf_counter_ns() - t)
        total = time.perf_counter_ns() - start
        times.sort()
        figures = torch.tensor([times[calls // 2], times[0], total / calls], dtype=torch.float64) / 1e3
        dist.all_reduce(figures, dist.ReduceOp.MAX)
        if rank == 0:
            print(size, calls, *(f"{figure:.3f}" for figure in figures.tolist()), flush=True)
    dist.destroy_process_group()


main()
