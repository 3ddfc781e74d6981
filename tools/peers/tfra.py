"""TensorFlow Recommenders Addons: a lookup in its cuckoo table on the CPU, one thread."""

from protocol import filled, ids_of, serve


def prepare(spec):
    """A dynamic_embedding.CuckooHashTable of the whole table."""
    import tensorflow as tf
    import tensorflow_recommenders_addons as tfra

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    table = tfra.dynamic_embedding.CuckooHashTable(
        tf.int64, tf.float32, tf.zeros([spec.dim]), name="peer", init_size=spec.rows)
    for numbers, rows in filled(spec):
        table.insert(tf.constant(ids_of(numbers)), tf.constant(rows))
    return lambda numbers: tf.constant(ids_of(numbers)), lambda ids: table.lookup(ids).numpy(), ""


if __name__ == "__main__":
    serve(prepare)
