"""A shard's writer that may die at any system call, and what must be true of its directory afterwards.

The writer (run as a script under death.c) says in a file outside the store what it is about to do, "will ...", and what
was acknowledged, "did ...". All rows follow from version, table and sequence, so a checker knows every state.
"""

import json
import os
import random
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from paramserver import durable
from paramserver.delta import Delta
from paramserver.epoch import Epoch, read_epochs, write_epoch
from paramserver.publish import rollback
from paramserver.store import read_manifest, store as store_
from paramserver.store.bases import verify_file

from tests.paramserver.store.making import BASE_IDS, open_store, rows_of, table_file

TABLES = ("item", "user")
HERE = Path(__file__).resolve()


@dataclass(frozen=True)
class Place:
    """The folders of one cluster with one shard, and of what is said of it."""

    root: Path

    @property
    def store(self):
        return self.root / "live" / "store"

    @property
    def cluster(self):
        return self.root / "live" / "cluster"

    @property
    def snapshots(self):
        return self.root / "live" / "snapshots"

    @property
    def said(self):
        return self.root / "said"

    @property
    def sources(self):
        return self.root / "sources"


@dataclass
class Run:
    """How a writer runs: with which durability, and whether one of the store's protections is taken away."""

    durability: str = "process"
    seed: int = 0
    steps: int = 12
    broken: str = ""
    script: list = field(default_factory=list)


def delta_for(version, table, sequence):
    """The one delta of that number: every third is large enough for a file of its own."""
    rng = random.Random(f"{version} {table} {sequence}")
    ids = np.array(rng.sample(range(-3000, 6000), 5000 if sequence % 3 == 0 else 9), np.int64)
    rows = rows_of(ids, 1000 * version + 10 * sequence + len(table))
    return Delta(table, version, sequence, ids, rows, np.array(rng.sample(range(7000, 7010), 2), np.int64))


def rows_for(version, table, sequences):
    """{id: row} of a version's base with those deltas on top."""
    rows = dict(zip(BASE_IDS.tolist(), rows_of(BASE_IDS, version).tolist(), strict=True))
    for sequence in sequences:
        delta = delta_for(version, table, sequence)
        rows.update(zip(delta.ids.tolist(), delta.rows.tolist(), strict=True))
        for i in delta.deletes.tolist():
            rows.pop(i, None)
    return rows


class Writer:
    """Does steps to a store, drawn at random or told, and says so."""

    def __init__(self, place, run):
        self.place, self.run = place, run
        self._said = os.open(place.said, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.store = open_store(place.store, durability=run.durability, hold_s=0.0)
        self.say("did open")
        self.store.adopt(place.cluster)

    def say(self, text):
        os.write(self._said, text.encode() + b"\n")

    def live(self):
        rng = random.Random(self.run.seed)
        steps = self.run.script or rng.choices(["stage", "publish", "expire", "checkpoint", "snapshot", "version",
                                                "rollback"], [8, 4, 2, 2, 1, 1, 1], k=self.run.steps)
        if not self.store.versions():
            self.version()
        for step in steps:
            getattr(self, step)()
        self.store.close()
        self.say("did close")

    def version(self):
        version = max(self.store.versions(), default=0) + 1
        self.say(f"will add {version}")
        files = {table: self.place.sources / f"{table}-{version}.parquet" for table in TABLES}
        for path in files.values():
            table_file(path, salt=version)
        self.store.add_snapshot(version, files)
        self.say(f"did add {version}")
        if version > 1:
            self.publish()
            for old in self.store.versions()[:-1]:
                self.store.expire()
                self.say(f"will retire {old}")
                self.store.retire(old)
                self.say(f"did retire {old}")

    def stage(self):
        version = max(self.store.versions())
        for table in TABLES:
            status = self.store.status()["versions"][str(version)][table]
            if status["waits_for_leases"]:
                self.store.expire()
            sequence = self.store.following(version, table)
            self.say(f"will stage {version} {table} {sequence}")
            outcome = self.store.stage(delta_for(version, table, sequence))
            assert outcome == "applied", outcome
            self.say(f"did stage {version} {table} {sequence}")

    def publish(self):
        version = max(self.store.versions())
        sequences = {table: status["sequence"] for table, status in
                     self.store.status()["versions"][str(version)].items()}
        numbers = [epoch.number for epoch in read_epochs(self.place.cluster)]
        epoch = Epoch(max(numbers, default=0) + 1, version, sequences)
        self.say(f"will publish {epoch.number}")
        write_epoch(self.place.cluster, epoch)
        self.say(f"did publish {epoch.number}")
        self.store.adopt(self.place.cluster)

    def rollback(self):
        version = max(self.store.versions())
        held = [epoch.number for epoch in self.store.epochs() if epoch.package_version == version]
        if len(held) > 1:
            epoch = rollback(self.place.cluster, held[0])
            self.say(f"did publish {epoch.number}")
            self.store.adopt(self.place.cluster)

    def expire(self):
        self.store.expire()

    def checkpoint(self):
        self.store.checkpoint(max(self.store.versions()))

    def snapshot(self):
        if self.store.epochs():
            name = f"{len(list(self.place.snapshots.parent.glob('snapshots/*')))}-{self.run.seed}"
            if not (self.place.snapshots / name).exists():
                self.store.snapshot(self.place.snapshots / name)
                self.say(f"did snapshot {name}")


def break_protection(which):
    """Take one protection of the product away, in this process only."""
    if which == "rename":
        durable.move_into_place = durable.link_into_place = write_in_place
    elif which == "fsync":
        os.fsync = lambda descriptor: None
    elif which == "log_sync":
        log = store_.DeltaLog
        store_.DeltaLog = lambda *places, sync, **options: log(*places, sync=False, **options)
    elif which:
        raise ValueError(which)


def write_in_place(source, target):
    """What a rename does, by writing at the place itself."""
    pairs = [(source, target)]
    if source.is_dir():
        target.mkdir()
        pairs = [(path, target / path.name) for path in sorted(source.iterdir())]
    for one, other in pairs:
        with open(other, "wb") as file:
            file.write(one.read_bytes())
            file.flush()
            os.fsync(file.fileno())


@dataclass
class Shim:
    """death.c, compiled, and how it shall strike."""

    library: Path
    kill_at: int = 0
    how: str = "before"
    power: bool = False


def run_writer(place, run, shim, kill_after_s=240.0):
    """Run a writer to its end or to its death, by the shim or from outside. Returns whether it died, and the calls that
    it made, as (number, call, path)."""
    for folder in (place.store.parent, place.sources, place.root / "scratch"):
        folder.mkdir(parents=True, exist_ok=True)
    log = place.root / "calls"
    log.unlink(missing_ok=True)
    environment = {"PYTHONPATH": os.pathsep.join(sys.path), "PATH": os.environ["PATH"], "LD_PRELOAD": str(shim.library),
                   "SHIM_ROOT": str(place.store.parent), "SHIM_SCRATCH": str(place.root / "scratch"),
                   "SHIM_LOG": str(log), "SHIM_KILL_AT": str(shim.kill_at), "SHIM_KILL_HOW": shim.how,
                   "SHIM_POWER": str(int(shim.power))}
    command = [sys.executable, HERE, place.root, json.dumps(vars(run))]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            said = process.communicate(timeout=kill_after_s)[1]
        except subprocess.TimeoutExpired:
            process.kill()
            said = process.communicate()[1]
    assert process.returncode in (0, -9), said
    calls = [line.split(" ", 2) for line in log.read_text().splitlines()] if log.exists() else []
    return process.returncode == -9, [(int(number), call, path) for number, call, path in calls]


def said(place):
    """What writers said, a line each; the last may be missing its end."""
    return place.said.read_text().splitlines() if place.said.exists() else []


def check(place, durability="process"):
    """Raise AssertionError or a StoreError unless the directory opens, holds all that was acknowledged, and shows
    whole states only. It leaves the store one epoch further, so that what was staged is looked at too."""
    did = [line.split()[1:] for line in said(place) if line.startswith("did ")]
    retired = {int(v) for what, *v in did if what == "retire" for v in v}
    retiring = {int(line.split()[2]) for line in said(place) if line.startswith("will retire")}
    epochs = {epoch.number: epoch for epoch in read_epochs(place.cluster)}
    assert {int(number) for what, *number in did if what == "publish" for number in number} <= set(epochs)
    for name in [name for what, *name in did if what == "snapshot" for name in name]:
        assert (place.snapshots / name).is_dir()
    for folder in place.snapshots.iterdir() if place.snapshots.exists() else ():
        if not folder.name.startswith("."):
            base = read_manifest(folder)
            for table in base.tables.values():
                verify_file(folder / table.file, table)
    with open_store(place.store, durability=durability, hold_s=0.0) as store:
        assert {int(v) for what, *v in did if what == "add" for v in v} - retiring <= set(store.versions())
        assert not retired & set(store.versions()) and store.lost == []
        store.adopt(place.cluster)
        abandoned = abandoned_of(epochs)
        for version in store.versions():
            for table in TABLES:
                staged = [int(w[2]) for what, *w in did if what == "stage" and w[:2] == [str(version), table]]
                kept = [s for s in staged if s not in abandoned.get((version, table), ())]
                assert store.tables(version)[table].sequence >= max(kept, default=0)
        if epochs:
            newest = epochs[max(epochs)]
            assert store.epochs()[-1] == newest
            expect_rows(store, newest, abandoned)
        store.expire()
        if store.versions():
            version = max(store.versions())
            epoch = Epoch(max(epochs, default=0) + 1, version,
                          {table: store.tables(version)[table].sequence for table in TABLES})
            write_epoch(place.cluster, epoch)
            # What `adopt` would leave for later is a failure here.
            store.publish(epoch)
            assert store.adopt(place.cluster) == []
            expect_rows(store, epoch, abandoned)


def expect_rows(store, epoch, abandoned):
    for table in TABLES:
        key = (epoch.package_version, table)
        sequences = [s for s in range(1, epoch.sequences[table] + 1) if s not in abandoned.get(key, ())]
        found = store.tables(epoch.package_version)[table]
        ids = found.ids(epoch=epoch.number)
        rows = dict(zip(ids.tolist(), found.lookup(ids, epoch=epoch.number).tolist(), strict=True))
        assert rows == rows_for(*key, sequences), f"epoch {epoch}, table {table}"


def abandoned_of(epochs):
    """{(version, table): sequences that rollbacks gave up}."""
    gone = {}
    for epoch in epochs.values():
        for table, last in epoch.abandoned.items():
            gone.setdefault((epoch.package_version, table), set()).update(range(epoch.sequences[table] + 1, last + 1))
    return gone


def forget(place):
    """Remove everything."""
    shutil.rmtree(place.root)


if __name__ == "__main__":
    told = Run(**json.loads(sys.argv[2]))
    break_protection(told.broken)
    Writer(Place(Path(sys.argv[1])), told).live()
