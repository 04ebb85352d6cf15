# SPDX-License-Identifier: Apache-2.0
"""
Digits with JAX: the images are divided among the devices of all processes, and XLA does the communication
between them.
"""
import os

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from sklearn.datasets import load_digits

jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(num_processes=int(os.environ["JAX_NUM_PROCESSES"]),
                           process_id=int(os.environ["JAX_PROCESS_ID"]))  # it finds its own address
rank, size = jax.process_index(), jax.process_count()
print(f"process {rank} of {size}, {len(jax.devices())} devices", flush=True)

images, labels = load_digits(return_X_y=True)
images = (images / 16).astype("float32")
order = np.random.RandomState(1).permutation(len(labels))
train, test = order[:1440], order[1440:]
mesh = Mesh(np.array(jax.devices()), ("data",))
split, whole = NamedSharding(mesh, PartitionSpec("data")), NamedSharding(mesh, PartitionSpec())
x = jax.make_array_from_process_local_data(split, images[train[rank::size]])
y = jax.make_array_from_process_local_data(split, labels[train[rank::size]])

rng = np.random.RandomState(2)
params = jax.device_put([rng.normal(0, 0.1, (64, 64)).astype("float32"), np.zeros(64, "float32"),
                         rng.normal(0, 0.1, (64, 10)).astype("float32"), np.zeros(10, "float32")], whole)


def logits(p, inputs):
    return jax.nn.relu(inputs @ p[0] + p[1]) @ p[2] + p[3]


def loss(p, x, y):
    return -jnp.mean(jax.nn.log_softmax(logits(p, x))[jnp.arange(y.shape[0]), y])


@jax.jit
def step(p, x, y):
    value, gradient = jax.value_and_grad(loss)(p, x, y)
    return [a - 0.5 * g for a, g in zip(p, gradient)], value


for i in range(int(os.environ.get("STEPS", "200"))):
    params, value = step(params, x, y)
    if i % 50 == 0 and rank == 0:
        print(f"step {i} loss {float(value):.4f}", flush=True)
if rank == 0:
    p = [np.asarray(a.addressable_data(0)) for a in params]
    right = np.argmax(np.maximum(images[test] @ p[0] + p[1], 0) @ p[2] + p[3], 1) == labels[test]
    print(f"accuracy {right.mean():.4f}", flush=True)
jax.distributed.shutdown()
