# SPDX-License-Identifier: Apache-2.0
"""Digits with XGBoost: each worker has a part of the rows, and all build the same trees."""
import os

import numpy as np
import xgboost as xgb
from sklearn.datasets import load_digits
from xgboost import collective

# the tracker starts at the same time as this program, so connecting may need retries
arguments = {"dmlc_communicator": "rabit", "dmlc_tracker_uri": os.environ["DMLC_TRACKER_URI"],
             "dmlc_tracker_port": int(os.environ["DMLC_TRACKER_PORT"]), "dmlc_task_id": os.environ["DMLC_TASK_ID"],
             "dmlc_retry": 20, "dmlc_timeout": 60}
with collective.CommunicatorContext(**arguments):
    rank, size = collective.get_rank(), collective.get_world_size()
    print(f"worker {rank} of {size}", flush=True)
    x, y = load_digits(return_X_y=True)
    order = np.random.RandomState(1).permutation(len(y))
    train, test = order[:1440], order[1440:]
    mine = xgb.DMatrix(x[train[rank::size]], y[train[rank::size]])
    model = xgb.train({"objective": "multi:softmax", "num_class": 10, "max_depth": 4, "eta": 0.4, "nthread": 1,
                       "tree_method": "hist"}, mine, num_boost_round=20)
if rank == 0:  # alone, so outside the collective
    print(f"accuracy {np.mean(model.predict(xgb.DMatrix(x[test])) == y[test]):.4f}", flush=True)
