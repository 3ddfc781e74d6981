"""Versions of one model whose scores tell them apart, and a service's configuration that watches for them."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from lambda_svc import config as config_file
from tests.lambda_svc.world import World, config_text

PATIENCE_S = 60


def later_world(factor: float) -> World:
    """The same users and items, with other weights and other rows: a graph with the other's tables scores otherwise."""
    world = World()
    world.weights = {name: (value * factor).astype(np.float32) for name, value in world.weights.items()}
    for table in world.tables.values():
        table["rows"] = {key: row * np.float32(factor) for key, row in table["rows"].items()}
    return world


WORLDS = {1: World(), 2: later_world(-1.5), 3: later_world(0.25)}


def configured(home: Path, extra: str = "", **scenario) -> config_file.ServiceConfig:
    (home / "config.yaml").write_text(f"{config_text(home, **scenario)}repository_poll_s: 0.02\n{extra}")
    return config_file.load(home / "config.yaml")


def until(what, told: str = "it did not come about") -> None:
    """Waits for something another thread brings about."""
    end = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < end, f"after {PATIENCE_S} s: {told}"
        time.sleep(0.005)
