"""The framework's own way to run a SavedModel: what exports are compared with, and what serves the rest."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Literal

import numpy as np
import tensorflow as tf

from ..errors import SavedModelError, SignatureError
from .saved_model import load_saved_model

__all__ = ["FrameworkModel"]


class FrameworkModel:
    """A SavedModel loaded by TensorFlow: by the loader of TensorFlow 2, or through a session where that one fails.

    Attributes:
        loader: which one it was.
        v2_failure: why the loader of TensorFlow 2 failed, "" when it did not.
    """

    def __init__(self, path: Path | str, tags: Collection[str] = ("serve",)):
        """Raises SavedModelError when neither loader takes the graph of `tags`, with both reasons."""
        self._loaded, self._tags = load_saved_model(path, tags), list(tags)
        self.loader: Literal["v1", "v2"] = "v2"
        self.v2_failure, self._session = "", None
        try:
            self._object = tf.saved_model.load(str(path), self._tags)
            self._functions = dict(self._object.signatures)
            lost = sorted(set(self._loaded.signatures) - set(self._functions))
            if lost:
                raise KeyError(f"signature {lost[0]!r} is lost")
        except Exception as error:  # Loaders of foreign objects raise whatever these raise.
            self.loader, self.v2_failure = "v1", f"{type(error).__name__}: {error}"
            self._session = self._open(path)

    def call(self, signature: str, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The outputs of a signature by name. Raises SignatureError for other inputs than the signature's."""
        wanted = self._loaded.signature(signature)
        if set(inputs) != set(wanted.inputs):
            raise SignatureError(f"signature {signature!r}: inputs {sorted(inputs)} came, expected "
                                 f"{sorted(wanted.inputs)}")
        if self._session is not None:
            feeds = {wanted.inputs[key].name: value for key, value in inputs.items()}
            return self._session.run({key: spec.name for key, spec in wanted.outputs.items()}, feeds)
        fed = {key: tf.constant(value, wanted.inputs[key].dtype) for key, value in inputs.items()}
        return {key: value.numpy() for key, value in self._functions[signature](**fed).items()}

    def _open(self, path: Path | str):
        session = tf.compat.v1.Session(graph=tf.Graph())
        try:
            tf.compat.v1.saved_model.load(session, self._tags, str(path))
        except (tf.errors.OpError, ValueError, RuntimeError, KeyError) as error:
            session.close()
            both = f"v2: {self.v2_failure}; v1: {error}"
            raise SavedModelError(path, f"TensorFlow loads it neither way; {both}") from error
        return session
