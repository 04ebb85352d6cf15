# SPDX-License-Identifier: Apache-2.0
"""
Training on a Ray cluster whose workers come and go while it runs (`resize: live`). Each step has PARTS tasks:
each computes the gradient of a part of the batch on some worker. Ray runs a task again if its worker has left.
The number of workers only decides how fast a step is. The lines marked with "# resize" are all that a
fixed-size program lacks.
"""
import os

import numpy as np
import ray
from elastic import CLASSES, Sampler, data, save, tony_task

EPOCHS, BATCH, PARTS, SAVE_EVERY = int(os.environ.get("EPOCHS", "3")), 100, 4, 10
task = tony_task.connect()
(x, y), (x_test, y_test) = data()


def chances(weights, x):
    hidden = np.maximum(x @ weights[0] + weights[1], 0)
    scores = np.exp(hidden @ weights[2] + weights[3])
    return hidden, scores / scores.sum(1, keepdims=True)


@ray.remote(num_cpus=1, scheduling_strategy="SPREAD", max_retries=-1)  # resize: Ray repeats the tasks of a worker that has left
def gradient(weights, numbers, of_all):
    hidden, wrong = chances(weights, x[numbers])
    wrong[np.arange(len(numbers)), y[numbers]] -= 1
    wrong /= of_all
    back = wrong @ weights[2].T * (hidden > 0)
    return [x[numbers].T @ back, back.sum(0), hidden.T @ wrong, wrong.sum(0)], ray.get_runtime_context().get_node_id()


def main():
    ray.init(log_to_driver=False)  # RAY_ADDRESS has the address
    rng, start = np.random.RandomState(1), 0
    weights = [rng.normal(size=(16, 64)) * 0.2, np.zeros(64), rng.normal(size=(64, CLASSES)) * 0.2, np.zeros(CLASSES)]
    momenta = [np.zeros(w.shape) for w in weights]
    if tony_task.resume_path():  # the driver has restarted; a resize does not touch it
        with np.load(tony_task.resume_path()) as state:
            start = int(state["step"])
            weights, momenta = ([state[f"{name}{i}"] for i in range(4)] for name in "wm")
    sampler = Sampler(len(y), BATCH, EPOCHS, start=start)
    for step, numbers in enumerate(sampler, start):
        parts = [gradient.remote(weights, numbers[i::PARTS], len(numbers)) for i in range(PARTS)]
        gradients, nodes = zip(*ray.get(parts))
        for i, part in enumerate(zip(*gradients)):
            momenta[i] = 0.9 * momenta[i] + sum(part)
            weights[i] = weights[i] - 0.05 * momenta[i]
        print(f"step {step + 1} on {len(set(nodes))} workers", flush=True)
        task.progress(step + 1, sampler.last)
        if (step + 1) % SAVE_EVERY == 0:
            values = {f"{name}{i}": v for name, of in (("w", weights), ("m", momenta)) for i, v in enumerate(of)}
            task.checkpoint(step + 1, save(step + 1, lambda f: np.savez(f, step=step + 1, **values)))
    loss = -np.mean(np.log(chances(weights, x)[1][np.arange(len(y)), y]))
    right = np.argmax(chances(weights, x_test)[1], 1) == y_test
    print(f"accuracy {np.mean(right):.4f} loss {loss:.6f}", flush=True)


main()
