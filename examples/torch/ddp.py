"""Data parallel: every rank has the whole model and a part of the rows; gradients are averaged in
buckets while the backward pass goes on."""
import torch
from torch.nn.parallel import DistributedDataParallel

from common import ROWS, RATE, STEPS, alone, check, communication, held, loss_of, perceptron
from common import report, rows, start

rank, size = start()
expected = alone(perceptron(), ROWS * size)
model = DistributedDataParallel(perceptron(), bucket_cap_mb=0.01, gradient_as_bucket_view=True)
optimizer = torch.optim.SGD(model.parameters(), RATE)


def step(number):
    data, wanted = (part.chunk(size)[rank] for part in rows(number, ROWS * size))
    optimizer.zero_grad()
    loss_of(model(data), wanted).backward()
    optimizer.step()


for number in range(STEPS):
    step(number)
worst = check("ddp", model.parameters(), expected)
report("ddp", worst, communication(lambda: step(STEPS)), held(model.parameters(), optimizer))
