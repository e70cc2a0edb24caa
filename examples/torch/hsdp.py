"""Hybrid: sharded within a group of ranks (a host), replicated between groups. Needs an even
number of ranks."""
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch import nn

from common import ROWS, STEPS, RATE, alone, check, communication, held, loss_of, perceptron, report
from common import rows, start

rank, size = start()
expected = alone(perceptron(), ROWS * size)
model = perceptron()
mesh = init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("replicate", "shard"))
for layer in model:
    if isinstance(layer, nn.Linear):
        fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.SGD(model.parameters(), RATE)


def step(number):
    data, wanted = (part.chunk(size)[rank] for part in rows(number, ROWS * size))
    optimizer.zero_grad()
    loss_of(model(data), wanted).backward()
    optimizer.step()


for number in range(STEPS):
    step(number)
worst = check("hsdp", [p.full_tensor() for p in model.parameters()], expected)
report("hsdp", worst, communication(lambda: step(STEPS)), held(model.parameters(), optimizer))
