"""A torch.distributed backend over rota.

`torch.distributed.init_process_group("rota")` finds it without an import. `register` puts it under
another name, for programs that insist on one.
"""
import torch  # the libraries of torch must be there before the module that needs them
import torch.distributed as dist

from . import _C

library_version = _C.library_version


def _create(name, options, backend_options):
    if backend_options is not None:
        raise ValueError("rota takes no pg_options; its settings are ROTA_* variables")
    return _C.create(options.store, options.group_rank, options.group_size, options.timeout,
                     name, options.group_id, list(options.global_ranks_in_group))


def register(name="rota"):
    """Makes `init_process_group(name)` use rota."""
    dist.Backend.register_backend(
        name, lambda options, backend_options: _create(name, options, backend_options),
        extended_api=True, devices=["cpu"])
