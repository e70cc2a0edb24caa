"""Activations are put aside (on an accelerator: to the host) after the forward pass and fetched
before they are needed, by a thread, beside the all-reduces of data parallel training."""
from concurrent.futures import ThreadPoolExecutor

import torch
from torch.nn.parallel import DistributedDataParallel

from common import ROWS, RATE, STEPS, alone, check, communication, held, loss_of, perceptron, report
from common import rows, start

rank, size = start()
expected = alone(perceptron(), ROWS * size)
model = DistributedDataParallel(perceptron(), bucket_cap_mb=0.01)
optimizer = torch.optim.SGD(model.parameters(), RATE)
mover = ThreadPoolExecutor(1)
moved = 0


def put_aside(tensor):
    global moved
    if isinstance(tensor, torch.nn.Parameter) or not tensor.is_floating_point():
        return tensor
    moved += tensor.nbytes
    return mover.submit(lambda: tensor.detach().clone())  # where a copy to another memory would be


def fetch(kept):
    return kept if torch.is_tensor(kept) else kept.result()


def step(number):
    data, wanted = (part.chunk(size)[rank] for part in rows(number, ROWS * size))
    optimizer.zero_grad()
    with torch.autograd.graph.saved_tensors_hooks(put_aside, fetch):
        loss = loss_of(model(data), wanted)
    loss.backward()
    optimizer.step()


for number in range(STEPS):
    step(number)
worst = check("activation offload", model.parameters(), expected)
report(f"activation offload ({moved // STEPS // 1024} KiB a step)", worst,
       communication(lambda: step(STEPS)), held(model.parameters(), optimizer))
