"""Models that LightGBM trains over rota are, to the letter and rank by rank, those over its own
sockets.

    models.py LIBRARY        runs everything; exit status 77 where LightGBM is not there
"""
import ctypes
import hashlib
import importlib.util
import os
import socket
import subprocess
import sys
import tempfile

RANKS = 2
LEARNERS = ("data", "voting")  # reduce-scatter with block tables; also its votes by all-gather


def train(library, rank, learner, ports, job):
    import lightgbm
    import numpy
    from lightgbm.basic import _LIB

    random = numpy.random.default_rng(0)
    rows = random.normal(size=(4000, 20))
    target = rows[:, 0] * 2 + numpy.sin(rows[:, 1] * 3) + rows[:, 2] * rows[:, 3]
    settings = dict(objective="regression", tree_learner=learner, num_machines=RANKS,
                    pre_partition=True, num_leaves=31, num_threads=1, seed=1, deterministic=True,
                    force_col_wise=True, verbosity=-1)
    if library:
        rota = ctypes.CDLL(library)
        assert rota.shim_init(job.encode(), rank, RANKS, ctypes.c_size_t(0)) == 0
        functions = [ctypes.cast(f, ctypes.c_void_p)
                     for f in (rota.shim_reduce_scatter, rota.shim_allgather)]
        assert _LIB.LGBM_NetworkInitWithFunctions(ctypes.c_int(RANKS), ctypes.c_int(rank),
                                                  *functions) == 0
    else:
        settings.update(machines=",".join(f"127.0.0.1:{port}" for port in ports),
                        local_listen_port=ports[rank], time_out=2)
    model = lightgbm.train(settings, lightgbm.Dataset(rows[rank::RANKS], target[rank::RANKS]), 20)
    if library:
        calls = [ctypes.c_long.in_dll(rota, name).value for name in ("n_rs", "n_ag")]
        assert min(calls) > 0, f"LightGBM has not used rota's functions: {calls}"
        _LIB.LGBM_NetworkFree()
        rota.shim_fini()
    text = model.model_to_string().split("\nparameters:")[0]
    print(hashlib.sha256(text.encode()).hexdigest(), flush=True)


def free_ports():
    held = [socket.socket() for _ in range(RANKS)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


def models(library, learner, scratch):
    ports = ",".join(map(str, free_ports()))
    job = f"{os.path.basename(scratch)}-{learner}"
    ranks = [subprocess.Popen([sys.executable, __file__, library or "-", str(r), learner, ports, job],
                              stdout=subprocess.PIPE, text=True, cwd=scratch)
             for r in range(RANKS)]
    try:
        lines = [rank.communicate(timeout=120)[0].split() for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert all(rank.returncode == 0 for rank in ranks) and all(lines), (library, learner, lines)
    return [line[-1] for line in lines]


def main():
    if len(sys.argv) > 2:
        library, rank, learner, ports, job = sys.argv[1:]
        train("" if library == "-" else library, int(rank), learner,
              [int(p) for p in ports.split(",")], job)
        return 0
    if any(importlib.util.find_spec(name) is None for name in ("lightgbm", "numpy")):
        print("no LightGBM here")
        return 77
    with tempfile.TemporaryDirectory() as scratch:
        for learner in LEARNERS:
            over_sockets = models("", learner, scratch)
            over_rota = models(os.path.abspath(sys.argv[1]), learner, scratch)
            assert over_rota == over_sockets, f"{learner}: {over_rota}, over sockets {over_sockets}"
            print(f"{learner}: {' '.join(h[:16] for h in over_rota)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
