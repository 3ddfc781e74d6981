"""What all models of the zoo have in common: fields become table rows, and the user's are tiled. Imports tensorflow."""

from collections.abc import Sequence

import keras
import tensorflow as tf

from .fields import Field
from .layers import PooledEmbedding, tiled

__all__ = ["ZooModel"]


class ZooModel(keras.Model):
    """A model of fields. Subclasses give `heads` and `score`.

    Built once and made for serving: `serve` is the whole model, as a training team writes it in one piece.
    """

    heads: tuple[str, ...] = ()

    def __init__(self, fields: Sequence[Field], name: str):
        super().__init__(name=name)
        self.fields = tuple(fields)
        bags = {field.source for field in fields if field.kind == "bag"}
        self.tables = {field.source: _table(field, field.source in bags) for field in fields if field.kind != "numbers"}

    def score(self, rows: dict[str, tf.Tensor]) -> list[tf.Tensor]:
        """Logits [b] per head. `rows` float32: [b, dim] for every field, [b, length, dim] for a sequence `f`, whose
        `f_length` int32 [b] stands beside it."""
        raise NotImplementedError

    def serve(self, inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Probabilities {head: float32 [n]} of n candidates for one user: inputs of the user and context sides have
        leading dimension 1, and their rows are tiled here, in the graph, before anything is computed from them."""
        item, user = self._lookup(inputs, "item"), self._lookup(inputs, "user") | self._lookup(inputs, "context")
        n = tf.shape(item[next(iter(item))])[0]
        logits = self.score(item | tiled(user, n))
        return {head: tf.sigmoid(logit) for head, logit in zip(self.heads, logits, strict=True)}

    def _lookup(self, inputs: dict[str, tf.Tensor], side: str) -> dict[str, tf.Tensor]:
        rows: dict[str, tf.Tensor] = {}
        for field in (field for field in self.fields if field.side == side):
            values = inputs[field.name]
            if field.kind == "numbers":
                rows[field.name] = values
            elif field.kind == "bag":
                bags = 1 if side != "item" else tf.shape(rows[next(iter(rows))])[0]
                rows[field.name] = self.tables[field.source](values, inputs[f"{field.name}_segments"], bags=bags)
            else:
                rows[field.name] = self.tables[field.source](values)
            if field.kind == "sequence":
                rows[f"{field.name}_length"] = inputs[f"{field.name}_length"]
        return rows


def _table(field: Field, pooled: bool):
    # Zeros cost nothing; weights come from random_weights or from training.
    if pooled:
        return PooledEmbedding(field.rows, field.dim, "zeros", name=f"{field.source}_table")
    return keras.layers.Embedding(field.rows, field.dim, "zeros", name=f"{field.source}_table")
