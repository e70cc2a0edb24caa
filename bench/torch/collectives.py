"""rota and Gloo through torch.distributed, in one job: both have a process group of the same ranks,
and every measurement alternates between them, so that a busy machine is busy for both.

    torchrun --nproc_per_node 2 collectives.py [--json FILE] [--quick]      ROTA_TRANSPORT=tcp for TCP

Inputs are written anew before each call. A time is the median over rounds of the mean of a round's
calls, of the slowest rank. One JSON object per line: operation, bytes, ranks, backend, us.
"""
import argparse
import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist

BACKENDS = ("rota", "gloo")
SIZES = [8, 512, 4096, 65536, 262144, 1 << 20, 4 << 20, 16 << 20]


def operations(group, ranks):
    """Name, and a function that makes a call for `bytes` bytes of result or contribution."""
    def all_reduce(count):
        data = torch.ones(count)
        return data, lambda: dist.all_reduce(data, group=group)

    def all_gather(count):
        data, out = torch.ones(max(count // ranks, 1)), torch.empty(max(count // ranks, 1) * ranks)
        return data, lambda: dist.all_gather_into_tensor(out, data, group=group)

    def reduce_scatter(count):
        data, out = torch.ones(max(count // ranks, 1) * ranks), torch.empty(max(count // ranks, 1))
        return data, lambda: dist.reduce_scatter_tensor(out, data, group=group)

    def all_to_all(count):
        data = torch.ones(max(count // ranks, 1) * ranks)
        out = torch.empty_like(data)
        return data, lambda: dist.all_to_all_single(out, data, group=group)

    def broadcast(count):
        data = torch.ones(count)
        return data, lambda: dist.broadcast(data, 0, group=group)

    return dict(all_reduce=all_reduce, all_gather=all_gather, reduce_scatter=reduce_scatter,
                all_to_all=all_to_all, broadcast=broadcast)


def round_of(data, call, calls):
    spent = 0.0
    for _ in range(calls):
        data.fill_(1.0)
        begun = time.perf_counter()
        call()
        spent += time.perf_counter() - begun
    return spent / calls


def slowest(seconds, group):
    worst = torch.tensor([seconds], dtype=torch.float64)
    dist.all_reduce(worst, dist.ReduceOp.MAX, group=group)
    return float(worst)


def measure(groups, name, size, rounds):
    ranks = dist.get_world_size()
    made = {b: operations(g, ranks)[name](max(size // 4, 1)) for b, g in groups.items()}
    calls = max(2, min(200, int(2e7 / (size + 1e5))))
    times = {b: [] for b in groups}
    for b, (data, call) in made.items():
        round_of(data, call, 3)
    for _ in range(rounds):
        for b, (data, call) in made.items():
            dist.barrier(group=groups["gloo"])
            times[b].append(slowest(round_of(data, call, calls), groups["gloo"]))
    return {b: statistics.median(t) for b, t in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", help="one operation")
    options = parser.parse_args()
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo")
    groups = {b: dist.new_group(backend=b) for b in BACKENDS}
    rank, ranks = dist.get_rank(), dist.get_world_size()
    out = open(options.json, "a") if options.json and rank == 0 else None
    if rank == 0:
        print(f"{'operation':15} {'bytes':>9} {'rota us':>10} {'gloo us':>10} {'ratio':>6}")
    names = [options.only] if options.only else list(operations(None, ranks))
    for name in names:
        for size in SIZES[::2] if options.quick else SIZES:
            times = measure(groups, name, size, 5 if options.quick else 11)
            if rank == 0:
                print(f"{name:15} {size:9} {times['rota'] * 1e6:10.1f} {times['gloo'] * 1e6:10.1f} "
                      f"{times['gloo'] / times['rota']:6.2f}", flush=True)
            for backend in BACKENDS if out else ():
                json.dump(dict(operation=name, bytes=size, ranks=ranks, backend=backend,
                               transport=os.environ.get("ROTA_TRANSPORT", "default"),
                               us=times[backend] * 1e6), out)
                out.write("\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
