"""Step time of a small transformer under DDP and FSDP2, over rota and over Gloo in one job.

    torchrun --nproc_per_node 2 training.py [--json FILE] [--steps 12]

Exposed communication is what a step takes longer than the same step without communication (DDP: buckets
are filled and emptied, but not reduced; FSDP2: the whole model on each rank), which is measured beside
each backend and is the same for both: one median over all. Rounds alternate between the backends;
medians.
"""
import argparse
import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

BACKENDS = ("rota", "gloo")
WIDTH, LAYERS, LENGTH, BATCH, WORDS = 128, 4, 32, 4, 1000


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True)
            for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, text):
        x = self.words(text)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def step(model, optimizer, text):
    optimizer.zero_grad()
    logits = model(text[:, :-1])
    nn.functional.cross_entropy(logits.reshape(-1, WORDS), text[:, 1:].reshape(-1)).backward()
    optimizer.step()


def seconds(work, steps):
    times = []
    for _ in range(steps):
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def model_of():
    torch.manual_seed(1)
    return Transformer()


def nothing(_, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """In place of an all-reduce of a bucket."""
    done = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def runs(kind, group, text):
    """What a step is with and without communication."""
    if kind == "ddp":
        model = DistributedDataParallel(model_of(), process_group=group)
        whole = DistributedDataParallel(model_of(), process_group=group)
        whole.register_comm_hook(None, nothing)
    else:
        model, whole = model_of(), model_of()
        mesh = DeviceMesh.from_group(group, "cpu")
        for layer in model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    other = torch.optim.SGD(whole.parameters(), 0.01)
    return (lambda: step(model, optimizer, text)), (lambda: step(whole, other, text))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=("ddp", "fsdp2"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo")
    groups = {b: dist.new_group(backend=b) for b in BACKENDS}
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(100 + rank)
    text = torch.randint(0, WORDS, (BATCH, LENGTH + 1))
    out = open(options.json, "a") if options.json and rank == 0 else None
    if rank == 0:
        print(f"{'model':8} {'backend':8} {'step ms':>9} {'alone ms':>9} {'exposed ms':>10}")
    for kind in (options.only,) if options.only else ("ddp", "fsdp2"):
        made = {b: runs(kind, g, text) for b, g in groups.items()}
        times = {b: ([], []) for b in BACKENDS}
        for together, alone in made.values():
            together(), alone()
        for _ in range(options.rounds):
            for b in BACKENDS:
                for i in (0, 1):
                    dist.barrier()
                    times[b][i].append(seconds(made[b][i], options.steps))
        alone = statistics.median(t for b in BACKENDS for t in times[b][1]) * 1e3
        for b in BACKENDS:
            whole = statistics.median(times[b][0]) * 1e3
            if rank == 0:
                print(f"{kind:8} {b:8} {whole:9.2f} {alone:9.2f} {whole - alone:10.2f}", flush=True)
            if out:
                json.dump(dict(model=kind, ranks=ranks, backend=b,
                               transport=os.environ.get("ROTA_TRANSPORT", "default"),
                               step_ms=whole, alone_ms=alone, exposed_ms=whole - alone), out)
                out.write("\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
