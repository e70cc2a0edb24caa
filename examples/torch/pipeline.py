"""Pipelines: each rank has some of the layers, and micro-batches pass from rank to rank.

    pipeline.py gpipe|1f1b|interleaved"""
import sys

import torch
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.pipelining import ScheduleInterleaved1F1B

from common import ROWS, RATE, STEPS, alone, check, communication, held, loss_of, perceptron, report
from common import rows, start

kind = sys.argv[1] if len(sys.argv) > 1 else "1f1b"
rank, size = start()
per_rank = 2 if kind == "interleaved" else 1
stages_count = size * per_rank
whole = perceptron(stages_count)
initial = perceptron(stages_count)
expected = alone(whole, ROWS * size)
device = torch.device("cpu")
numbers = [rank + size * k for k in range(per_rank)]
modules = [initial[2 * n:2 * n + 2] for n in numbers]  # a layer and its activation
stages = [PipelineStage(m, n, stages_count, device) for m, n in zip(modules, numbers)]
if kind == "interleaved":
    schedule = ScheduleInterleaved1F1B(stages, n_microbatches=2 * size, loss_fn=loss_of)
else:
    schedule = (ScheduleGPipe if kind == "gpipe" else Schedule1F1B)(
        stages[0], n_microbatches=2 * size, loss_fn=loss_of)
parameters = [p for m in modules for p in m.parameters()]
optimizer = torch.optim.SGD(parameters, RATE)


def step(number):
    data, wanted = rows(number, ROWS * size)
    optimizer.zero_grad()
    arguments = (data,) if rank == 0 else ()
    schedule.step(*arguments, **({"target": wanted} if rank == size - 1 else {}))
    optimizer.step()


for number in range(STEPS):
    step(number)
wanted = [p for n in numbers for p in expected[2 * n:2 * n + 2]]
worst = check(kind, parameters, wanted)
report(f"pipeline, {kind}", worst, communication(lambda: step(STEPS)), held(parameters, optimizer))
