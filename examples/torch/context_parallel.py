"""Context parallel: the sequence is cut over the ranks. Each has its part of the queries, and the
keys and values pass round the ring; the softmax is put together from its parts, so no rank ever
holds more than two of them. The way back is autograd's, by the ring in the other direction."""
import torch
import torch.distributed as dist
from torch import nn

from common import RATE, STEPS, WIDTH, check, communication, held, report, rows, start

LENGTH = 24  # of a rank's part


class Shift(torch.autograd.Function):
    """Gives this rank's tensor to the next rank and takes that of the one before."""

    @staticmethod
    def forward(ctx, tensor, step):
        ctx.step = step
        taken = torch.empty_like(tensor, memory_format=torch.contiguous_format)
        rank, size = dist.get_rank(), dist.get_world_size()
        works = dist.batch_isend_irecv([
            dist.P2POp(dist.isend, tensor.contiguous(), (rank + step) % size),
            dist.P2POp(dist.irecv, taken, (rank - step) % size)])
        for work in works:
            work.wait()
        return taken

    @staticmethod
    def backward(ctx, gradient):
        return Shift.apply(gradient, -ctx.step), None


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.into = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, parts=1):
        query, key, value = self.into(x).chunk(3, -1)
        top = torch.full((x.size(0), 1), -torch.inf)
        total, mixed = torch.zeros(x.size(0), 1), torch.zeros_like(query)
        both = torch.stack([key, value])
        for i in range(parts):
            scores = query @ both[0].t() / WIDTH ** 0.5
            high = torch.maximum(top, scores.detach().amax(-1, keepdim=True))
            weights = (scores - high).exp()
            keep = (top - high).exp()
            total = total * keep + weights.sum(-1, keepdim=True)
            mixed = mixed * keep + weights @ both[1]
            top = high
            if i + 1 < parts:
                both = Shift.apply(both, 1)
        return self.out(mixed / total)


def model_of():
    torch.manual_seed(1)
    return Attention()


rank, size = start()
whole = model_of()
optimizer = torch.optim.SGD(whole.parameters(), RATE)
for number in range(STEPS):
    data, wanted = rows(number, LENGTH * size)
    optimizer.zero_grad()
    (whole(data) - wanted).pow(2).mean().backward()
    optimizer.step()

model = model_of()
optimizer = torch.optim.SGD(model.parameters(), RATE)


def step(number):
    data, wanted = (part.chunk(size)[rank] for part in rows(number, LENGTH * size))
    optimizer.zero_grad()
    ((model(data, size) - wanted).pow(2).mean() / size).backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
    optimizer.step()


for number in range(STEPS):
    step(number)
worst = check("context", model.parameters(), [p.detach() for p in whole.parameters()])
report("context parallel", worst, communication(lambda: step(STEPS)),
       held(model.parameters(), optimizer))
