"""A writer killed at any system call: its directory opens, holds all that was acknowledged, and nothing by halves.

Each proof also runs on a store with the protection in question taken away, and must then fail.
"""

import random
import subprocess

import pytest
from paramserver.errors import StoreError

from tests.paramserver.store.mortal import HERE, Place, Run, Shim, check, forget, run_writer

SCRIPT = ["stage", "stage", "stage", "publish", "stage", "publish", "rollback", "expire", "stage", "publish",
          "checkpoint", "stage", "snapshot", "version", "stage"]


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    """death.c, compiled."""
    path = tmp_path_factory.mktemp("death") / "death.so"
    subprocess.run(["cc", "-std=gnu11", "-O1", "-shared", "-fPIC", "-o", path, HERE.with_name("death.c"), "-ldl",
                    "-pthread"], check=True)
    return path


def calls_of(place, library, **fields):
    """The calls of a script that nobody interrupts; it leaves nothing."""
    died, calls = run_writer(place, Run(script=SCRIPT, **fields), Shim(library))
    assert not died and len(calls) > 100
    check(place, fields.get("durability", "process"))
    forget(place)
    return calls


def die_at(place, library, number, how, power=False, **fields):
    """Run the script up to one call, and check what is left."""
    died, _ = run_writer(place, Run(script=SCRIPT, **fields), Shim(library, number, how, power))
    assert died
    check(place, fields.get("durability", "process"))
    forget(place)


def fails_somewhere(place, library, points, how, power=False, **fields):
    """Whether one of the deaths leaves what must not be."""
    for number in points:
        try:
            die_at(place, library, number, how, power, **fields)
        except (AssertionError, StoreError) as error:
            return str(error) or type(error).__name__
    return None


def spread(calls, n, rng):
    """n calls, of as many kinds and places as there are."""
    kinds = {}
    for number, call, path in calls:
        kinds.setdefault((call, path.rsplit("/", 1)[0].rsplit("/", 1)[-1][:8]), []).append(number)
    chosen = [rng.choice(numbers) for numbers in kinds.values()]
    return sorted(rng.sample(chosen, min(n, len(chosen))))


def paths(calls, *ends):
    """The calls that write or rename files of such names."""
    return [number for number, call, path in calls if path.rsplit("/", 1)[-1].endswith(ends) and call in
            ("write", "pwrite", "rename", "link")]


def test_a_writer_dies_at_a_few_of_its_calls(tmp_path, library):
    place = Place(tmp_path / "a")
    calls = calls_of(place, library)
    for i, number in enumerate(spread(calls, 3, random.Random(1))):
        die_at(place, library, number, ("before", "half", "after")[i % 3])


def test_a_synced_writer_loses_power_at_a_few_of_its_calls(tmp_path, library):
    place = Place(tmp_path / "a")
    calls = calls_of(place, library, durability="sync")
    for number in spread(calls, 2, random.Random(2)):
        die_at(place, library, number, "before", power=True, durability="sync")


def test_without_renames_the_proof_fails(tmp_path, library):
    place = Place(tmp_path / "a")
    points = paths(calls_of(place, library, broken="rename"), f"{2:020d}.json")
    said = fails_somewhere(place, library, points, "half", broken="rename")
    assert said and "epochs" in said
    forget(place)
    points = paths(calls_of(place, library, broken="rename"), "manifest.json", ".parquet", ".snap")
    assert fails_somewhere(place, library, points[-4:], "half", broken="rename")


@pytest.mark.parametrize(("broken", "durability"), [("log_sync", "sync"), ("fsync", "sync"), ("", "process")])
def test_without_syncs_the_proof_fails_when_the_power_fails(tmp_path, library, broken, durability):
    place = Place(tmp_path / "a")
    calls = calls_of(place, library, durability=durability, broken=broken)
    said = fails_somewhere(place, library, [calls[-1][0], calls[len(calls) // 2][0]], "before", True,
                           durability=durability, broken=broken)
    assert said is not None


@pytest.mark.slow
def test_a_writer_dies_at_each_of_its_calls(tmp_path, library):
    place = Place(tmp_path / "a")
    for number, call, _ in calls_of(place, library):
        die_at(place, library, number, "before")
        if call.endswith("write"):
            die_at(place, library, number, "half")


@pytest.mark.slow
def test_a_synced_writer_loses_power_at_each_of_its_calls(tmp_path, library):
    place = Place(tmp_path / "a")
    for number, _, _ in calls_of(place, library, durability="sync"):
        die_at(place, library, number, "before", power=True, durability="sync")


@pytest.mark.slow
def test_a_hundred_deaths_at_random_points_of_random_histories(tmp_path, library):
    """Each writer goes on in the directory that the last one left; every tenth begins anew."""
    rng, deaths, seed = random.Random(11), 0, 0
    while deaths < 100:
        place = Place(tmp_path / str(deaths // 10))
        seed += 1
        run = Run(seed=seed, durability="sync" if deaths % 20 >= 10 else "process")
        shim = Shim(library, int(rng.expovariate(1 / 120)) + 1, rng.choice(["before", "half", "after"]),
                    power=run.durability == "sync")
        died, _ = run_writer(place, run, shim)
        deaths += died
        check(place, run.durability)


@pytest.mark.slow
def test_kills_from_outside_at_random_times(tmp_path, library):
    place, rng = Place(tmp_path / "a"), random.Random(4)
    for seed in range(25):
        run_writer(place, Run(seed=seed, steps=60), Shim(library), kill_after_s=rng.uniform(0.5, 6.0))
        check(place)
