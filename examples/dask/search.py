# SPDX-License-Identifier: Apache-2.0
"""A search for the best regularization of a classifier of digits, spread over Dask's workers."""
from distributed import Client, get_worker


def score(c):
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression
    x, y = load_digits(return_X_y=True)
    model = LogisticRegression(C=c, max_iter=200).fit(x[:1400] / 16, y[:1400])
    return model.score(x[1400:] / 16, y[1400:]), c, get_worker().address


client = Client(timeout="60s")  # DASK_SCHEDULER_ADDRESS has the scheduler's address
client.wait_for_workers(2, timeout=60)
results = client.gather(client.map(score, [0.01, 0.1, 1.0, 10.0]))
best = max(results)
print(f"{len(results)} trials on {len({r[2] for r in results})} workers", flush=True)
print(f"accuracy {best[0]:.4f} with C={best[1]}", flush=True)
