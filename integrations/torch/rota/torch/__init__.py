"""A torch.distributed backend over rota.

`torch.distributed.init_process_group("rota")` finds it without an import. `register` puts it under
another name, for programs that insist on one.
"""
import os
import re
import weakref

import torch  # the libraries of torch must be there before the module that needs them
import torch.distributed as dist
from torch.distributed import distributed_c10d

from . import _C

library_version = _C.library_version

_made = weakref.WeakSet()


def _world():
    """What all ranks have for tensors of the CPU; None while it is being made."""
    world = dist.group.WORLD
    try:
        return world and world._get_backend(torch.device("cpu"))
    except RuntimeError:  # nothing for the CPU
        return None


def _create(name, options, backend_options):
    if backend_options is not None:
        raise ValueError("rota takes no pg_options; its settings are ROTA_* variables")
    # DDP's buckets in memory that peers read in place, unless the user says otherwise. Where there
    # are devices the variable would speak for their backend too.
    if not torch.accelerator.is_available():
        os.environ.setdefault("DDP_DISABLE_COMM_MEM", "0")
    made = _C.create(options.store, options.group_rank, options.group_size, options.timeout,
                     name, options.group_id, list(options.global_ranks_in_group), _world())
    _made.add(made)
    return made


def _compare_over_rota():
    """With TORCH_DISTRIBUTED_DEBUG=DETAIL torch compares the calls of all ranks before it makes
    them, over a Gloo group beside each group. Beside one of rota's it is one of rota's."""
    over_gloo = distributed_c10d._create_process_group_wrapper
    if getattr(over_gloo, "over_rota", False):
        return

    def wrapper(wrapped_pg, store_prefix, store, rank, world_size, timeout=None):
        if wrapped_pg not in _made:
            arguments = () if timeout is None else (timeout,)
            return over_gloo(wrapped_pg, store_prefix, store, rank, world_size, *arguments)
        beside = dist.PrefixStore(f"{store_prefix}/compare/", store)
        helper = _C.create(beside, rank, world_size, timeout or dist.default_pg_timeout, "rota",
                           f"{store_prefix} compared", [], None)
        return distributed_c10d._ProcessGroupWrapper(wrapped_pg, helper)

    wrapper.over_rota = True
    distributed_c10d._create_process_group_wrapper = wrapper


def register(name="rota"):
    """Makes `init_process_group(name)` use rota."""
    _compare_over_rota()
    dist.Backend.register_backend(
        name, lambda options, backend_options: _create(name, options, backend_options),
        extended_api=True, devices=["cpu"])


def recorded():
    """What the flight recorder has of this process: for each group that has been used a dictionary

        group, rank, ranks   torch's name of it, this process's rank in it, its size
        messages             False: of its collectives; True: of its sends and receives
        calls                how many there were so far
        last                 the last of them (62 at most), oldest first, as dictionaries: sequence,
                             kind, dtype, op, count, root or peer and tag, running, status, algorithm

    Empty where recordings are not files (ROTA_RECORD). `rota doctor` merges those of all ranks."""
    with open("/proc/self/maps") as maps:
        paths = set(re.findall(r"(/.*)/rank-\d+\.rota$", maps.read(), re.MULTILINE))
    return [page for folder in sorted(paths) if os.path.isdir(folder)
            for page in _C.recorded(folder)]
