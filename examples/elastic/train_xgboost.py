# SPDX-License-Identifier: Apache-2.0
"""
XGBoost's collective that can be resized. A round is one step: the model is saved after each. The lines marked
with "# resize" are all that a fixed-size program lacks.
"""
import os

import numpy as np
import xgboost as xgb
from elastic import CLASSES, data, save, tony_task  # resize
from xgboost import collective

ROUNDS = int(os.environ.get("ROUNDS", "40"))
task = tony_task.connect()  # resize


class EachRound(xgb.callback.TrainingCallback):  # resize
    def after_iteration(self, model, epoch, evals_log):
        """True ends the training in all workers."""
        done = model.num_boosted_rounds()  # with those of the checkpoint
        if collective.get_rank() == 0:
            task.checkpoint(done, save(done, lambda f: f.write(model.save_raw("ubj"))))
        task.progress(done, ROUNDS)
        return bool(collective.allreduce(np.array([task.should_stop()], dtype="int32"), collective.Op.MAX)[0])


# The tracker starts at the same time as this program, so connecting may need retries.
arguments = {"dmlc_communicator": "rabit", "dmlc_tracker_uri": os.environ["DMLC_TRACKER_URI"],
             "dmlc_tracker_port": int(os.environ["DMLC_TRACKER_PORT"]), "dmlc_task_id": os.environ["DMLC_TASK_ID"],
             "dmlc_retry": 20, "dmlc_timeout": 60}
with collective.CommunicatorContext(**arguments):
    rank, world = collective.get_rank(), collective.get_world_size()
    (x, y), (x_test, y_test) = data()
    mine = xgb.DMatrix(x[rank::world], y[rank::world])
    start, path = tony_task.resume_step(), tony_task.resume_path()  # resize
    # XGBoost tells formats apart by the end of the name: it gets the bytes instead.
    resumed = xgb.Booster(model_file=bytearray(open(path, "rb").read())) if path else None  # resize
    print(f"rank {rank} of {world} from step {start}", flush=True)
    model = xgb.train({"objective": "multi:softprob", "num_class": CLASSES, "max_depth": 3, "eta": 0.3, "nthread": 1,
                       "tree_method": "hist", "seed": 1}, mine, num_boost_round=ROUNDS - start, xgb_model=resumed,
                      callbacks=[EachRound()])
if rank == 0 and model.num_boosted_rounds() == ROUNDS:
    chances = model.predict(xgb.DMatrix(x))
    loss = -np.mean(np.log(chances[np.arange(len(y)), y]))
    right = np.argmax(model.predict(xgb.DMatrix(x_test)), 1) == y_test
    print(f"accuracy {np.mean(right):.4f} loss {loss:.6f}", flush=True)
