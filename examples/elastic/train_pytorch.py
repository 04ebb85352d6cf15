# SPDX-License-Identifier: Apache-2.0
"""
PyTorch DistributedDataParallel that can be resized. Rank 0 saves; each rank loads what rank 0 saved. The lines
marked with "# resize" are all that a fixed-size program lacks.
"""
import argparse
import gc
import os

import torch
import torch.distributed as dist
from elastic import CLASSES, Sampler, data, save, tony_task  # resize
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=300)
parser.add_argument("--batch", type=int, default=40, help="samples of one step, of all ranks together")
parser.add_argument("--save-every", type=int, default=50, help="steps between two checkpoints")
parser.add_argument("--backend", help="of torch.distributed (default: nccl if this rank has a GPU, else gloo)")
parser.add_argument("--say-samples", action="store_true", help="print the samples that this rank takes in each step")
args = parser.parse_args()
device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if torch.cuda.is_available() else torch.device("cpu")


def train(model, rank, world, x, y):
    """False: the program was asked to stop."""
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    loss_of = nn.CrossEntropyLoss(reduction="sum")
    task = tony_task.connect()  # resize
    start = 0
    if tony_task.resume_path():  # resize
        state = torch.load(tony_task.resume_path(), map_location=device)
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        start = state["step"]
    sampler = Sampler(len(y), args.batch, args.epochs, rank, world, start)  # resize
    print(f"rank {rank} of {world} from step {start}", flush=True)
    samples = TensorDataset(x, y, torch.arange(len(y)))
    for step, (some, labels, numbers) in enumerate(DataLoader(samples, batch_sampler=sampler), start):
        optimizer.zero_grad()
        # The mean over the batch of all ranks. DistributedDataParallel divides by the number of ranks.
        (loss_of(model(some.to(device)), labels.to(device)) * world / len(sampler.step(step))).backward()
        optimizer.step()
        if args.say_samples:
            print("samples", step, *numbers.tolist(), flush=True)
        task.progress(step + 1, sampler.last)
        stop = torch.tensor(float(task.should_stop()), device=device)  # resize
        dist.all_reduce(stop)  # resize: all ranks stop after the same step
        if rank == 0 and (stop or (step + 1) % args.save_every == 0):  # resize
            state = {"step": step + 1, "model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
            task.checkpoint(step + 1, save(step + 1, lambda f: torch.save(state, f)))
        if stop:  # resize
            return False
    return True


def main():
    torch.set_num_threads(1)
    dist.init_process_group(args.backend or ("nccl" if device.type == "cuda" else "gloo"))
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, CLASSES)).to(device))
    (x, y), (x_test, y_test) = ([torch.tensor(a) for a in part] for part in data())
    if train(model, rank, world, x, y) and rank == 0:
        with torch.no_grad():
            right = model.module(x_test.to(device)).cpu().argmax(1) == y_test
            loss = nn.functional.cross_entropy(model.module(x.to(device)).cpu(), y)
        print(f"accuracy {right.float().mean():.4f} loss {loss:.6f}", flush=True)
    dist.barrier()
    del model  # PyTorch 1.13 may hang if the model lives longer than the group
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
