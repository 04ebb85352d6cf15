# SPDX-License-Identifier: Apache-2.0
"""
What the programs in this directory share: data, the order of the samples, and checkpoints. Needs only numpy.
Copy Sampler and save() into a program of your own.
"""
import glob
import os
import sys

import numpy as np

# When the program is started by hand, outside of tony.
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../clients/python"))
import tony_task  # noqa: E402,F401  the programs import it from here

KEPT = 3  # checkpoints; the older ones are removed
CLASSES = 4


def data(seed=1, n=2400, features=16, held_out=400):
    """Made samples of four classes: (x, y) for training and (x, y) held out."""
    rng = np.random.RandomState(seed)
    x = rng.normal(size=(n, features)).astype("float32")
    y = np.argmax(np.tanh(x @ rng.normal(size=(features, 8))) @ rng.normal(size=(8, CLASSES)), axis=1)
    return (x[held_out:], y[held_out:]), (x[:held_out], y[:held_out])


class Sampler:
    """
    The samples of one rank in each step, from the step `start` on. It can be the batch_sampler of a DataLoader.

    The samples of a step depend on the seed and the number of the step only. The ranks divide them. So an epoch
    takes each sample exactly once, even if the job is resized in the middle of it. The step number of a
    checkpoint is all that must be saved. A step has `batch` to 2 * batch - 1 samples, so no rank is without any.
    """

    def __init__(self, n, batch, epochs, rank=0, world=1, start=0, seed=1):
        if not world <= batch <= n:
            raise ValueError(f"a batch of {batch} of {n} samples cannot be divided among {world} ranks")
        self.n, self.rank, self.world, self.start, self.seed = n, rank, world, start, seed
        self.per_epoch = n // batch  # steps
        self.last = epochs * self.per_epoch

    def step(self, step):
        """The samples of all ranks in a step."""
        epoch, at = divmod(step, self.per_epoch)
        order = np.random.RandomState((self.seed, epoch)).permutation(self.n)
        return order[self.n * at // self.per_epoch:self.n * (at + 1) // self.per_epoch]

    def __iter__(self):
        for step in range(self.start, self.last):
            yield self.step(step)[self.rank::self.world].tolist()

    def __len__(self):
        return self.last - self.start


def save(step, write, directory=os.path.join(os.environ.get("TONY_LOG_DIR", "."), "checkpoints")):
    """
    write(file) writes the checkpoint of a step. Returns its path. The rename comes last, so a file with this
    name is complete. On a cluster the directory must be one that all nodes share.
    """
    os.makedirs(directory, exist_ok=True)
    path = os.path.join(directory, f"step-{step:08d}")
    with open(path + ".tmp", "wb") as f:
        write(f)
        f.flush()
        os.fsync(f.fileno())
    os.replace(path + ".tmp", path)
    for old in sorted(glob.glob(os.path.join(directory, "step-????????")))[:-KEPT]:
        os.unlink(old)
    return path
