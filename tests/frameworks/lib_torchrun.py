# SPDX-License-Identifier: Apache-2.0
"""
A script as users write it for torchrun: DDP on a small model, with a snapshot after each step. A restart
resumes from the newest one.

`torchrun --nnodes 2 --nproc-per-node 2 lib_torchrun.py SNAPSHOTS STEPS`. DIE: "<restart count> <rank> <step>,
..." says when a rank kills itself.
"""

import os
import re
import signal
import sys

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    def __init__(self, folder):
        self.folder = folder
        self.rank = int(os.environ["RANK"])
        self.local = int(os.environ["LOCAL_RANK"])
        torch.manual_seed(7)
        self.model = torch.nn.Linear(8, 1)
        self.at = max((int(name[5:]) for name in os.listdir(folder) if re.fullmatch(r"step-\d+", name)), default=0)
        if self.at:
            self.model.load_state_dict(torch.load(f"{folder}/step-{self.at}"))
        self.model = DDP(self.model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)

    def step(self):
        generator = torch.Generator().manual_seed(1000 * self.at + self.rank)
        x = torch.randn(16, 8, generator=generator)
        loss = torch.nn.functional.mse_loss(self.model(x), x.sum(dim=1, keepdim=True))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.at += 1
        if self.local == 0 and self.rank == 0:
            torch.save(self.model.module.state_dict(), f"{self.folder}/new")
            os.replace(f"{self.folder}/new", f"{self.folder}/step-{self.at}")


@record
def main():
    dist.init_process_group("gloo")
    die = [words.split() for words in os.environ.get("DIE", "").split(",")]
    again = os.environ["TORCHELASTIC_RESTART_COUNT"]
    trainer = Trainer(sys.argv[1])
    print(f"rank {dist.get_rank()} of {dist.get_world_size()} local {trainer.local} from {trainer.at} again {again}", flush=True)
    while trainer.at < int(sys.argv[2]):
        trainer.step()
        if [again, str(trainer.rank), str(trainer.at)] in die:
            os.kill(os.getpid(), signal.SIGKILL)
    odd = dist.new_group([1, 3])  # uses the store once more
    sums = torch.ones(1)
    if trainer.rank in (1, 3):
        dist.all_reduce(sums, group=odd)
    weights = [p.detach().flatten() for p in trainer.model.parameters()]
    print("sum", int(sums), "weights", " ".join(f"{v:.5f}" for v in torch.cat(weights).tolist()), flush=True)
    del trainer  # the model refers to the group, and the group needs the interpreter to end
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
