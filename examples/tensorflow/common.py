# SPDX-License-Identifier: Apache-2.0
"""Shared by the two programs: the digits, and a small network of plain variables."""
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)
images, labels = load_digits(return_X_y=True)
images = (images / 16).astype("float32")
order = np.random.RandomState(1).permutation(len(labels))
train, test = order[:1440], order[1440:]


def batches(size):
    data = tf.data.Dataset.from_tensor_slices((images[train], labels[train]))
    return data.shuffle(1440, seed=1).repeat().batch(size, drop_remainder=True)


def network():
    def new(*shape):
        return tf.Variable(tf.random.stateless_normal(shape, seed=[1, shape[0]]) * 0.1)
    return [new(64, 64), tf.Variable(tf.zeros([64])), new(64, 10), tf.Variable(tf.zeros([10]))]


def logits(weights, x):
    return tf.nn.relu(x @ weights[0] + weights[1]) @ weights[2] + weights[3]


def loss_of(weights, x, y):
    return tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits(weights, x))


def accuracy(weights):
    return float(np.mean(np.argmax(logits(weights, images[test]).numpy(), 1) == labels[test]))
