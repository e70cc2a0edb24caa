"""Data-parallel gradient boosting with LightGBM over rota.

    python train.py LIBRARY RANK RANKS [ID]

Each rank has every RANKS-th row. All ranks end with the same model, whose error is printed beside
that of a model trained by one process on all rows.
"""
import ctypes
import sys

import lightgbm
import numpy
from lightgbm.basic import _LIB

library, rank, ranks = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
job = sys.argv[4] if len(sys.argv) > 4 else "lightgbm-example"

random = numpy.random.default_rng(0)
rows = random.normal(size=(8000, 20))
target = rows[:, 0] * 2 + numpy.sin(rows[:, 1] * 3) + rows[:, 2] * rows[:, 3]
settings = dict(objective="regression", num_leaves=31, num_threads=1, deterministic=True,
                force_col_wise=True, verbosity=-1)


def error(model):
    return float(((model.predict(rows) - target) ** 2).mean())


alone = lightgbm.train(settings, lightgbm.Dataset(rows, target), 30)

rota = ctypes.CDLL(library)
if rota.shim_init(job.encode(), rank, ranks, ctypes.c_size_t(0)) != 0:
    sys.exit(1)
functions = [ctypes.cast(f, ctypes.c_void_p) for f in (rota.shim_reduce_scatter,
                                                       rota.shim_allgather)]
if _LIB.LGBM_NetworkInitWithFunctions(ctypes.c_int(ranks), ctypes.c_int(rank), *functions) != 0:
    sys.exit("LightGBM refused the functions")
together = lightgbm.train(
    dict(settings, tree_learner="data", num_machines=ranks, pre_partition=True),
    lightgbm.Dataset(rows[rank::ranks], target[rank::ranks]), 30)
moved = sum(ctypes.c_long.in_dll(rota, name).value for name in ("b_rs", "b_ag"))
_LIB.LGBM_NetworkFree()
rota.shim_fini()

print(f"rank {rank}: squared error {error(together):.4f}, of one process {error(alone):.4f}; "
      f"{moved / 1e6:.1f} MB reduced and gathered", flush=True)
if abs(error(together) - error(alone)) > 0.1 * error(alone) + 0.01:
    sys.exit("the model differs from that of one process by more than the split of the rows does")
