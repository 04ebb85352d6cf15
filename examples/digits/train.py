"""Handwritten digits, trained by several processes as one (PyTorch DistributedDataParallel, gloo).

Each worker holds the same small network and sees its own share of the images; after each step the
workers average their gradients. Who they are comes from the environment that tony sets
(MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE), so this file knows nothing of tony and also runs by
hand or with torchrun. The last line of rank 0 is JSON with the accuracy on images held out.
"""
import argparse
import json
import os
import time

import numpy as np
import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel

HELD_OUT = 360  # of 1797 images


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


def train(model, x, y, args, rank, world):
    """All ranks walk one common random order and take every world-th image of it."""
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    loss_of = nn.CrossEntropyLoss()
    share = len(y) // world  # equal shares: every rank takes part in every step
    for epoch in range(1, args.epochs + 1):
        order = torch.randperm(len(y), generator=torch.Generator().manual_seed(args.seed + epoch))
        mine = order[rank::world][:share]
        total = torch.zeros(1)
        for at in range(0, share, args.batch):
            pick = mine[at:at + args.batch]
            optimizer.zero_grad()
            loss = loss_of(model(x[pick]), y[pick])
            loss.backward()
            optimizer.step()
            total += loss.detach() * len(pick)
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch:2d}  loss {total.item() / (share * world):.4f}", flush=True)


def accuracy(model, x, y):
    with torch.no_grad():
        return (model(x).argmax(1) == y).float().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch", type=int, default=32, help="images of one worker in one step")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()

    started = time.monotonic()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    dist.init_process_group("gloo", init_method="env://")
    rank, world = dist.get_rank(), dist.get_world_size()
    print(f"rank {rank} of {world}, process {os.getpid()}", flush=True)

    torch.manual_seed(args.seed)
    (x, y), (x_test, y_test) = data(args.seed)
    model = DistributedDataParallel(network())
    train(model, x, y, args, rank, world)
    if rank == 0:
        print(json.dumps({"accuracy": round(accuracy(model.module, x_test, y_test), 4),
                          "held_out_images": HELD_OUT, "workers": world, "epochs": args.epochs,
                          "seconds": round(time.monotonic() - started, 1)}), flush=True)
    dist.barrier()  # nobody leaves while others still want to talk
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
