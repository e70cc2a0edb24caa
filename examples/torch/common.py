"""What the examples share: a job over rota, a small model, the run of one process to compare with,
and the two numbers that each prints: how much of a step communicates, and how much a rank holds."""
import datetime
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.profiler import ProfilerActivity, profile

WIDTH, ROWS, STEPS, RATE = 32, 16, 4, 0.05


def start():
    """Joins the job; `torchrun --nproc_per_node N EXAMPLE.py`. BACKEND=gloo compares."""
    torch.set_num_threads(1)
    dist.init_process_group(os.environ.get("BACKEND", "rota"),
                            timeout=datetime.timedelta(seconds=120))
    return dist.get_rank(), dist.get_world_size()


def perceptron(layers=4):
    torch.manual_seed(1)
    parts = []
    for _ in range(layers):
        parts += [nn.Linear(WIDTH, WIDTH), nn.Tanh()]
    return nn.Sequential(*parts)


def rows(step, count):
    """The whole batch of a step, the same on all ranks."""
    generator = torch.Generator().manual_seed(step)
    return (torch.randn(count, WIDTH, generator=generator),
            torch.randn(count, WIDTH, generator=generator))


def loss_of(found, wanted):
    return (found - wanted).pow(2).mean()


def alone(model, count, optimizer=None, steps=STEPS):
    """Trains in this process alone, on all rows; returns the weights."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), RATE)
    for step in range(steps):
        data, wanted = rows(step, count)
        optimizer.zero_grad()
        loss_of(model(data), wanted).backward()
        optimizer.step()
    return [p.detach() for p in model.parameters()]


def check(name, found, expected, tolerance=1e-5):
    """Ends the job with an error when the weights are not those of one process."""
    worst = max((float((f.detach().float() - e.float()).abs().max())
                 for f, e in zip(found, expected, strict=True)), default=0.0)
    if not worst <= tolerance:
        raise SystemExit(f"{name}: differs by {worst:.3g} from one process, more than {tolerance}")
    return worst


def held(parameters, optimizer=None):
    """Bytes of parameters, gradients and optimizer state on this rank."""
    def local(tensor):
        tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
        return tensor.numel() * tensor.element_size()

    parameters = list(parameters)
    total = sum(local(p) + (local(p.grad) if p.grad is not None else 0) for p in parameters)
    for state in optimizer.state.values() if optimizer else ():
        total += sum(local(v) for v in state.values() if torch.is_tensor(v))
    return total


def communication(step):
    """Runs a step; returns the part of its time in which at least one operation was under way."""
    prefix = dist.get_backend() + ":"
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        begun = time.perf_counter()
        step()
        took = time.perf_counter() - begun
    spans = sorted((e.time_range.start, e.time_range.end) for e in profiled.events()
                   if e.name.startswith(prefix))
    busy = end = 0.0
    for first, last in spans:
        busy += max(last - max(first, end), 0.0)
        end = max(end, last)
    return min(busy / (took * 1e6), 1.0)


def report(name, worst, share, bytes_held):
    """One line for each rank, in order."""
    text = (f"rank {dist.get_rank()}: {name}: as one process to {worst:.1e}; communication "
            f"{share:.0%} of a step; {bytes_held / 1024:.1f} KiB held")
    lines = [None] * dist.get_world_size()
    dist.all_gather_object(lines, text)
    if dist.get_rank() == 0:
        print("\n".join(lines), flush=True)
    dist.destroy_process_group()
