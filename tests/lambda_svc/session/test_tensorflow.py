"""Finding the library, and checking session options."""

from __future__ import annotations

import pytest

from lambda_svc.errors import ConfigError, EngineUnavailable
from lambda_svc.session import tensorflow
from lambda_svc.session.tensorflow import TensorFlowOptions, find_library


def test_thread_counts_of_zero_mean_what_the_process_may_use(monkeypatch):
    monkeypatch.setattr(tensorflow, "usable_cpus", lambda: 7)
    config = tensorflow.SessionConfig.FromString(TensorFlowOptions(inter_op_threads=0).config_proto())
    assert config.intra_op_parallelism_threads == config.inter_op_parallelism_threads == 7


@pytest.mark.parametrize("wrong", [dict(intra_op_threads=-1), dict(executor="FAST")])
def test_options_are_checked(wrong):
    with pytest.raises(ConfigError, match="expected"):
        TensorFlowOptions(**wrong)


def test_the_library_is_found_without_importing_the_package():
    cc, framework = find_library()
    assert cc.is_file() and framework.is_file()


def test_a_missing_library_says_what_to_install(monkeypatch):
    monkeypatch.setattr(tensorflow, "find_spec", lambda name: None)
    with pytest.raises(EngineUnavailable, match="pip install tensorflow-cpu"):
        find_library()
