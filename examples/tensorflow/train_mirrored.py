# SPDX-License-Identifier: Apache-2.0
"""
Digits with mirrored variables: each worker computes on a part of the images; collectives over gRPC add the
gradients.
"""
import json
import os

import tensorflow as tf

import common  # sets the number of threads; must come before the strategy, which starts them

strategy = tf.distribute.MultiWorkerMirroredStrategy()  # before the first tensor is made

task = json.loads(os.environ["TF_CONFIG"])["task"]
n = strategy.num_replicas_in_sync
print(f"{task['type']} {task['index']}: {n} replicas", flush=True)
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
batches = iter(strategy.experimental_distribute_dataset(common.batches(60 * n).with_options(options)))
with strategy.scope():
    weights = common.network()


def one(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(common.loss_of(weights, x, y)) / (60 * n)
    gradients = tf.distribute.get_replica_context().all_reduce("sum", tape.gradient(loss, weights))
    for variable, gradient in zip(weights, gradients):
        variable.assign_sub(0.5 * gradient)
    return loss


@tf.function
def step(batches):
    return strategy.reduce("sum", strategy.run(one, args=next(batches)), axis=None)


for at in range(150):
    loss = step(batches)
    if at % 50 == 49:
        print(f"step {at + 1} loss {float(loss):.4f}", flush=True)
print(f"accuracy {common.accuracy(weights):.4f}", flush=True)
