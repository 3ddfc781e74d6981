"""tf.lookup: MutableHashTable (variant `mutable`) and DenseHashTable (variant `dense`), one thread."""

import numpy as np
from protocol import filled, ids_of, serve


def prepare(spec):
    """A table of the variant, filled."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    default = np.zeros(spec.dim, np.float32)
    if spec.variant == "dense":
        table = tf.lookup.experimental.DenseHashTable(
            tf.int64, tf.float32, default, empty_key=np.int64(-(2**63)), deleted_key=np.int64(2**63 - 1),
            initial_num_buckets=1 << (2 * spec.rows - 1).bit_length())
    else:
        table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, default)
    for numbers, rows in filled(spec):
        table.insert(tf.constant(ids_of(numbers)), tf.constant(rows))
    note = "two ids reserved" if spec.variant == "dense" else ""
    return lambda numbers: tf.constant(ids_of(numbers)), lambda ids: table.lookup(ids).numpy(), note


if __name__ == "__main__":
    serve(prepare)
