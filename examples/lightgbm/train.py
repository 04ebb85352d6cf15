# SPDX-License-Identifier: Apache-2.0
"""Digits with LightGBM: each machine has a part of the rows, and histograms are merged over sockets."""
import os

import lightgbm as lgb
import numpy as np
from sklearn.datasets import load_digits

rank, size = int(os.environ["TONY_RANK"]), int(os.environ["LIGHTGBM_NUM_MACHINES"])
x, y = load_digits(return_X_y=True)
order = np.random.RandomState(1).permutation(len(y))
train, test = order[:1440], order[1440:]
parameters = {"objective": "multiclass", "num_class": 10, "num_leaves": 15, "learning_rate": 0.3, "num_threads": 1,
              "verbose": -1, "tree_learner": "data", "pre_partition": True, "num_machines": size,
              "machines": os.environ["LIGHTGBM_MACHINES"],
              "local_listen_port": int(os.environ["LIGHTGBM_LOCAL_LISTEN_PORT"]), "time_out": 2}
model = lgb.train(parameters, lgb.Dataset(x[train[rank::size]], y[train[rank::size]], params=parameters),
                  num_boost_round=15)
print(f"machine {rank} of {size}", flush=True)
print(f"accuracy {np.mean(np.argmax(model.predict(x[test]), 1) == y[test]):.4f}", flush=True)
