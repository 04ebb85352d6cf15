# SPDX-License-Identifier: Apache-2.0
"""
A linear model, trained by gradient descent over a kvstore. In a scheduler or a server, the import itself
serves until the training is over.
"""
import os

import mxnet as mx
import numpy as np

kv = mx.kv.create("dist_sync")
rng = np.random.RandomState(1)
truth = np.arange(1, 9, dtype="float32")
x = rng.normal(size=(4000, 8)).astype("float32")
y = x @ truth + rng.normal(scale=0.01, size=4000).astype("float32")
mine = slice(kv.rank, None, kv.num_workers)
x, y = mx.nd.array(x[mine]), mx.nd.array(y[mine])
print(f"worker {kv.rank} of {kv.num_workers}, {os.environ['DMLC_ROLE']}", flush=True)

weight = mx.nd.zeros((8, 1))
kv.init("w", weight)
kv.set_optimizer(mx.optimizer.SGD(learning_rate=0.2, rescale_grad=1.0 / kv.num_workers))
for step in range(60):
    error = mx.nd.dot(x, weight) - y.reshape((-1, 1))
    kv.push("w", mx.nd.dot(x.T, error) / len(y))
    kv.pull("w", out=weight)
worst = float(np.abs(weight.asnumpy().ravel() - truth).max())
print(f"largest error of a weight {worst:.4f}", flush=True)
assert worst < 0.05, worst
