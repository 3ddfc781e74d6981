"""The least that can serve a package: plain dictionaries for tables, numpy pooling, a session on the frozen graph."""

import numpy as np
import pyarrow.ipc as ipc
import pyarrow.parquet as pq
import tensorflow as tf

from feature_store import Column, Extractor
from models.package import verify
from models.tables import DEFAULT_ROW_KEY

from .graph_session import GraphSession


class ServedPackage:
    """A package of one request at a time."""

    def __init__(self, directory):
        self.manifest = verify(directory)
        self.graph_def = tf.compat.v1.GraphDef.FromString((directory / self.manifest.graph.file).read_bytes())
        self.session, self.tables = GraphSession(self.graph_def), {}
        self.golden = ipc.open_file(str(directory / self.manifest.golden.file)).read_all()
        for table in self.manifest.tables:
            file = pq.read_table(directory / table.file)
            rows = file["row"].combine_chunks().flatten().to_numpy().reshape(-1, table.dim)
            default = np.frombuffer(file.schema.metadata[DEFAULT_ROW_KEY], "<f4")
            self.tables[table.name] = (dict(zip(file["id"].to_pylist(), rows, strict=True)), default)

    def rows(self, table, ids):
        """float32 [..., dim]: the rows of ids, the default row for those unknown."""
        known, default = self.tables[table]
        rows = np.array([known.get(int(i), default) for i in ids.reshape(-1)], np.float32)
        return rows.reshape(*ids.shape, len(default))

    def feed(self, source, slot):
        """The array of one graph input."""
        if source.kind == "values":
            return slot.values
        if source.kind == "lengths":
            return slot.lengths
        rows = self.rows(source.table, slot.values)
        if source.kind == "pooled":
            spans = zip(slot.offsets, slot.offsets[1:], strict=False)
            dim = self.manifest.table(source.table).dim
            return np.array([rows[a:b].mean(0) if b > a else np.zeros(dim) for a, b in spans], np.float32)
        if slot.lengths is not None:
            rows[np.arange(rows.shape[1])[None, :] >= slot.lengths[:, None]] = 0
        return rows

    def scores(self, slots):
        """One float32 [n] a head."""
        feeds = {i.name: self.feed(i.source, slots[i.source.slot]) for i in self.manifest.graph.inputs}
        for entry in self.manifest.graph.inputs:
            if 1 in entry.shape[1:]:  # a slot of one value is [n], which feeds [n, 1] as well
                feeds[entry.name] = feeds[entry.name].reshape(-1, *entry.shape[1:])
            assert [d for d in feeds[entry.name].shape][1:] == list(entry.shape[1:])
            assert entry.side == "item" or feeds[entry.name].shape[0] == 1
        return self.session.run([o.name for o in self.manifest.graph.outputs], feeds)

    def golden_error(self):
        """How far the scores of any head are from the golden ones."""
        worst, groups = 0.0, self.golden["group"].to_numpy()
        heads = [output.head for output in self.manifest.graph.outputs]
        for group in np.unique(groups):
            rows = self.golden.filter(groups == group)
            slots = {name: slot for side in ("user", "context", "item")
                     for name, slot in self._gather(side, rows if side == "item" else rows.slice(0, 1)).items()}
            for head, got in zip(heads, self.scores(slots), strict=True):
                worst = max(worst, np.abs(got - rows[f"score:{head}"].to_numpy()).max())
        return worst

    def _gather(self, side, rows):
        schema = self.manifest.schema
        if not self.manifest.slots_of(side):
            return {}
        columns = {f.name: Column.of(f, rows[f"{side}:{f.name}"]) for f in schema.side(side)}
        return Extractor(schema, self.manifest.slots, side).gather(np.zeros(len(rows), np.int64), columns)
