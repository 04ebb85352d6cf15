# SPDX-License-Identifier: Apache-2.0
"""A search for the best regularization of a classifier of digits, spread over the nodes of the Ray cluster."""
import time

import ray

ray.init(log_to_driver=False)  # RAY_ADDRESS has the address
while sum(node["Alive"] for node in ray.nodes()) < 2:
    time.sleep(0.2)


@ray.remote(num_cpus=1)
def score(c):
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression
    x, y = load_digits(return_X_y=True)
    model = LogisticRegression(C=c, max_iter=200).fit(x[:1400] / 16, y[:1400])
    return model.score(x[1400:] / 16, y[1400:]), c, ray.get_runtime_context().get_node_id()


results = ray.get([score.remote(c) for c in (0.01, 0.1, 1.0, 10.0)])
best = max(results)
print(f"{len(results)} trials on {len({r[2] for r in results})} nodes", flush=True)
print(f"accuracy {best[0]:.4f} with C={best[1]}", flush=True)
