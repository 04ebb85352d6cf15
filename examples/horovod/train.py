# SPDX-License-Identifier: Apache-2.0
"""Digits with Horovod: each rank gets a part of the images, and allreduce averages the gradients."""
import os

import horovod.torch as hvd
import torch
from sklearn.datasets import load_digits
from torch import nn

hvd.init()
torch.set_num_threads(1)
torch.manual_seed(1)
images, labels = load_digits(return_X_y=True)
x, y = torch.tensor(images / 16.0, dtype=torch.float32), torch.tensor(labels)
order = torch.randperm(len(y))
train, test = order[:1440], order[1440:]
mine = train[hvd.rank()::hvd.size()]

model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = hvd.DistributedOptimizer(torch.optim.Adam(model.parameters(), lr=5e-3),
                                     named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
print(f"rank {hvd.rank()} of {hvd.size()}, local {hvd.local_rank()} of {hvd.local_size()}", flush=True)

for epoch in range(int(os.environ.get("EPOCHS", "10"))):
    for at in range(0, len(mine), 60):
        pick = mine[at:at + 60]
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x[pick]), y[pick])
        loss.backward()
        optimizer.step()
    mean = hvd.allreduce(loss.detach(), name="loss")
    if hvd.rank() == 0:
        print(f"epoch {epoch + 1} loss {mean.item():.4f}", flush=True)
if hvd.rank() == 0:
    with torch.no_grad():
        print(f"accuracy {(model(x[test]).argmax(1) == y[test]).float().mean():.4f}", flush=True)
