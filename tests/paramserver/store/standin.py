"""A table of deltas in plain Python, as far as the store uses one."""

import numpy as np
from paramserver.errors import EpochError
from paramserver.reference import ReferenceTable


class DeltaTable(ReferenceTable):
    """ReferenceTable with sequences: a copy of the dict for each."""

    def __init__(self, name, dim, *, base_sequence=0, **options):
        super().__init__(name, dim, **options)
        self.sequence = base_sequence
        self._states = [(base_sequence, self._rows)]
        self._epochs = []

    def apply(self, sequence, ids, rows, deletes=(), time_s=None, after=None):
        after = sequence - 1 if after is None else after
        if after != self.sequence:
            raise EpochError(f"{sequence} after {after}, at {self.sequence}")
        stored = self._rounded(rows, "rows")
        new = dict(self._states[-1][1])
        new.update(zip(np.asarray(ids).tolist(), stored.copy(), strict=True))
        for i in np.asarray(deletes, np.int64).tolist():
            new.pop(i, None)
        self._states.append((sequence, new))
        self._rows, self.sequence = new, sequence

    def revert(self, sequence):
        if any(s > sequence for _, s in self._epochs):
            raise EpochError("an epoch shows it")
        while self._states[-1][0] > sequence:
            self._states.pop()
        assert self._states[-1][0] == sequence
        self.sequence, self._rows = self._states[-1]

    def publish(self, epoch, sequence):
        if (epoch, sequence) in self._epochs:
            return
        shown = [s for _, s in self._epochs]
        if sequence not in dict(self._states) or (shown and sequence < shown[-1] and sequence not in shown):
            raise EpochError(f"sequence {sequence}")
        self._epochs.append((epoch, sequence))

    def retire(self, epoch):
        if epoch not in dict(self._epochs) or epoch == self._epochs[-1][0]:
            raise EpochError(f"epoch {epoch}")
        self._epochs = [item for item in self._epochs if item[0] != epoch]

    def epochs(self):
        return list(self._epochs)

    def _at(self, epoch):
        if epoch == 0:
            return dict(self._states)[self._epochs[-1][1]] if self._epochs else self._states[0][1]
        return dict(self._states)[dict(self._epochs)[epoch]]

    def ids(self, epoch=0):
        return np.array(sorted(self._at(epoch)), np.int64)

    def lookup(self, ids, out=None, status=None, epoch=0):
        kept, self._rows = self._rows, self._at(epoch)
        try:
            return super().lookup(ids, out, status)
        finally:
            self._rows = kept
