"""Three ways at once by a device mesh: a pipeline of two stages, each cut by columns and rows over
two ranks, and replicas of it all. 8 ranks (2 x 2 x 2) or 4 (one replica)."""
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
import torch.distributed as dist

from common import ROWS, RATE, STEPS, alone, check, communication, held, loss_of, perceptron, report
from common import rows, start

rank, size = start()
if size % 4 != 0:
    raise SystemExit("grid.py takes a multiple of 4 ranks")
replicas = size // 4
mesh = init_device_mesh("cpu", (replicas, 2, 2), mesh_dim_names=("data", "pipe", "tensor"))
replica, place = mesh.get_local_rank("data"), mesh.get_local_rank("pipe")
expected = alone(perceptron(4), ROWS * replicas)
initial = perceptron(4)
module = initial[4 * place:4 * place + 4]
first, _, second, _ = module._modules  # names: a slice keeps those of the whole
parallelize_module(module, mesh["tensor"],
                   {first: ColwiseParallel(), second: RowwiseParallel()})
stage = PipelineStage(module, place, 2, torch.device("cpu"), group=mesh.get_group("pipe"))
schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=loss_of)
parameters = list(module.parameters())
optimizer = torch.optim.SGD(parameters, RATE, foreach=False)


def step(number):
    data, wanted = (part.chunk(replicas)[replica] for part in rows(number, ROWS * replicas))
    optimizer.zero_grad()
    schedule.step(*((data,) if place == 0 else ()), **({"target": wanted} if place == 1 else {}))
    for p in parameters:
        local = p.grad.to_local()
        dist.all_reduce(local, dist.ReduceOp.AVG, group=mesh.get_group("data"))
    optimizer.step()


for number in range(STEPS):
    step(number)
worst = check("grid", [p.full_tensor() for p in parameters], expected[4 * place:4 * place + 4])
report("data x pipeline x tensor", worst, communication(lambda: step(STEPS)),
       held(parameters, optimizer))
