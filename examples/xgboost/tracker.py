# SPDX-License-Identifier: Apache-2.0
"""XGBoost's tracker, through which its workers find each other."""
import os

from xgboost.tracker import RabitTracker

tracker = RabitTracker(int(os.environ["DMLC_NUM_WORKER"]), host_ip=os.environ["DMLC_TRACKER_URI"],
                       port=int(os.environ["DMLC_TRACKER_PORT"]))
tracker.start()
tracker.wait_for()
