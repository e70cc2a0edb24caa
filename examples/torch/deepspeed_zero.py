"""DeepSpeed's ZeRO: stage 1 cuts the optimizer state, 2 the gradients too, 3 the parameters too.

    deepspeed_zero.py 1|2|3 [--offload]

--offload puts the optimizer state aside, and with stage 3 the parameters: to the memory of the CPU,
which here is the same memory, by the copies that an accelerator would need."""
import os
import sys

os.environ["DS_ACCELERATOR"] = "cpu"
os.environ.setdefault("DS_SKIP_CUDA_CHECK", "1")
import deepspeed
import torch
import torch.distributed as dist

from common import ROWS, STEPS, alone, check, communication, loss_of, perceptron, report, rows
from common import start

# DeepSpeed builds its own shared memory for small all-reduces at start, past the backend.
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
stage = int(sys.argv[1]) if len(sys.argv) > 1 else 3
zero = {"stage": stage, "stage3_param_persistence_threshold": 0}
if "--offload" in sys.argv:
    zero["offload_optimizer"] = {"device": "cpu"}
    if stage == 3:
        zero["offload_param"] = {"device": "cpu"}
rank, size = start()
reference = perceptron()
expected = alone(reference, ROWS * size, torch.optim.AdamW(reference.parameters(), 1e-2))
deepspeed.init_distributed(dist_backend=dist.get_backend(), dist_init_required=False)
model = perceptron()
engine, optimizer, *_ = deepspeed.initialize(
    model=model, model_parameters=model.parameters(),
    config={"train_micro_batch_size_per_gpu": ROWS,
            "optimizer": {"type": "AdamW",
                          "params": {"lr": 1e-2, "weight_decay": 1e-2, "torch_adam": True}},
            "zero_optimization": zero, "zero_force_ds_cpu_optimizer": False})


def step(number):
    data, wanted = (part.chunk(size)[rank] for part in rows(number, ROWS * size))
    engine.backward(loss_of(engine(data), wanted))
    engine.step()


for number in range(STEPS):
    step(number)
with deepspeed.zero.GatheredParameters(list(engine.module.parameters()), enabled=stage == 3):
    worst = check("zero", [p.detach().clone() for p in engine.module.parameters()], expected, 1e-4)
state = [v for s in optimizer.optimizer.state.values() for v in s.values() if torch.is_tensor(v)]
report(f"DeepSpeed ZeRO-{stage}" + " offload" * ("--offload" in sys.argv), worst, communication(lambda: step(STEPS)),
       sum(v.nbytes for v in state))
