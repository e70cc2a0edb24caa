"""The flight recorder shows that rota carries every collective that torch makes, and nothing else:
`torchrun --nproc_per_node N carried.py`.

torch's own count is the profiler's: an event `c10d::NAME` for each operation that reaches a process
group, whoever asked for it. The recorder's count is the library's. Nothing may make a ProcessGroupGloo.
"""
import collections
import gc
import pathlib

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import distributed_c10d
from torch.distributed._functional_collectives import all_reduce as functional_all_reduce
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile

import rota.torch

COALESCED = 3  # tensors in each coalesced operation here
KINDS = {
    "allreduce_": "all_reduce", "allreduce_coalesced_": "all_reduce", "reduce_": "reduce",
    "broadcast_": "broadcast", "barrier": "barrier", "allgather_": "all_gather",
    "_allgather_base_": "all_gather", "allgather_into_tensor_coalesced_": "all_gather",
    "reduce_scatter_": "reduce_scatter", "_reduce_scatter_base_": "reduce_scatter",
    "reduce_scatter_tensor_coalesced_": "reduce_scatter", "alltoall_": "all_to_all",
    "alltoall_base_": "all_to_all", "gather_": "gather", "gather_into_tensor_": "gather",
    "scatter_": "scatter", "send": "send", "recv_": "recv", "recv_any_source_": "recv"}


class Forbidden:
    def __init__(self, *arguments):
        raise AssertionError("somebody makes a ProcessGroupGloo")


def torch_calls(profiled):
    """Kinds of the operations that torch gave to process groups, counted."""
    found = collections.Counter()
    for event in profiled.events():
        space, _, name = event.name.partition("::")
        if space == "c10d":
            found[KINDS[name]] += COALESCED if "coalesced" in name else 1
    return found


def rota_calls(before):
    """Kinds of the calls that the recorder has beyond those that were there before."""
    found = collections.Counter()
    for page in rota.torch.recorded():
        seen = before.get((page["id"], page["messages"]), 0)
        fresh = page["calls"] - seen
        assert fresh <= len(page["last"]), "a phase makes more calls than the recorder keeps"
        for call in page["last"][len(page["last"]) - fresh:]:
            assert call["status"] == "ok" and not call["running"], call
            found[call["kind"]] += 1
    return found


def train(model):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(4, 16)).pow(2).mean().backward()
        optimizer.step()


def layers():
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))


def phase_reductions():
    data = torch.ones(4 * size)
    dist.all_reduce(data)
    dist.all_reduce(data, async_op=True).wait()
    dist.reduce(data, 0)
    dist.broadcast(data, size - 1)
    dist.all_reduce_coalesced([torch.ones(i + 1) for i in range(COALESCED)])
    dist.reduce_scatter(torch.empty(4), list(data.chunk(size)))
    dist.reduce_scatter_tensor(torch.empty(4), data)
    functional_all_reduce(data, "sum", dist.group.WORLD).sum().item()
    dist.barrier()


def phase_moves():
    data = torch.ones(4)
    lists = [torch.empty(4) for _ in range(size)]
    dist.all_gather(lists, data)
    dist.all_gather_into_tensor(torch.empty(4 * size), data)
    with distributed_c10d._coalescing_manager():
        for _ in range(COALESCED):
            dist.all_gather_into_tensor(torch.empty(4 * size), data)
    dist.gather(data, lists if rank == 0 else None, 0)
    dist.scatter(data, lists if rank == 0 else None, 0)
    dist.all_to_all(lists, [torch.ones(4) for _ in range(size)])
    dist.all_to_all_single(torch.empty(4 * size), torch.ones(4 * size))
    dist.all_gather_object([None] * size, {"rank": rank})


def phase_messages():
    data = torch.ones(4)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, data, (rank + 1) % size),
                                        dist.P2POp(dist.irecv, torch.empty(4), (rank - 1) % size)]):
        work.wait()
    if rank == 0:
        dist.recv(data)
    elif rank == 1:
        dist.send(data, 0)


def phase_ddp():
    train(DistributedDataParallel(layers(), bucket_cap_mb=0.001))


def phase_fsdp():
    model = layers()
    mesh = init_device_mesh("cpu", (size,))
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    train(fully_shard(model, mesh=mesh))


def phase_split_group():
    for _ in range(5):
        dist.all_reduce(torch.ones(3), group=split)


distributed_c10d.ProcessGroupGloo = dist.ProcessGroupGloo = Forbidden
torch.set_num_threads(1)
dist.init_process_group("rota")
rank, size = dist.get_rank(), dist.get_world_size()
split = dist.split_group(split_ranks=[list(range(size))])
for name in [n for n in list(globals()) if n.startswith("phase_")]:
    before = {(p["id"], p["messages"]): p["calls"] for p in rota.torch.recorded()}
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        globals()[name]()
    expected, found = torch_calls(profiled), rota_calls(before)
    assert expected and found == expected, f"{name}: torch made {expected}, rota carried {found}"
    if rank == 0:
        print("passed", name, dict(found), flush=True)
threads = {p.read_text().strip() for p in pathlib.Path("/proc/self/task").glob("*/comm")}
assert not any("gloo" in t for t in threads), threads
dist.destroy_process_group()
gc.collect()  # buckets of DDP keep what they were allocated by
assert not rota.torch.recorded(), "a recording is left behind"
print("done", flush=True)
