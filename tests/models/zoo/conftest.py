"""Every zoo model at its small size, exported once for the whole suite."""

import pytest


@pytest.fixture(scope="session")
def zoo_repository(tmp_path_factory):
    """A model repository with version 1 of every small model."""
    from models import zoo
    from models.export import export

    repository = tmp_path_factory.mktemp("zoo")
    for name in zoo.NAMES:
        export(zoo.get(name, "small").servable(seed=5), repository, 1)
    return repository
