"""Models that the suites of `adopt` share."""

import pytest

from models.loaders import load_saved_model

from .recorded import predict_log, requests, save_ranker, write_records


@pytest.fixture(scope="session")
def ranker(tmp_path_factory):
    """The folder of a small SavedModel."""
    return save_ranker(tmp_path_factory.mktemp("adopt") / "ranker")


@pytest.fixture(scope="session")
def loaded(ranker):
    """The same, loaded."""
    return load_saved_model(ranker)


@pytest.fixture(scope="session")
def warmup(tmp_path_factory):
    """A warm-up file of five requests for it."""
    return write_records(tmp_path_factory.mktemp("adopt") / "warmup", map(predict_log, requests()))
