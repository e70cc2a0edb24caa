"""Fully sharded: parameters, gradients and optimizer state are cut over the ranks; a layer is
gathered just before it is needed.

    fsdp2.py [--mixed] [--offload]

--mixed computes in bfloat16 and reduces in float32; --offload keeps the shards, which here is the
same memory, behind the offload policy's copies. The next layer is gathered while one computes."""
import sys

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy
from torch.distributed.fsdp import fully_shard
from torch import nn

from common import ROWS, STEPS, alone, check, communication, held, loss_of, perceptron, report
from common import rows, start

mixed, offload = "--mixed" in sys.argv, "--offload" in sys.argv
rank, size = start()
reference = perceptron()
expected = alone(reference, ROWS * size, torch.optim.AdamW(reference.parameters(), 1e-2))
model = perceptron()
mesh = init_device_mesh("cpu", (size,))
how = dict(mesh=mesh, offload_policy=CPUOffloadPolicy(pin_memory=False) if offload
           else OffloadPolicy(),
           mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
           if mixed else MixedPrecisionPolicy())
layers = [layer for layer in model if isinstance(layer, nn.Linear)]
for layer in layers:
    fully_shard(layer, **how)
fully_shard(model, **how)
for layer, following in zip(layers, layers[1:]):
    layer.set_modules_to_forward_prefetch([following])
optimizer = torch.optim.AdamW(model.parameters(), 1e-2)


def step(number):
    data, wanted = (part.chunk(size)[rank] for part in rows(number, ROWS * size))
    optimizer.zero_grad()
    loss_of(model(data).float(), wanted).backward()
    optimizer.step()


for number in range(STEPS):
    step(number)
# AdamW divides by the root of tiny squares: where a gradient is nearly 0, bfloat16 decides its sign.
worst = check("fsdp2", [p.full_tensor() for p in model.parameters()], expected,
              0.1 if mixed else 1e-4)
name = "fsdp2" + " mixed" * mixed + " offload" * offload
report(name, worst, communication(lambda: step(STEPS)), held(model.parameters(), optimizer))
