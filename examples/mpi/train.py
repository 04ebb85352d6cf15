# SPDX-License-Identifier: Apache-2.0
"""
Digits with MPI: softmax regression; each rank has a part of the images, and Allreduce sums the gradients.
"""
import numpy as np
from mpi4py import MPI
from sklearn.datasets import load_digits

world = MPI.COMM_WORLD
rank, size = world.Get_rank(), world.Get_size()
print(f"rank {rank} of {size}", flush=True)
images, labels = load_digits(return_X_y=True)
images = images / 16
order = np.random.RandomState(1).permutation(len(labels))
train, test = order[:1440], order[1440:]
x, y = images[train[rank::size]], labels[train[rank::size]]

weights = np.zeros((64, 10))
for step in range(300):
    scores = np.exp(x @ weights)
    scores /= scores.sum(1, keepdims=True)
    scores[np.arange(len(y)), y] -= 1
    gradient, total = x.T @ scores, np.empty_like(weights)
    world.Allreduce(gradient, total)
    weights -= 1.0 / len(train) * total * 3
if rank == 0:
    print(f"accuracy {np.mean(np.argmax(images[test] @ weights, 1) == labels[test]):.4f}", flush=True)
