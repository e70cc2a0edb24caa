"""rota: collective communication for CPUs. `rota.torch` is its torch.distributed backend."""
__version__ = "0.1.0"
