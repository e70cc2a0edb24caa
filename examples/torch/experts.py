"""Experts: a gate sends each row to one of the experts, of which every rank has some; rows travel by
an all-to-all with as many as the gate decides, and come back by another."""
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._functional_collectives import all_to_all_single_autograd

from common import RATE, ROWS, STEPS, WIDTH, check, communication, held, loss_of, report, rows
from common import start

PER_RANK = 2


def parts(size):
    torch.manual_seed(1)
    return nn.Linear(WIDTH, PER_RANK * size), [nn.Linear(WIDTH, WIDTH)
                                               for _ in range(PER_RANK * size)]


def alone(size):
    gate, experts = parts(size)
    parameters = [p for e in experts for p in e.parameters()]
    optimizer = torch.optim.SGD(parameters, RATE)
    for number in range(STEPS):
        data, wanted = rows(number, ROWS * size)
        chosen = gate(data).argmax(-1)
        found = torch.stack([experts[e](row) for e, row in zip(chosen.tolist(), data)])
        optimizer.zero_grad()
        loss_of(found, wanted).backward()
        optimizer.step()
    return parameters


rank, size = start()
expected = [p.detach() for p in alone(size)][2 * PER_RANK * rank:2 * PER_RANK * (rank + 1)]
gate, everything = parts(size)
experts = everything[PER_RANK * rank:PER_RANK * (rank + 1)]
parameters = [p for e in experts for p in e.parameters()]
optimizer = torch.optim.SGD(parameters, RATE)


def through_experts(data):
    chosen = gate(data).argmax(-1)
    order = chosen.argsort(stable=True)
    counts = torch.bincount(chosen, minlength=PER_RANK * size)
    arriving = torch.empty_like(counts)  # of each rank, for each of this rank's experts
    dist.all_to_all_single(arriving, counts)
    sent = counts.view(size, PER_RANK).sum(1).tolist()
    taken = arriving.view(size, PER_RANK).sum(1).tolist()
    here = all_to_all_single_autograd(data[order], taken, sent, dist.group.WORLD)
    which = torch.cat([torch.full((n,), i % PER_RANK)
                       for i, n in enumerate(arriving.tolist())])
    done = torch.zeros_like(here)
    for i, expert in enumerate(experts):
        mine = (which == i).nonzero().squeeze(1)
        done = done.index_copy(0, mine, expert(here[mine]))
    back = all_to_all_single_autograd(done, sent, taken, dist.group.WORLD)
    return torch.empty_like(back).index_copy(0, order, back)


def step(number):
    data, wanted = (part.chunk(size)[rank] for part in rows(number, ROWS * size))
    optimizer.zero_grad()
    (loss_of(through_experts(data), wanted) / size).backward()
    for p in parameters:  # an expert that nobody has chosen
        p.grad = torch.zeros_like(p) if p.grad is None else p.grad
    optimizer.step()


for number in range(STEPS):
    step(number)
worst = check("experts", parameters, expected)
report("experts", worst, communication(lambda: step(STEPS)), held(parameters, optimizer))
