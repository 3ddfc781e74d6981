"""A table that another process of this host owns, mapped read-only: no copy of its memory, no call to its process."""

from dataclasses import dataclass
from os import PathLike, fspath

from paramserver import _core, arrays
from paramserver.lookups import StoredLookups
from paramserver.status import RowStatus

__all__ = ["MappedStats", "MappedTable"]


@dataclass(frozen=True)
class MappedStats:
    """What was asked of a mapped table in this process."""

    instruction_set: str  #: "scalar", "avx2" or "avx512"
    retries: int  #: how often ids were read anew because the owner had used their memory again meanwhile
    lookups: int  #: calls of lookup and lookup_pooled
    statuses: dict[str, int]  #: ids looked up, by the name of their RowStatus


class MappedTable(StoredLookups):
    """The table that its owner made with Table(..., shared=path), as its owner has published it until now. Any thread
    may read; nothing here can hold the owner up, and a reader may be killed at any time. Calls release the GIL.

    When the owner ends, what was published last stays readable (owner_alive tells); a new owner makes a new file, which
    a new MappedTable opens.

    path: the owner's. instruction_set: as Table's. Raises StoreError when the file cannot be opened or mapped,
    StoreDamaged when it is no shared table of this release, InstructionSetError.
    """

    def __init__(self, path: str | PathLike[str], *, instruction_set: str | None = None) -> None:
        self._path = fspath(path)
        self._core = _core.MappedTable(self._path, instruction_set)
        self._dim = self._core.dim()

    @property
    def name(self) -> str:
        """How the owner calls the table."""
        return self._core.name()

    @property
    def dtype(self) -> str:
        """How rows are stored: "f32", "f16", "bf16" or "int8"."""
        return arrays.DTYPES[self._core.stored()]

    @property
    def epoch(self) -> int:
        """The newest epoch, 0 before the first."""
        return self._core.epoch()

    @property
    def owner_alive(self) -> bool:
        """Whether the process that owns the table still runs."""
        return self._core.owner_alive()

    def stats(self) -> MappedStats:
        """What was asked of this mapping so far."""
        *rest, statuses = self._core.stats()
        return MappedStats(*rest, {one.name.lower(): statuses[one] for one in RowStatus})

    def __repr__(self) -> str:
        return f"MappedTable({self._path!r}, dim={self._dim}, dtype={self.dtype!r}, epoch={self.epoch})"
