"""What every loader gives: a model's signatures and parts, ready to be frozen one signature at a time."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import tensorflow as tf

from ..errors import SignatureError
from ..passes import Cut, Variable

__all__ = ["FrozenModel", "KeptTable", "Loaded", "Signature", "TableInitializer", "TensorSpec"]


@dataclass(frozen=True)
class TensorSpec:
    """A tensor: name with port, dtype as tensorflow calls it ("float32", "string"), shape with -1 for open dimensions,
    None when its rank is not known."""

    name: str
    dtype: str
    shape: tuple[int, ...] | None


@dataclass(frozen=True)
class Signature:
    """Inputs and outputs of one way to call a model, by the names that its callers use."""

    name: str
    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]


@dataclass(frozen=True)
class TableInitializer:
    """A node that fills a lookup table; to be run once when the graph is loaded.

    Attributes:
        node: the node to run.
        table: the node of the table that it fills.
        asset: the tensor to feed with the path of `file`; None when the values are in the graph.
        file: the vocabulary, as named in the model's assets.
    """

    node: str
    table: str
    asset: str | None = None
    file: str | None = None


@dataclass(frozen=True)
class KeptTable:
    """A table of at least `rows_min` rows that stays in the graph, and why: the text of what refused to cut it."""

    variable: str
    shape: tuple[int, ...]
    reason: str


@dataclass(frozen=True, eq=False)
class FrozenModel:
    """One signature as a graph without variables.

    Attributes:
        signature: as the model has it.
        graph_def: placeholders are named after the signature's inputs, results after its outputs.
        placeholders: the node of each of the signature's inputs, as `cuts` and `inputs` call it.
        inputs: the inputs that the graph still reads, in the signature's names; names of tensors are the graph's.
        outputs: the results.
        cuts: the lookups that became inputs (each is fed beside `inputs`); Cut.ids is a placeholder of the signature.
        tables: what was cut, by Cut.variable.
        kept: tables that stay as constants, with the reason for each.
        initializers: run once at load, before the first request.
        assets: path of each vocabulary by name.
        averaged: variables that hold the value of their moving average.
        random_ops: nodes that draw random numbers on every run: the model does so when it is called, too.
    """

    signature: Signature
    graph_def: tf.compat.v1.GraphDef
    placeholders: Mapping[str, str]
    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]
    cuts: tuple[Cut, ...] = ()
    tables: Mapping[str, Variable] = field(default_factory=dict)
    kept: tuple[KeptTable, ...] = ()
    initializers: tuple[TableInitializer, ...] = ()
    assets: Mapping[str, Path] = field(default_factory=dict)
    averaged: tuple[str, ...] = ()
    random_ops: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Loaded:
    """A model taken apart; nothing of it has been run.

    Attributes:
        path: where it came from.
        kind: how it is stored.
        signatures: by name.
        graph_def: as stored, functions included.
        variables: by the node that stands for each.
        averages: moving averages (tf.train.ExponentialMovingAverage) by the node whose variable they follow.
        assets: the path of each vocabulary by its tensor in the graph.
        asset_variables: nodes of variables that the initialisation sets to an asset's path, and the asset's tensor.
        init_op: the node that initialises the model once its variables are there; "" when there is none.
        restore_op: the node that restores the variables from the checkpoint; "" when there is none.
        prefix: the tensor that is fed with the checkpoint's path for that; "" when there is none.
    """

    path: Path
    kind: Literal["v1", "v2", "frozen"]
    signatures: Mapping[str, Signature]
    graph_def: tf.compat.v1.GraphDef
    variables: Mapping[str, Variable] = field(default_factory=dict)
    averages: Mapping[str, Variable] = field(default_factory=dict)
    assets: Mapping[str, Path] = field(default_factory=dict)
    asset_variables: Mapping[str, str] = field(default_factory=dict)
    init_op: str = ""
    restore_op: str = ""
    prefix: str = ""

    def signature(self, name: str) -> Signature:
        """The signature of that name. Raises SignatureError, which tells those that there are."""
        if name not in self.signatures:
            there = ", ".join(sorted(self.signatures)) or "none"
            raise SignatureError(f"{self.path}: signature {name!r} came, expected one of the model's: {there}")
        return self.signatures[name]

    def freeze(self, signature: str = "serving_default", rows_min: int = 1_000, moving_averages: bool = False,
               constant_bytes_max: int = 64 << 20) -> FrozenModel:
        """The signature's graph without variables, tables of at least `rows_min` rows cut out where their ids are fed.

        With `moving_averages`, variables that have one take its value. Raises SignatureError for an unknown name;
        FreezeError, with the cause, when the model has to be served as SavedModel.
        """
        from .freezing import freeze_signature  # It needs the types above.

        return freeze_signature(self, self.signature(signature), rows_min, moving_averages, constant_bytes_max)
