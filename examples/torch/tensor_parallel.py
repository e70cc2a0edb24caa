"""Tensor and sequence parallel: a pair of layers is cut by columns and then by rows; between the
pairs every rank has a part of the rows (of the sequence), which are gathered for the first layer and
reduced and scattered after the second."""
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from common import ROWS, STEPS, RATE, alone, check, communication, held, loss_of, perceptron, report
from common import rows, start

rank, size = start()
expected = alone(perceptron(), ROWS * size)
mesh = init_device_mesh("cpu", (size,))
model = parallelize_module(perceptron(), mesh, {
    "0": ColwiseParallel(input_layouts=Shard(0)), "2": RowwiseParallel(output_layouts=Shard(0)),
    "4": ColwiseParallel(input_layouts=Shard(0)), "6": RowwiseParallel(output_layouts=Shard(0))})
optimizer = torch.optim.SGD(model.parameters(), RATE, foreach=False)


def step(number):
    data, wanted = (part.chunk(size)[rank] for part in rows(number, ROWS * size))
    optimizer.zero_grad()
    # The loss is the mean over all rows: of this rank's, divided by the number of ranks.
    (loss_of(model(data), wanted) / size).backward()
    optimizer.step()


for number in range(STEPS):
    step(number)
worst = check("tensor", [p.full_tensor() for p in model.parameters()], expected)
report("tensor and sequence parallel", worst, communication(lambda: step(STEPS)),
       held(model.parameters(), optimizer))
