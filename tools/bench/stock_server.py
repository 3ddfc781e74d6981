"""The stock path, as a user of TensorFlow in Python has it: run as a process of its own that imports tensorflow.

usage: python -m tools.bench.stock_server SAVED_MODEL REQUESTS_DIR

A Predict message (a map of tensorflow.TensorProto, user features tiled by the client) is parsed into arrays, run by a
Python session on the model as the framework saved it, and answered as TensorProtos. Beforehand it turns every NAME.npz
in REQUESTS_DIR into NAME.predict, the serialized message, so that building it costs the measured client nothing. Prints
`ready on port N`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from tools.bench.bytes_server import serve_until_closed

METHOD = ("lambda_svc.bench.Stock", "Predict")


def predict_message():
    """A message class wire-equal to PredictRequest and PredictResponse as far as `inputs` = 2 goes."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    from tensorflow.core.framework import tensor_pb2

    tensor = tensor_pb2.TensorProto.DESCRIPTOR
    file = descriptor_pb2.FileDescriptorProto(
        name="lambda_svc/bench/predict.proto", package="lambda_svc.bench", syntax="proto3",
        dependency=[tensor.file.name],
    )
    message = file.message_type.add(name="Predict")
    entry = message.nested_type.add(name="InputsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=9, label=1)
    entry.field.add(name="value", number=2, type=11, label=1, type_name=f".{tensor.full_name}")
    message.field.add(name="inputs", number=2, type=11, label=3, type_name=".lambda_svc.bench.Predict.InputsEntry")
    pool = descriptor_pool.Default()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("lambda_svc.bench.Predict"))


class Stock:
    """A SavedModel's serving signature behind a Python session."""

    def __init__(self, saved_model: str) -> None:
        import tensorflow as tf

        self._tf, self._predict = tf, predict_message()
        tf1 = tf.compat.v1
        self._session = tf1.Session(graph=tf.Graph())
        with self._session.graph.as_default():
            meta = tf1.saved_model.load(self._session, ["serve"], saved_model)
        signature = meta.signature_def["serving_default"]
        self._inputs = {name: info.name for name, info in signature.inputs.items()}
        self._outputs = {name: info.name for name, info in signature.outputs.items()}

    def serialize(self, arrays: dict[str, np.ndarray]) -> bytes:
        """The Predict message of these inputs."""
        message = self._predict()
        for name in self._inputs:
            message.inputs[name].CopyFrom(self._tf.make_tensor_proto(arrays[name]))
        return message.SerializeToString()

    def predict(self, request: bytes, _context) -> bytes:
        """Parse, run, answer."""
        message = self._predict.FromString(request)
        feeds = {self._inputs[name]: self._tf.make_ndarray(value) for name, value in message.inputs.items()}
        answer = self._predict()
        for name, value in self._session.run(self._outputs, feeds).items():
            answer.inputs[name].CopyFrom(self._tf.make_tensor_proto(value))
        return answer.SerializeToString()


def main(saved_model: str, requests: str) -> None:
    """Serves until its standard input closes."""
    stock = Stock(saved_model)
    for file in Path(requests).glob("*.npz"):
        file.with_suffix(".predict").write_bytes(stock.serialize(dict(np.load(file))))
    serve_until_closed(*METHOD, stock.predict)


if __name__ == "__main__":
    main(*sys.argv[1:])
