# SPDX-License-Identifier: Apache-2.0
"""
PyTorch ranks that find each other: the ranks of a task, or FORKS forks in each task, which share the memory
of the imports.

In the first generation rank 0 is killed once all have met. The second generation ends normally.
"""

import os
import signal

import torch
import torch.distributed as dist

FORKS = int(os.environ.get("FORKS", "1"))


def main(rank, world):
    dist.init_process_group("gloo", rank=rank, world_size=world)
    met = torch.ones(1)
    dist.all_reduce(met)
    assert int(met) == world
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        if rank == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        signal.pause()
    even = dist.new_group(list(range(0, world, 2)))  # uses the store once more
    if rank % 2 == 0:
        dist.all_reduce(met, group=even)
        assert int(met) == world * world // 2
    print(f"rank {rank} of {world} is through\n", end="", flush=True)
    dist.barrier()
    dist.destroy_process_group()


def fork(first, world):
    for rank in range(first, first + FORKS):
        if os.fork() == 0:
            main(rank, world)
            os._exit(0)
    for _ in range(FORKS):
        if os.wait()[1]:
            os._exit(1)


if FORKS > 1:
    fork(int(os.environ["RANK"]) * FORKS, int(os.environ["WORLD_SIZE"]) * FORKS)
else:
    main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
