# SPDX-License-Identifier: Apache-2.0
"""Digits with parameter servers: the chief gives steps to the workers, and the ps tasks store the weights."""
import common
import tensorflow as tf

resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type in ("ps", "worker"):
    server = tf.distribute.Server(resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id,
                                  protocol="grpc", start=True)
    server.join()  # never returns

strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    weights = common.network()


@tf.function
def dataset():
    return strategy.distribute_datasets_from_function(lambda _: common.batches(60))


@tf.function
def step(batches):
    def one(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(common.loss_of(weights, x, y))
        for variable, gradient in zip(weights, tape.gradient(loss, weights)):
            variable.assign_sub(0.3 * gradient)
        return loss
    return strategy.run(one, args=next(batches))


batches = iter(coordinator.create_per_worker_dataset(dataset))
for at in range(200):
    last = coordinator.schedule(step, args=(batches,))
    if at % 50 == 49:
        coordinator.join()
        print(f"step {at + 1} loss {float(last.fetch()):.4f}", flush=True)
print(f"accuracy {common.accuracy([w.read_value() for w in weights]):.4f}", flush=True)
