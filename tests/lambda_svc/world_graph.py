"""Run as a script, in a process that may import tensorflow: writes the small ranking graph of `world.py` to a file.

usage: python world_graph.py WEIGHTS.npz OUT.pb
"""

import sys

import numpy as np
import tensorflow as tf

tf1 = tf.compat.v1


def main(weights_file: str, out: str) -> None:
    weights = np.load(weights_file)
    with tf.Graph().as_default() as graph:
        history = tf1.placeholder(tf.float32, [1, 8, 4], "history_rows")
        length = tf1.placeholder(tf.int32, [1], "history_length")
        occupation = tf1.placeholder(tf.float32, [1, 4], "occupation_rows")
        age = tf1.placeholder(tf.float32, [1], "age")
        hour = tf1.placeholder(tf.int64, [1], "hour")
        item = tf1.placeholder(tf.float32, [None, 4], "item_rows")
        genres = tf1.placeholder(tf.float32, [None, 4], "genre_rows")
        price = tf1.placeholder(tf.float32, [None, 1], "price")
        vector = tf1.placeholder(tf.float32, [None, 3], "vector")
        mask = tf.sequence_mask(length, 8, tf.float32)[:, :, None]
        mean = tf.math.divide_no_nan(tf.reduce_sum(history * mask, 1), tf.cast(length, tf.float32)[:, None])
        clock = tf.cast(hour, tf.float32)[:, None] / 24.0
        user = tf.concat([mean, occupation, age[:, None], clock], 1)
        rows = tf.shape(item)[0]
        both = tf.concat([tf.tile(user, [rows, 1]), item, genres, price, vector], 1)
        hidden = tf.nn.relu(tf.matmul(both, weights["w1"]) + weights["b1"])
        logits = tf.matmul(hidden, weights["w2"]) + weights["b2"]
        tf.identity(tf.sigmoid(logits[:, 0]), "liked")
        tf.identity(tf.sigmoid(logits[:, 1]), "engaged")
    with open(out, "wb") as file:
        file.write(graph.as_graph_def().SerializeToString(deterministic=True))


if __name__ == "__main__":
    main(*sys.argv[1:])
