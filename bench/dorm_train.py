#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""
A training of bench/dorm --live: a small network learns handwritten digits on any number of workers, and can be resized.

A worker stands for an accelerator that computes RATE samples in a second. So a step of BATCH samples takes n workers
BATCH / RATE / n seconds. The computation itself takes less than a millisecond. Rank 0 waits for the rest of this time
before it ends the step. Many workers can thus share a few cores, and n workers are n times as fast as one.

Each rank computes the gradient of its samples and sends it to rank 0. Rank 0 sends the sum to all ranks. The ranks then
have the same network. Rank 0 saves checkpoints, and says on stdout, as JSON, when its steps began and ended, in ms since
1970:
  {"began": MS, "step": FIRST, "workers": N}   all ranks are connected, and the step FIRST begins
  {"ended": MS, "step": NEXT}                  the step before NEXT is done; if tony has asked for it, it is saved
  {"accuracy": PART, "loss": MEAN}             on the held out images, after the last step

With --alone the program trains without tony and without waiting: the result of an undisturbed run.
"""
import argparse
import fcntl
import json
import os
import pathlib
import socket
import sys
import time

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):  # before numpy is loaded
    os.environ[name] = "1"
ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path += [str(ROOT / "examples/elastic"), str(ROOT / "clients/python")]
import numpy as np  # noqa: E402
from elastic import Sampler, save, tony_task  # noqa: E402

BATCH = 32  # samples of one step, of all workers together
RATE = 32.0  # samples that one worker computes in a second
HELD_OUT = 360
SIZES = ((64, 32), (32,), (32, 10), (10,))  # weights and biases of the network
LENGTHS = [int(np.prod(size)) for size in SIZES]
LEARNING_RATE, MOMENTUM = 0.1, 0.9
CONNECT_S = 60


def wall_ms():
    return time.time_ns() // 1000000


class Network:
    """All parameters in one array."""

    def __init__(self, seed):
        rng = np.random.RandomState(seed)
        self.all = np.concatenate([(rng.normal(size=size) / np.sqrt(size[0]) if len(size) > 1 else np.zeros(size)).ravel() for size in SIZES])
        self.momentum = np.zeros_like(self.all)

    def parts(self, array):
        ends = np.cumsum(LENGTHS)
        return [array[end - n:end].reshape(size) for size, n, end in zip(SIZES, LENGTHS, ends)]

    def forward(self, x):
        """The hidden layer, and the logarithms of the probabilities."""
        w1, b1, w2, b2 = self.parts(self.all)
        hidden = np.maximum(x @ w1 + b1, 0)
        scores = hidden @ w2 + b2
        scores -= scores.max(1, keepdims=True)
        return hidden, scores - np.log(np.exp(scores).sum(1, keepdims=True))

    def gradient(self, x, y):
        """The gradient of the sum of the losses of these samples."""
        hidden, logs = self.forward(x)
        out = np.empty_like(self.all)
        w1, b1, w2, b2 = self.parts(out)
        d = np.exp(logs)
        d[np.arange(len(y)), y] -= 1
        w2[:], b2[:] = hidden.T @ d, d.sum(0)
        d = (d @ self.parts(self.all)[2].T) * (hidden > 0)
        w1[:], b1[:] = x.T @ d, d.sum(0)
        return out

    def update(self, gradient, n):
        self.momentum *= MOMENTUM
        self.momentum -= LEARNING_RATE * gradient / n
        self.all += self.momentum

    def result(self, x, y):
        logs = self.forward(x)[1]
        return {"accuracy": round(float((logs.argmax(1) == y).mean()), 6), "loss": round(float(-logs[np.arange(len(y)), y].mean()), 6)}


class Alone:
    """Takes the place of Ranks for a single process: there are no other ranks, and no step waits."""

    rank, world = 0, 1

    def total(self, gradient, due, task):
        return gradient, False


class Ranks:
    """The connections between rank 0 and the others."""

    def __init__(self):
        self.rank, self.world = int(os.environ["TONY_RANK"]), int(os.environ["TONY_WORLD_SIZE"])
        self.peers = [None] * self.world  # rank 0: its connection to each other rank
        self.buffer = np.empty(sum(LENGTHS) + 1)  # the last number: stop
        if self.rank == 0:
            self.listen(os.environ["TONY_HOST"], int(os.environ["TONY_PORT"]))
        else:
            self.root = self.connect(os.environ["TONY_MASTER_ADDR"], int(os.environ["TONY_MASTER_PORT"]))

    def listen(self, host, port):
        with socket.create_server((host, port), backlog=self.world) as server:
            server.settimeout(CONNECT_S)
            for _ in range(self.world - 1):
                peer = server.accept()[0]
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.peers[int.from_bytes(peer.recv(4), "little")] = peer

    def connect(self, host, port):
        until = time.monotonic() + CONNECT_S
        while True:  # rank 0 may start later than this rank
            try:
                root = socket.create_connection((host, port))
                break
            except ConnectionRefusedError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.02)
        root.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        root.sendall(self.rank.to_bytes(4, "little"))
        return root

    def receive(self, peer):
        view = memoryview(self.buffer).cast("B")
        while view:
            n = peer.recv_into(view)
            if n == 0:
                raise ConnectionError("another rank has closed its connection")
            view = view[n:]
        return self.buffer

    def total(self, gradient, due, task):
        """The sum of the gradients of all ranks, and whether the training stops after this step."""
        if self.rank > 0:
            self.buffer[:-1] = gradient
            self.root.sendall(self.buffer)
            answer = self.receive(self.root)
            return answer[:-1], answer[-1] > 0
        time.sleep(max(0.0, due - time.monotonic()))
        for peer in self.peers[1:]:
            gradient += self.receive(peer)[:-1]
        stop = task.should_stop()
        self.buffer[:-1], self.buffer[-1] = gradient, stop
        for peer in self.peers[1:]:
            peer.sendall(self.buffer)
        return gradient, stop


def load(network):
    """Resume from tony's checkpoint. Returns the first step."""
    path = tony_task.resume_path()
    if not path:
        return 0
    with np.load(path) as saved:
        network.all[:], network.momentum[:] = saved["all"], saved["momentum"]
        return int(saved["step"])


def train(network, x, y, args, ranks):
    """False: tony has asked to stop."""
    task, start = tony_task.connect(), load(network)
    sampler = Sampler(len(y), BATCH, -(-args.steps * BATCH // len(y)) + 1, ranks.rank, ranks.world, start, args.seed)
    say = (lambda **words: print(json.dumps(words), flush=True)) if ranks.rank == 0 and not args.alone else lambda **_: None
    say(began=wall_ms(), step=start, workers=ranks.world)
    began, stop, step = time.monotonic(), False, start
    while step < args.steps and not stop:
        samples = sampler.step(step)
        mine = samples[ranks.rank::ranks.world]
        due = began + (step + 1 - start) * BATCH / args.rate / ranks.world
        total, stop = ranks.total(network.gradient(x[mine], y[mine]), due, task)
        network.update(total, len(samples))
        step += 1
        task.progress(step, args.steps)
        if ranks.rank == 0 and not args.alone and (stop or step % args.save_every == 0):
            at = step
            task.checkpoint(at, save(at, lambda f: np.savez(f, all=network.all, momentum=network.momentum, step=at), args.checkpoints))
    say(ended=wall_ms(), step=step)
    return step == args.steps


def lock_devices(directory):
    """Locks a file for each device of this worker. If another live worker holds one, a line in the file `double`
    says so."""
    locks = []
    for device in os.environ["CUDA_VISIBLE_DEVICES"].split(","):
        locks.append(open(directory / f"device{device}", "w"))
        try:
            fcntl.flock(locks[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with open(directory / "double", "a") as f:
                print(f"device {device}, {os.environ['TONY_TASK']} of {os.environ['TONY_JOB_NAME']}", file=f)
    return locks


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="npz file with the images 'x' and the labels 'y'")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=RATE, help="samples of one worker in a second")
    parser.add_argument("--save-every", type=int, default=40, help="steps between two checkpoints")
    parser.add_argument("--checkpoints", metavar="DIR", default="checkpoints")
    parser.add_argument("--devices", metavar="DIR", help="lock the files of the worker's GPUs in this directory while it lives")
    parser.add_argument("--alone", action="store_true")
    args = parser.parse_args()
    locks = lock_devices(pathlib.Path(args.devices)) if args.devices else []  # noqa: F841 (held until the end)
    with np.load(args.data) as data:
        x, y = data["x"], data["y"]
    network = Network(args.seed)
    ranks = Alone() if args.alone else Ranks()
    if train(network, x[HELD_OUT:], y[HELD_OUT:], args, ranks) and ranks.rank == 0:
        print(json.dumps(network.result(x[:HELD_OUT], y[:HELD_OUT])), flush=True)


if __name__ == "__main__":
    main()
