"""One tiny trained model for the whole suite: training it is what costs time."""

import pytest

from models.movielens import generated_dataset

TINY_RATINGS, TINY_USERS, TINY_ITEMS = 3_000, 60, 150


@pytest.fixture(scope="session")
def tiny_dataset():
    return generated_dataset(TINY_RATINGS, TINY_USERS, TINY_ITEMS, seed=1)


@pytest.fixture(scope="session")
def tiny_config():
    from models.train import TrainConfig
    from models.zoo import DinMmoeConfig

    sizes = DinMmoeConfig(item_dim=6, genre_dim=4, profile_dim=2, attention_units=(8,), experts=2, expert_units=(8,),
                          tower_units=(4,))
    return TrainConfig(model=sizes, epochs=2, batch_rows=256, learning_rate=1e-2)


@pytest.fixture(scope="session")
def tiny_trained(tiny_dataset, tiny_config):
    from models.train import train

    return train(tiny_dataset, tiny_config, seed=3)


@pytest.fixture(scope="session")
def tiny_package(tiny_trained, tmp_path_factory):
    from models.export import export
    from models.trained import servable

    return export(servable(tiny_trained), tmp_path_factory.mktemp("repository"), 1, notes={"purpose": "test"})
