"""Training of the DIN MMoE model. Importing this imports tensorflow.

The defaults were chosen on the last fifth by time of the training part; the test part took no part in any choice.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import keras
import numpy as np
import tensorflow as tf

from .baselines import baseline_aucs, past_means
from .errors import ConfigError, DatasetError
from .examples import Examples, build_vocabularies
from .features import LIKED_FROM, RatedRows
from .inputs import INTERFACE
from .metrics import auc, bootstrap_interval, ndcg
from .moments import Split
from .movielens import Dataset
from .tensors import input_specs, tensors
from .vocabulary import Vocabulary
from .zoo.din_mmoe import HEADS, DinMmoe, DinMmoeConfig

__all__ = ["Evaluation", "Progress", "TrainConfig", "Trained", "evaluate", "train"]

_PREDICT_ROWS = 8_192


@dataclass(frozen=True)
class TrainConfig:
    """How to train. `oov_share`: the share of table ids replaced by the out-of-vocabulary row, to train that row.

    Raises ConfigError listing every problem.
    """

    model: DinMmoeConfig = field(default_factory=DinMmoeConfig)
    epochs: int = 3
    batch_rows: int = 1024
    learning_rate: float = 4e-3
    engaged_weight: float = 0.5
    oov_share: float = 0.015
    test_share: float = 0.2

    def __post_init__(self) -> None:
        """Refuse what cannot train, all problems at once."""
        problems = [f"{name} is {value}; expected 1 or more"
                    for name, value in (("epochs", self.epochs), ("batch_rows", self.batch_rows)) if value < 1]
        problems += [f"{name} is {value}; expected more than 0 and less than 1"
                     for name, value in (("learning_rate", self.learning_rate), ("test_share", self.test_share))
                     if not 0 < value < 1]
        if not 0 <= self.oov_share < 1 or not self.engaged_weight >= 0:
            problems.append("oov_share must be 0 or more and less than 1, engaged_weight 0 or more")
        if problems:
            raise ConfigError("; ".join(problems))


@dataclass(frozen=True)
class Progress:
    """Where training stands after a step; `loss` is the mean over the epoch so far."""

    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained model with what export and evaluation need. `seconds`: the training loop alone, extraction excluded."""

    model: DinMmoe
    vocabularies: dict[str, Vocabulary]
    rows: RatedRows
    split: Split
    examples: Examples
    config: TrainConfig
    seed: int
    seconds: float

    def scores(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Probabilities {head: float32 [b]} of rating rows [b]."""
        parts = [self._predict(tensors(self.examples.batch(rows[start:start + _PREDICT_ROWS])))
                 for start in range(0, len(rows), _PREDICT_ROWS)]
        return {head: np.concatenate([part[i].numpy() for part in parts]) for i, head in enumerate(HEADS)}

    @cached_property
    def _predict(self):
        return tf.function(lambda inputs: [tf.sigmoid(logit) for logit in self.model(inputs)],
                           input_signature=[input_specs(INTERFACE)], autograph=False)


@dataclass(frozen=True)
class Evaluation:
    """Test figures: `auc` and its 95% bootstrap `interval` over users are of `liked`; `baselines` as
    models.baselines."""

    auc: float
    interval: tuple[float, float]
    auc_engaged: float
    ndcg_10: float
    baselines: dict[str, float]


def train(
    dataset: Dataset,
    config: TrainConfig | None = None,
    seed: int = 0,
    progress: Callable[[Progress], None] | None = None,
) -> Trained:
    """Trains on the first part of `dataset` by time. `progress` is called after every step.

    Seeds Python's, numpy's and tensorflow's global generators. Raises DatasetError when there is too little to train
    on.
    """
    config = config or TrainConfig()
    rows = RatedRows(dataset)
    split = rows.split(config.test_share)
    if len(split.train) < 2:
        raise DatasetError(f"{len(split.train)} training rows; a model needs at least 2")
    vocabularies = build_vocabularies(rows, split.train)
    examples = Examples(rows, vocabularies)
    keras.utils.set_random_seed(seed)
    model = DinMmoe({name: v.table_rows for name, v in vocabularies.items()}, config.model)
    model(tensors(examples.batch(split.train[:2])))
    started = time.perf_counter()
    _fit(model, examples, split.train, config, np.random.default_rng(seed), progress or (lambda _: None))
    return Trained(model, vocabularies, rows, split, examples, config, seed, time.perf_counter() - started)


def evaluate(trained: Trained, bootstrap_rounds: int = 200) -> Evaluation:
    """Figures on the test part, which training never saw."""
    rows, test = trained.rows, trained.split.test
    liked, scores = rows.labels["liked"], trained.scores(test)
    prior = float(liked[trained.split.train].mean())
    test_liked, test_users = liked[test], rows.user_ids[test]
    return Evaluation(
        auc=auc(test_liked, scores["liked"]),
        interval=bootstrap_interval(lambda at: auc(test_liked[at], scores["liked"][at]), test_users, bootstrap_rounds),
        auc_engaged=auc(rows.labels["engaged"][test], scores["engaged"]),
        ndcg_10=ndcg(test_liked, scores["liked"], test_users, 10),
        baselines=baseline_aucs(rows.item_ids, liked, past_means(rows.moments, LIKED_FROM, prior), trained.split),
    )


def _fit(model: DinMmoe, examples: Examples, rows: np.ndarray, config: TrainConfig, rng: np.random.Generator,
         progress: Callable[[Progress], None]) -> None:
    steps = -(-len(rows) // config.batch_rows)
    step = _step(model, config, steps * config.epochs)
    for epoch in range(config.epochs):
        order, total = rng.permutation(rows), 0.0
        for number in range(steps):
            chosen = order[number * config.batch_rows:(number + 1) * config.batch_rows]
            labels = [tf.constant(examples.labels[head][chosen]) for head in HEADS]
            total += float(step(tensors(examples.batch(chosen, rng, config.oov_share)), labels))
            progress(Progress(epoch + 1, config.epochs, number + 1, steps, total / (number + 1)))


def _step(model: DinMmoe, config: TrainConfig, steps: int):
    schedule = keras.optimizers.schedules.CosineDecay(config.learning_rate, steps, alpha=0.02)
    optimizer = keras.optimizers.Adam(schedule)
    optimizer.build(model.trainable_variables)
    weights = (1.0, config.engaged_weight)
    label_specs = [tf.TensorSpec([None], tf.float32)] * len(HEADS)

    @tf.function(input_signature=[input_specs(INTERFACE), label_specs], autograph=False)
    def step(inputs, labels):
        with tf.GradientTape() as tape:
            logits = model(inputs, training=True)
            losses = [weight * tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(label, logit))
                      for weight, label, logit in zip(weights, labels, logits, strict=True)]
            loss = tf.add_n(losses)
            table = tf.convert_to_tensor(model.item.embeddings)
            penalised = loss + config.model.embedding_l2 * tf.reduce_sum(tf.square(table))
        gradients = tape.gradient(penalised, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    return step
