"""The trained MovieLens model on its way out: as what export takes, or as a SavedModel for the framework's own path.

Importing this imports tensorflow.
"""

from pathlib import Path

import tensorflow as tf

from .export import Servable
from .golden import golden_inputs
from .inputs import INTERFACE
from .movielens_golden import golden_requests
from .stock import save_vocabularies
from .tensors import input_specs, tensors
from .train import Trained
from .zoo.din_mmoe import HEADS

__all__ = ["export_saved_model", "servable"]


def servable(trained: Trained) -> Servable:
    """The model with its vocabularies, golden requests of its test rows, and notes of what it was trained on."""
    def golden():
        rows = golden_requests(trained.rows, trained.split.test)
        logits = trained.model(tensors(golden_inputs(rows, INTERFACE, trained.vocabularies)))
        return rows, {head: tf.sigmoid(logit).numpy() for head, logit in zip(HEADS, logits, strict=True)}

    return Servable(
        name="din_mmoe",
        interface=INTERFACE,
        heads=HEADS,
        serve=trained.model.serve,
        vocabularies=trained.vocabularies,
        golden=golden,
        notes={"dataset": trained.rows.dataset.origin, "seed": trained.seed},
    )


def export_saved_model(trained: Trained, directory: Path | str) -> Path:
    """Writes the uncut model as a SavedModel whose `serving_default` takes row numbers and client-tiled inputs [n,
    ...] (see models.stock.stock_inputs) and returns {head: float32 [n]}. The vocabularies go beside it. Returns
    `directory`."""
    model = trained.model

    @tf.function(input_signature=[input_specs(INTERFACE)], autograph=False)
    def predict(inputs):
        return {head: tf.sigmoid(logit) for head, logit in zip(HEADS, model(inputs), strict=True)}

    module = tf.Module()
    module.variables_kept = [variable.value for variable in model.variables]
    tf.saved_model.save(module, str(directory), signatures={"serving_default": predict})
    save_vocabularies(directory, trained.vocabularies)
    return Path(directory)
