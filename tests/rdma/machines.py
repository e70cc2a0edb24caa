#!/usr/bin/env python3
"""machines.py PROGRAM TRANSPORT SEED cut|idle-cut|kill: one half of a job of four ranks on two
virtual machines, whose half this is by VM_RANK, and what its survivors say when the wire between
the machines drops everything, or rank 3 is killed. PROGRAM is campaign_rank; how a job is read and
judged is that of script/faults. Exit status 0: nobody hung, and all names were right."""

import importlib.machinery
import importlib.util
import os
import random
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PATH = os.path.join(HERE, "..", "..", "script", "faults")
LOADER = importlib.machinery.SourceFileLoader("faults", PATH)
FAULTS = importlib.util.module_from_spec(importlib.util.spec_from_loader("faults", LOADER))
sys.dont_write_bytecode = True
LOADER.exec_module(FAULTS)

SLOW = float(os.environ.get("SLOW", "10"))
PORTS = {"cut": 7201, "idle-cut": 7202, "kill": 7203}
MINE = int(os.environ["VM_RANK"])
VICTIM = 3


class Half(FAULTS.Job):
    """Ranks 0 and 1 on machine 0, ranks 2 and 3 on machine 1."""

    def __init__(self, program, transport, seed, kind):
        self.n, self.side, self.kind = 4, [0, 0, 1, 1], kind
        self.here = [r for r in range(self.n) if self.side[r] == MINE]
        self.events = [[] for _ in range(self.n)]
        self.buffers = [b""] * self.n
        self.stderr = tempfile.TemporaryFile()
        self.selector = FAULTS.selectors.DefaultSelector()
        self.ranks = []
        timeout_ms = int(1000 * SLOW) if kind != "kill" else FAULTS.LONG_TIMEOUT_MS
        for r in self.here:
            env = dict(os.environ, ROTA_RANK=str(r), ROTA_SIZE="4", ROTA_LOG="error",
                       ROTA_ROOT=f"10.77.0.1:{PORTS[kind]}", ROTA_TRANSPORT=transport,
                       ROTA_JOB_KEY="the key of two machines")
            process = subprocess.Popen([program, seed, str(timeout_ms), str(1 << 20)], env=env,
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                       stderr=self.stderr, start_new_session=True)
            os.set_blocking(process.stdout.fileno(), False)
            self.selector.register(process.stdout, FAULTS.selectors.EVENT_READ, r)
            self.ranks.append(process)


def interface():
    """The one that joins the machines."""
    return next(name for name in sorted(os.listdir("/sys/class/net")) if name != "lo")


def cut():
    subprocess.run(["tc", "qdisc", "replace", "dev", interface(), "root", "netem", "loss", "100%"],
                   check=True)


def mend():
    subprocess.run(["tc", "qdisc", "del", "dev", interface(), "root"], stderr=subprocess.DEVNULL)


def inject(job, rng):
    """Breaks what is to be broken; returns the ranks touched and the survivors here."""
    if job.kind == "idle-cut":
        if MINE == 0:
            job.ranks[0].stdin.write(b"%d" % min(9, 1 + SLOW // 2))
            job.ranks[0].stdin.flush()
        if not job.read(time.monotonic() + 10 * SLOW, {"pausing", "failed"}, job.here):
            raise FAULTS.Failed("the ranks do not pause")
    else:
        # The machines have one clock: both come to about the same instant.
        time.sleep(4 - time.time() % 4 + rng.uniform(0, 1))
    if job.kind == "kill":
        if MINE == 1:
            os.kill(job.ranks[VICTIM - 2].pid, FAULTS.signal.SIGKILL)
        return {VICTIM}, [r for r in job.here if r != VICTIM]
    cut()
    return set(range(job.n)), job.here


def judge(job, touched, survivors):
    kind = "kills" if job.kind == "kill" else "drops"
    until = time.monotonic() + 5 * SLOW
    if not job.read(until, {"failed"}, survivors):
        raise FAULTS.Failed("hang: " + str([r for r in survivors if not job.event(r, "failed")]))
    for r in survivors:
        if job.event(r, "wrong"):
            raise FAULTS.Failed(f"rank {r}: a wrong result")
        event = job.event(r, "failed")
        # An adapter reports its wire before the ranks have lost each other: then both ends of the
        # connection are named, one on each side.
        broke = kind == "drops" and "the connection of rank" in event["message"]
        FAULTS.judge(job, "cuts" if broke else kind, touched, event, r)
        print(f"rank {r}: {job.event(r, 'failed')['message']}")
    if not job.read(time.monotonic() + 3 * SLOW, {"destroyed"}, survivors):
        raise FAULTS.Failed("destroy takes too long")


def main():
    program, transport, seed, kind = sys.argv[1:]
    job = Half(program, transport, seed, kind)
    try:
        if not job.read(time.monotonic() + 15 * SLOW, {"ready"}, job.here):
            raise FAULTS.Failed("the job did not start: " + job.complaints()[-500:])
        judge(job, *inject(job, random.Random(seed)))
    finally:
        mend()
        job.end()


if __name__ == "__main__":
    try:
        main()
    except FAULTS.Failed as failure:
        sys.exit(f"FAILED: {failure}")
