"""Layers that model definitions share. Importing this imports tensorflow.

Every layer has a name of its own, so that equal models give equal graphs whatever the process built before.

Sources: Zhou et al., "Deep Interest Network for Click-Through Rate Prediction" (KDD 2018); Ma et al., "Modeling Task
Relationships in Multi-task Learning with Multi-gate Mixture-of-Experts" (KDD 2018); Wang et al., "DCN V2: Improved Deep
& Cross Network" (WWW 2021).
"""

from collections.abc import Mapping

import keras
import tensorflow as tf

__all__ = ["CrossNetwork", "Mmoe", "PooledEmbedding", "TargetAttention", "mlp", "tiled"]

_MASKED = -1e9


class PooledEmbedding(keras.layers.Layer):
    """A table whose rows are averaged per bag. call(ids [v], segments int32 [v] ascending, bags) -> float32 [bags,
    dim]; an empty bag gives exactly 0."""

    def __init__(self, rows: int, dim: int, initializer, name: str):
        super().__init__(name=name)
        self.table = self.add_weight(shape=(rows, dim), name="embeddings", initializer=initializer)

    def call(self, ids, segments, bags):
        """The mean row of each bag."""
        return tf.sparse.segment_mean(tf.convert_to_tensor(self.table), ids, segments, num_segments=bags)


class TargetAttention(keras.layers.Layer):
    """DIN's activation unit: how much each behaviour of the history says about the candidate.

    call(query [b, d], keys [b, l, d], length int32 [b]) -> [b, d]: the mean of keys weighted by a softmax over the
    first `length` cells; an empty history gives 0.
    """

    def __init__(self, units: tuple[int, ...], name: str):
        super().__init__(name=name)
        self.hidden = [keras.layers.Dense(u, activation="relu", name=f"{name}_hidden_{i}") for i, u in enumerate(units)]
        self.logit = keras.layers.Dense(1, name=f"{name}_logit")

    def logits(self, query, keys, *more):
        """[b, l] from the query beside each key; `more` tensors [b, l, m] tell more about the keys."""
        query = tf.broadcast_to(query[:, None, :], tf.shape(keys))
        x = tf.concat([query, keys, query - keys, query * keys, *more], axis=-1)
        for layer in self.hidden:
            x = layer(x)
        return self.logit(x)[:, :, 0]

    def call(self, query, keys, length):
        """The history as seen from the candidate."""
        logits = self.logits(query, keys)
        mask = tf.sequence_mask(length, maxlen=tf.shape(keys)[1])
        weights = tf.nn.softmax(tf.where(mask, logits, _MASKED), axis=-1) * tf.cast(mask, tf.float32)
        return tf.matmul(weights[:, None, :], keys)[:, 0, :]


class Mmoe(keras.layers.Layer):
    """Experts shared by several heads, each with a gate and a tower of its own. call(x [b, d]) -> logits, one [b] a
    head."""

    def __init__(self, experts: int, expert_units: tuple[int, ...], tower_units: tuple[int, ...],
                 heads: tuple[str, ...], name: str):
        super().__init__(name=name)
        self.experts = [mlp(expert_units, f"expert_{e}") for e in range(experts)]
        self.gates = [keras.layers.Dense(experts, activation="softmax", name=f"gate_{head}") for head in heads]
        self.towers = [mlp(tower_units, f"tower_{head}") for head in heads]
        self.logits = [keras.layers.Dense(1, name=f"logit_{head}") for head in heads]

    def call(self, x):
        """The logits, in the order of the heads."""
        experts = tf.stack([expert(x) for expert in self.experts], axis=1)
        logits = []
        for gate, tower, logit in zip(self.gates, self.towers, self.logits, strict=True):
            mixed = tf.matmul(gate(x)[:, None, :], experts)[:, 0, :]
            logits.append(logit(tower(mixed))[:, 0])
        return logits


class CrossNetwork(keras.layers.Layer):
    """DCN V2's crosses: x <- x0 * (W x + b) + x, `layers` times. call(x0 [b, d]) -> [b, d].

    With `rank` each W is the product of [d, rank] and [rank, d]; 0 means full matrices.
    """

    def __init__(self, width: int, layers: int, rank: int, name: str):
        super().__init__(name=name)
        self.down = [keras.layers.Dense(rank, use_bias=False, name=f"{name}_down_{i}") for i in range(layers) if rank]
        self.up = [keras.layers.Dense(width, name=f"{name}_up_{i}") for i in range(layers)]

    def call(self, x0):
        """The crossed features."""
        x = x0
        for i, up in enumerate(self.up):
            x = x0 * up(self.down[i](x) if self.down else x) + x
        return x


def mlp(units: tuple[int, ...], name: str, norm: bool = False):
    """Dense layers with ReLU, with batch normalisation before each ReLU when `norm`."""
    layers = []
    for i, u in enumerate(units):
        layers.append(keras.layers.Dense(u, activation=None if norm else "relu", name=f"{name}_{i}"))
        if norm:
            layers.append(keras.layers.BatchNormalization(name=f"{name}_norm_{i}"))
            layers.append(keras.layers.ReLU(name=f"{name}_relu_{i}"))
    return keras.Sequential(layers, name=name)


def tiled(rows: Mapping[str, tf.Tensor], n) -> dict[str, tf.Tensor]:
    """Tensors of leading dimension 1 repeated to n, in the graph, as training frameworks write it."""
    return {name: tf.tile(t, [n] + [1] * (t.shape.rank - 1)) for name, t in rows.items()}
