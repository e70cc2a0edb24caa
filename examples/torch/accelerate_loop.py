"""Hugging Face accelerate: the loop stays what it was for one process; accelerate deals out the rows,
averages the gradients, and gathers what is measured.

For CPUs accelerate knows other backends by name, but uses the process group that is there already."""
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

from common import ROWS, RATE, STEPS, alone, check, communication, held, loss_of, perceptron, report
from common import rows, start

rank, size = start()
expected = alone(perceptron(), ROWS * size)
accelerator = Accelerator(cpu=True)
model = perceptron()
optimizer = torch.optim.SGD(model.parameters(), RATE)
everything = [torch.cat(part) for part in zip(*(rows(n, ROWS * size) for n in range(STEPS + 1)))]
loader = DataLoader(TensorDataset(*everything), batch_size=ROWS)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
batches = iter(loader)
losses = []  # means over all ranks


def step():
    data, wanted = next(batches)
    optimizer.zero_grad()
    loss = loss_of(model(data), wanted)
    accelerator.backward(loss)
    optimizer.step()
    losses.append(accelerator.gather(loss.detach()).mean())


for _ in range(STEPS):
    step()
worst = check("accelerate", model.parameters(), expected)
if accelerator.num_processes != size:
    raise SystemExit(f"accelerate: {accelerator.num_processes} processes, expected {size}")
report("accelerate", worst, communication(step), held(model.parameters(), optimizer.optimizer))
