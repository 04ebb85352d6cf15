# SPDX-License-Identifier: Apache-2.0
"""
TensorFlow's MultiWorkerMirroredStrategy that can be resized. The lines marked with "# resize" are all that a
fixed-size program lacks.
"""
import os

import numpy as np
import tensorflow as tf
from elastic import CLASSES, Sampler, data, save, tony_task  # resize

EPOCHS, BATCH, SAVE_EVERY = int(os.environ.get("EPOCHS", "10")), 40, 50

tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)
strategy = tf.distribute.MultiWorkerMirroredStrategy()  # before the first tensor is made
rank, world = int(os.environ["TONY_RANK"]), strategy.num_replicas_in_sync
(x, y), (x_test, y_test) = data()
task = tony_task.connect()  # resize
start = 0

with strategy.scope():
    def new(*shape):
        return tf.Variable(tf.random.stateless_normal(shape, seed=[1, shape[0]]) * 0.2)
    weights = [new(16, 64), tf.Variable(tf.zeros([64])), new(64, CLASSES), tf.Variable(tf.zeros([CLASSES]))]
    momenta = [tf.Variable(tf.zeros(w.shape)) for w in weights]

if tony_task.resume_path():  # resize: each worker loads what the first one has saved
    with np.load(tony_task.resume_path()) as state:
        start = int(state["step"])
        for i, variable in enumerate(weights + momenta):
            variable.assign(state[f"v{i}"])
sampler = Sampler(len(y), BATCH, EPOCHS, rank, world, start)  # resize
print(f"rank {rank} of {world} from step {start}", flush=True)


def logits(x):
    return tf.nn.relu(x @ weights[0] + weights[1]) @ weights[2] + weights[3]


# The signature allows parts of any length: the parts of two ranks may differ by one sample.
@tf.function(input_signature=[tf.TensorSpec([None, 16]), tf.TensorSpec([None], tf.int64), tf.TensorSpec([]), tf.TensorSpec([])])
def one_step(some, labels, of_all, asked):
    def one(some, labels, asked):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits(some))) / of_all
        replica = tf.distribute.get_replica_context()
        for variable, momentum, gradient in zip(weights, momenta, replica.all_reduce("sum", tape.gradient(loss, weights))):
            momentum.assign(0.9 * momentum + gradient)
            variable.assign_sub(0.05 * momentum)
        return replica.all_reduce("sum", tf.identity(asked))
    return strategy.run(one, args=(some, labels, asked))


stop = False
for step, mine in enumerate(sampler, start):
    asked = float(task.should_stop())
    # resize: the sum over all workers, so all stop after the same step
    stop = strategy.experimental_local_results(one_step(x[mine], y[mine], float(len(sampler.step(step))), asked))[0] > 0
    task.progress(step + 1, sampler.last)
    if rank == 0 and (stop or (step + 1) % SAVE_EVERY == 0):  # resize
        values = {f"v{i}": v.numpy() for i, v in enumerate(weights + momenta)}
        task.checkpoint(step + 1, save(step + 1, lambda f: np.savez(f, step=step + 1, **values)))
    if stop:  # resize
        break

if not stop and rank == 0:
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits(x)))
    print(f"accuracy {np.mean(np.argmax(logits(x_test), 1) == y_test):.4f} loss {float(loss):.6f}", flush=True)
