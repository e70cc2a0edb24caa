"""Puts rota in Gloo's place and watches torch: for running a suite that was written for Gloo.

A process in which somebody makes a ProcessGroupGloo, or in which torch has given process groups more
collectives than the flight recorder has, ends with an error when it destroys its groups. (DDP's own
calls pass below Python, so the recorder may have more.)
"""
import pathlib

import torch.distributed as dist
from torch.distributed import distributed_c10d

import rota.torch

METHODS = ["allreduce", "allreduce_coalesced", "broadcast", "reduce", "allgather", "gather", "scatter",
           "_allgather_base", "all_gather_single", "all_gather_single_coalesced", "reduce_scatter",
           "_reduce_scatter_base", "reduce_scatter_single", "reduce_scatter_single_coalesced",
           "alltoall", "alltoall_base", "all_to_all_single", "barrier", "gather_single",
           "allgather_into_tensor_coalesced", "reduce_scatter_tensor_coalesced"]
asked = 0
carried = {}


class Forbidden:
    def __init__(self, *arguments):
        raise AssertionError("somebody makes a ProcessGroupGloo")


def counted(call):
    def method(group, *arguments, **named):
        global asked
        work = call(group, *arguments, **named)
        asked += 1
        return work
    return method


def note():
    for page in rota.torch.recorded():
        if not page["messages"]:
            carried[page["id"], page["group"]] = page["calls"]


def destroy_process_group(group=None):
    note()
    if group is None or group is dist.group.WORLD:
        threads = {p.read_text().strip() for p in pathlib.Path("/proc/self/task").glob("*/comm")}
        assert not any("gloo" in t for t in threads), threads
        found = sum(carried.values())
        assert found >= asked, f"torch asked for {asked} collectives, rota carried {found}: {carried}"
    _destroy(group)


_destroy = dist.destroy_process_group
rota.torch.register("gloo")
distributed_c10d.ProcessGroupGloo = dist.ProcessGroupGloo = Forbidden
distributed_c10d.destroy_process_group = dist.destroy_process_group = destroy_process_group
for name in METHODS:
    if hasattr(dist.ProcessGroup, name):
        setattr(dist.ProcessGroup, name, counted(getattr(dist.ProcessGroup, name)))
