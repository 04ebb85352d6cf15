# SPDX-License-Identifier: Apache-2.0
"""Handwritten digits, trained by several processes as one (PyTorch DistributedDataParallel, gloo).

Each worker holds the same small network. Each step takes the next --batch images of one random order,
divides them among the workers, and adds up their gradients. tony sets the variables MASTER_ADDR,
MASTER_PORT, RANK and WORLD_SIZE, as torchrun does; so this file also runs by hand or with torchrun.

The order follows from the epoch, and the images of a step from its number alone. The number of
workers only decides which worker computes which part of the sum. So the job may be resized while it trains:
it goes on with the same steps, and the model differs only by the rounding of the sums.

Rank 0 saves a checkpoint every few steps. It writes the file under another name and then renames it,
so an incomplete file is never used. A restarted worker resumes from the newest one (TONY_CHECKPOINT).
With the same number of workers the model is the same, bit by bit, as without the interruption. The last
line of rank 0 is JSON with the accuracy on images held out.
"""
import argparse
import gc
import glob
import hashlib
import json
import os
import signal
import sys
import time

import numpy as np
import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel

# When the program is started by hand.
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../clients/python"))
import tony_task  # noqa: E402  progress and checkpoints; without tony it does nothing

HELD_OUT = 360  # of 1797 images
KEPT = 2  # checkpoints: the newest one, and the one before while the newest is being written


def data(seed):
    """Training and held-out images, the same split for every rank."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.RandomState(seed).permutation(len(labels))
    x = torch.tensor(images[order] / 16.0, dtype=torch.float32).reshape(-1, 1, 8, 8)
    y = torch.tensor(labels[order], dtype=torch.long)
    return (x[HELD_OUT:], y[HELD_OUT:]), (x[:HELD_OUT], y[:HELD_OUT])


def network():
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 4 * 4, 64), nn.ReLU(), nn.Linear(64, 10))


class Checkpoints:
    """step-<n>.pt in a directory. tony is told of each when it is complete."""

    def __init__(self, directory, task):
        self.directory, self.task = directory, task

    def save(self, step, model, optimizer):
        os.makedirs(self.directory, exist_ok=True)
        path = os.path.join(self.directory, f"step-{step:08d}.pt")
        with open(path + ".tmp", "wb") as f:
            torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, f)
            f.flush()
            os.fsync(f.fileno())
        os.replace(path + ".tmp", path)
        self.task.checkpoint(step, path)
        for old in sorted(glob.glob(os.path.join(self.directory, "step-*.pt")))[:-KEPT]:
            os.unlink(old)

    @staticmethod
    def load(model, optimizer):
        """
        The step to resume from; 0 without a checkpoint. All ranks read the same file, and none is written
        before all ranks are here.
        """
        path = tony_task.resume_path()
        # Newer checkpoints replaced it, and no process was left to report them.
        if path and not os.path.exists(path):
            path = max(glob.glob(os.path.join(os.path.dirname(path), "step-*.pt")), default=None)
        if not path:
            return 0
        state = torch.load(path, map_location="cpu")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        return state["step"]


def batch_of(step, n, args):
    """The images of one step (n images in total): the same for any number of workers."""
    per_epoch = -(-n // args.batch)
    epoch, at = divmod(step, per_epoch)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(args.seed + epoch + 1))
    return epoch, at == per_epoch - 1, order[at * args.batch:(at + 1) * args.batch]


def train(model, x, y, args, rank, world, task):
    """False: the program was told to stop."""
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    loss_of = nn.CrossEntropyLoss(reduction="sum")
    last = args.epochs * -(-len(y) // args.batch)
    checkpoints = Checkpoints(args.checkpoints, task)
    start = checkpoints.load(model.module, optimizer)
    if start and rank == 0:
        print(f"going on from step {start}", flush=True)
    asked = []  # SIGTERM, from tony or a cluster that wants the machine: save, then end
    signal.signal(signal.SIGTERM, lambda *_: asked.append(True))

    total = torch.zeros(1)
    for step in range(start, last):
        epoch, epoch_ends, pick = batch_of(step, len(y), args)
        mine = pick[rank::world]  # empty if there are more workers than images: the sum of this part is 0
        optimizer.zero_grad()
        loss = loss_of(model(x[mine]), y[mine]) / len(pick)
        (loss * world).backward()  # DistributedDataParallel divides by the number of workers; a sum is wanted
        optimizer.step()
        total += loss.detach() * len(pick)
        task.progress(step + 1, last)

        stop = torch.tensor(float(bool(asked) or task.should_stop()))
        dist.all_reduce(stop)  # all workers stop at the same step
        if rank == 0 and (stop or (step + 1) % args.save_every == 0):
            checkpoints.save(step + 1, model.module, optimizer)
        if stop:
            return False
        if epoch_ends:
            dist.all_reduce(total)
            if rank == 0:
                print(f"epoch {epoch + 1:2d}  loss {total.item() / len(y):.4f}", flush=True)
            total.zero_()
    return True


def accuracy(model, x, y):
    with torch.no_grad():
        return (model(x).argmax(1) == y).float().mean().item()


def digest(model):
    """The digest of two models is equal if they are equal in each bit."""
    h = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        h.update(name.encode() + value.numpy().tobytes())
    return h.hexdigest()[:16]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch", type=int, default=64, help="images of one step, of all workers together")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save-every", type=int, default=25, help="steps between two checkpoints")
    parser.add_argument("--checkpoints", metavar="DIR",
                        default=os.path.join(os.environ.get("TONY_LOG_DIR", "."), "checkpoints"),
                        help="on a cluster it must be one that every node can read")
    args = parser.parse_args()

    started = time.monotonic()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    dist.init_process_group("gloo", init_method="env://")
    rank, world = dist.get_rank(), dist.get_world_size()
    print(f"rank {rank} of {world}, process {os.getpid()}", flush=True)

    torch.manual_seed(args.seed)
    (x, y), (x_test, y_test) = data(args.seed)
    model = DistributedDataParallel(network())
    done = train(model, x, y, args, rank, world, tony_task.connect())
    if rank == 0 and done:
        print(json.dumps({"accuracy": round(accuracy(model.module, x_test, y_test), 4),
                          "held_out_images": HELD_OUT, "workers": world, "epochs": args.epochs,
                          "model": digest(model.module), "seconds": round(time.monotonic() - started, 1)}), flush=True)
    dist.barrier()  # no rank leaves while others still communicate
    # Delete the model before the group: PyTorch 1.13 hangs sometimes if the model is the last to refer to the
    # group.
    del model
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
