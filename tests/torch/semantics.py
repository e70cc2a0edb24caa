"""What torch.distributed promises, over rota: `torchrun --nproc_per_node N semantics.py [NAME...]`.

Every function whose name begins with `test_` runs on all ranks of a fresh job; values are asserted.
"""
import datetime
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _coalescing_manager

import rota.torch

torch.set_num_threads(1)


def equal(found, expected):
    assert torch.equal(found, expected), f"rank {rank}: found {found}, expected {expected}"


def raises(text, call):
    begun = time.time()
    try:
        call()
    except Exception as error:
        assert text in str(error), f"rank {rank}: {text!r} is not in {error}"
        return time.time() - begun
    raise AssertionError(f"rank {rank}: no error with {text!r}")


def test_types_and_operators():
    types = [torch.float, torch.double, torch.half, torch.bfloat16, torch.int, torch.long,
             torch.int8, torch.uint8, torch.int16]
    for dtype in types:
        for op, of in ((dist.ReduceOp.SUM, sum), (dist.ReduceOp.MAX, max), (dist.ReduceOp.MIN, min)):
            data = torch.full((5,), rank + 1).to(dtype)
            dist.all_reduce(data, op)
            equal(data, torch.full((5,), of(range(1, size + 1))).to(dtype))
    for op, expected in ((dist.ReduceOp.BAND, 4), (dist.ReduceOp.BOR, 7 if size > 1 else 4)):
        data = torch.tensor([4 | (3 if rank else 0)])
        dist.all_reduce(data, op)
        equal(data, torch.tensor([expected]))
    data = torch.full((3,), complex(1, rank))
    dist.all_reduce(data)
    equal(data, torch.full((3,), complex(size, sum(range(size)))))
    data = torch.tensor([rank == 0, True, False])
    dist.all_reduce(data, dist.ReduceOp.MAX)
    equal(data, torch.tensor([True, True, False]))
    data = torch.full((4,), float(rank))
    dist.all_reduce(data, dist.ReduceOp.AVG)
    equal(data, torch.full((4,), sum(range(size)) / size))
    data = torch.ones(4, dtype=torch.bfloat16)
    dist.all_reduce(data, dist._make_nccl_premul_sum(0.5))
    equal(data, torch.full((4,), size / 2, dtype=torch.bfloat16))


def test_narrow_sums_are_rounded_once():
    # 256 + 1 + 1 is 258 in bfloat16 only if the sum is not rounded in between.
    data = torch.tensor([256.0 if rank == 0 else 2.0 / max(size - 1, 1)], dtype=torch.bfloat16)
    dist.all_reduce(data)
    equal(data, torch.tensor([258.0 if size > 1 else 256.0], dtype=torch.bfloat16))


def test_bfloat16_buckets_of_ddp_sum_in_float32():
    # DDP divides each rank's gradient by the number of ranks: 256, 1, 1, 1, whose sum in float32 is
    # rounded to 260; one that is rounded after each rank is 256 or 258.
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
    expected = torch.full((512, 512), 256.0 + size - 1).to(torch.bfloat16)
    for dtype, hook in ((torch.bfloat16, None), (torch.float, bf16_compress_hook)):
        model = torch.nn.parallel.DistributedDataParallel(
            torch.nn.Linear(512, 512, bias=False, dtype=dtype))
        if hook:
            model.register_comm_hook(None, hook)
        for _ in range(2):  # buckets are made again after the first step
            model.zero_grad()
            data = torch.full((1, 512), (256.0 if rank == 0 else 1.0) * size, dtype=dtype)
            model(data).sum().backward()
            equal(model.module.weight.grad, expected.to(dtype))


def test_strided_tensors():
    data = torch.arange(12.).view(3, 4).t() + rank
    expected = sum(torch.arange(12.).view(3, 4).t() + r for r in range(size))
    dist.all_reduce(data)
    equal(data, expected)
    work = dist.all_reduce(data, async_op=True)
    work.wait()
    equal(data, expected * size)
    out = torch.empty(4, 3 * size).t()
    dist.all_gather_into_tensor(out, torch.full((3, 4), float(rank)))
    equal(out, torch.cat([torch.full((3, 4), float(r)) for r in range(size)]))
    lists = [torch.empty(2, 6)[:, ::2] for _ in range(size)]
    dist.all_gather(lists, torch.full((2, 3), float(rank)))
    for r in range(size):
        equal(lists[r], torch.full((2, 3), float(r)))


def test_uneven_lists():
    outs = [torch.empty(r + 1) for r in range(size)]
    dist.all_gather(outs, torch.full((rank + 1,), float(rank)))
    for r in range(size):
        equal(outs[r], torch.full((r + 1,), float(r)))
    got = [torch.empty(2 * r + rank) for r in range(size)]
    dist.all_to_all(got, [torch.full((2 * rank + r,), float(rank)) for r in range(size)])
    for r in range(size):
        equal(got[r], torch.full((2 * r + rank,), float(r)))


def test_futures_and_their_callbacks():
    # The call-back waits for another operation of the same group, as PowerSGD's does.
    def nested(future):
        again = dist.all_reduce(future.value()[0].clone(), async_op=True)
        return again.get_future().wait()[0]

    futures = []
    for i in range(6):
        work = dist.all_reduce(torch.full((3,), float(i)), async_op=True)
        futures.append(work.get_future().then(nested))
    for i, future in enumerate(futures):
        equal(future.wait(), torch.full((3,), float(i * size * size)))
    work = dist.all_reduce(torch.ones(2), async_op=True)
    work.wait()
    future = work.get_future()
    assert future.done()
    equal(future.value()[0], torch.full((2,), float(size)))


def test_a_callback_waits_for_a_later_operation():
    first = dist.all_reduce(torch.ones(1), async_op=True).get_future()
    second = dist.all_reduce(torch.ones(1), async_op=True).get_future()
    done = first.then(lambda _: second.wait()[0])
    equal(done.wait(), torch.tensor([float(size)]))


def test_coalescing():
    data = [torch.ones(i + 1) for i in range(4)]
    with _coalescing_manager(device=torch.device("cpu"), async_ops=True) as manager:
        for tensor in data:
            dist.all_reduce(tensor)
    manager.wait()
    for i, tensor in enumerate(data):
        equal(tensor, torch.full((i + 1,), float(size)))
    outs = [torch.empty(size, 2) for _ in range(3)]
    with _coalescing_manager():
        for i, out in enumerate(outs):
            dist.all_gather_into_tensor(out, torch.full((2,), float(rank + i)))
    for i, out in enumerate(outs):
        equal(out, torch.stack([torch.full((2,), float(r + i)) for r in range(size)]))


def test_messages():
    right, left = (rank + 1) % size, (rank - 1) % size
    ops = [dist.P2POp(dist.isend, torch.full((3,), float(rank)), right),
           dist.P2POp(dist.irecv, torch.empty(3), left)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    equal(ops[1].tensor, torch.full((3,), float(left)))
    # Beside a collective that has been started and that the others join later.
    work = dist.barrier(async_op=True) if rank == 0 else None
    if rank == 0:
        dist.send(torch.ones(1), right, tag=3) if size > 1 else None
    elif rank == 1:
        data = torch.empty(1)
        dist.recv(data, 0, tag=3)
        equal(data, torch.ones(1))
    (work or dist.barrier(async_op=True)).wait()
    if rank == 0:
        seen = []
        for _ in range(size - 1):
            data = torch.empty(1)
            seen.append(dist.recv(data, tag=9))
            equal(data, torch.tensor([float(seen[-1])]))
        assert sorted(seen) == list(range(1, size)), seen
    else:
        dist.send(torch.tensor([float(rank)]), 0, tag=9)


def test_a_message_of_another_length():
    if rank == 0:
        raises("expected 5", lambda: dist.recv(torch.empty(5), 1))
    elif rank == 1:
        dist.send(torch.ones(3), 0)


def test_sparse():
    indices = torch.tensor([[0, rank + 1]])
    data = torch.sparse_coo_tensor(indices, torch.ones(2), (size + 2,))
    dist.all_reduce(data)
    expected = torch.zeros(size + 2)
    expected[0] = size
    expected[1:size + 1] = 1
    equal(data.to_dense(), expected)


def test_split():
    low = dist.split_group(split_ranks=[[0], list(range(1, size))] if size > 1 else [[0]])
    data = torch.tensor([float(rank)])
    dist.all_reduce(data, group=low)
    equal(data, torch.tensor([0.0 if rank == 0 else float(sum(range(1, size)))]))
    dist.destroy_process_group(low)
    equal_after = torch.ones(1)
    dist.all_reduce(equal_after)
    equal(equal_after, torch.tensor([float(size)]))


def test_new_groups_again_and_again():
    for i in range(5):
        group = dist.new_group(list(range(size)))
        data = torch.full((10,), float(i))
        dist.all_reduce(data, group=group)
        equal(data, torch.full((10,), float(i * size)))
        dist.destroy_process_group(group)


def test_a_wait_times_out_and_the_operation_goes_on():
    if rank == 0:
        work = dist.all_reduce(torch.ones(1), async_op=True)
        took = raises("Timed out waiting 300ms",
                      lambda: work.wait(datetime.timedelta(milliseconds=300)))
        assert took < 2, took
        work.wait()
    else:
        time.sleep(1)
        dist.all_reduce(torch.ones(1))


def test_monitored_barrier_names_the_missing():
    dist.monitored_barrier(timeout=datetime.timedelta(seconds=20))
    if rank == 0:
        took = raises(f"Rank{'s' if size > 2 else ''} "
                      + ", ".join(str(r) for r in range(1, size)) + " failed to pass",
                      lambda: dist.monitored_barrier(timeout=datetime.timedelta(milliseconds=400),
                                                     wait_all_ranks=True))
        assert took < 3, took
    dist.barrier()  # the group goes on
    if rank != size - 1:
        raises(f"Rank {size - 1} failed" if rank == 0 else f"ranks {size - 1} have not reached",
               lambda: dist.monitored_barrier(timeout=datetime.timedelta(milliseconds=500)))
    dist.barrier()


def test_memory_that_peers_read():
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    data = backend.allocate_tensor(1 << 20, dtype=torch.float, device=torch.device("cpu"))
    data.fill_(rank + 1.0)
    dist.all_reduce(data)
    equal(data, torch.full((1 << 20,), float(sum(range(1, size + 1)))))


def heap_ranges():
    with open("/proc/self/maps") as maps:
        spans = [line.split()[0].split("-") for line in maps if "memfd:rota-heap" in line
                 and line.split()[1].startswith("rw")]
    return [(int(first, 16), int(last, 16)) for first, last in spans]


def test_buckets_of_ddp_are_read_in_place():
    heap = heap_ranges()
    if not heap:
        return  # no shared memory
    spots = []

    def hook(_, bucket):
        spots.append(bucket.buffer().data_ptr())
        work = dist.all_reduce(bucket.buffer(), dist.ReduceOp.AVG, async_op=True)
        return work.get_future().then(lambda future: future.value()[0])

    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(512, 512))
    model.register_comm_hook(None, hook)
    for _ in range(3):  # buckets are made again after the first step
        model.zero_grad()
        model(torch.full((2, 512), rank + 1.0)).sum().backward()
    assert len(spots) >= 3 and all(any(a <= s < b for a, b in heap) for s in spots), (spots, heap)
    equal(model.module.weight.grad, torch.full((512, 512), float(size + 1)))


def test_reduction_with_a_factor_while_coalescing():
    data = [torch.full((3,), rank + 1.0) for _ in range(2)]
    with _coalescing_manager(device=torch.device("cpu")):
        for tensor in data:
            dist.all_reduce(tensor, dist._make_nccl_premul_sum(2.0))
    for tensor in data:
        equal(tensor, torch.full((3,), float(size * (size + 1))))
    raises("Cannot use ReduceOp", lambda: dist.all_reduce_coalesced(
        [torch.ones(2), torch.ones(2)], dist.ReduceOp.BAND))
    dist.barrier()  # the group goes on


def test_the_end_while_tensors_live():
    """Memory of a group stays for its tensors, and its end disturbs nobody's last operation."""
    kept = []
    for i in range(10):
        group = dist.new_group(list(range(size)))
        backend = group._get_backend(torch.device("cpu"))
        data = backend.allocate_tensor(1000, dtype=torch.float, device=torch.device("cpu"))
        data.fill_(i)
        dist.all_reduce(data, group=group)
        dist.destroy_process_group(group)
        kept.append(data)
    for i, data in enumerate(kept):
        equal(data, torch.full((1000,), float(i * size)))


# -- these end the group, so each has a job of its own ---------------------------------------------

def test_alone_timeout():
    if rank == 0:
        took = raises(" Timed out waiting 1000ms ",
                      lambda: dist.barrier(timeout=datetime.timedelta(seconds=1)))
        assert 0.9 < took < 3, took
    else:
        time.sleep(2)


def test_alone_abort():
    if rank == 0:
        work = dist.all_reduce(torch.ones(1), async_op=True)
        time.sleep(0.3)
        dist.distributed_c10d._abort_process_group()
        assert raises("abort", work.wait) < 2
        os._exit(0)
    time.sleep(1.5)
    os._exit(0)


def test_alone_death():
    """A rank is killed while DDP trains: the others learn within a second who and in what."""
    store = dist.distributed_c10d._get_default_store()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
    said = None
    try:
        for step in range(1000):
            if step == 5 and rank == size - 1:
                store.set("killed", str(time.time()))
                os.kill(os.getpid(), 9)
            model(torch.randn(8, 64)).sum().backward()
    except Exception as error:
        said, at = str(error), time.time()
    assert said and f"rank {size - 1}" in said and "all_reduce" in said, said
    took = at - float(store.get("killed"))
    limit = max(1, os.getloadavg()[0] / os.cpu_count())  # longer where ranks hardly run
    assert took < limit, f"rank {rank} learned it after {took} s: {said}"
    raises("all_reduce", lambda: dist.all_reduce(torch.ones(1)))
    os._exit(0)


if __name__ == "__main__":
    dist.init_process_group("rota", timeout=datetime.timedelta(seconds=60))
    rank, size = dist.get_rank(), dist.get_world_size()
    names = sys.argv[1:] or [n for n in list(globals())
                             if n.startswith("test_") and not n.startswith("test_alone_")]
    for name in names:
        globals()[name]()
        if rank == 0:
            print("passed", name, flush=True)
    dist.destroy_process_group()
    print("done", flush=True)
