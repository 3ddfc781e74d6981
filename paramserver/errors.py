"""What can go wrong in the parameter server, by whose fault it is.

ParamServerError
|-- CallerError                 the call is wrong; the same call will fail again
|   |-- OptionError             an option outside its range: dim, dtype, mode, rows_hint
|   |-- IdError                 ids that are not 64-bit integers
|   |-- ArrayError              an array of the wrong dtype, shape, layout or writability
|   |-- BagError                offsets that do not describe bags of the ids
|   |-- RowValueError           NaN, infinity, or a number that the table's dtype cannot hold
|   |-- EpochError              an epoch or a sequence that the table cannot take or no longer holds
|   |-- DeltaError              a delta that can never be taken
|   |   |-- ChecksumError       its content is not what its checksum says
|   |   |-- SequenceConflict    its sequence was taken by other content
|   |   `-- RetiredVersion      its base version is retired
|   |-- UnknownTable            no table of this name
|   |-- ShardMapError           a shard map that is no shard map, or not the one that both sides must hold
|   |-- ConfigError             a configuration that cannot be run; every problem at once
|   `-- ClosedError             use after close
|-- OperatingError              the call is right; the world is not
|   |-- TableFileError          a table file that cannot be read or written
|   |   |-- TableSchemaError    its columns, types or metadata are not a table's
|   |   |-- TableNullError      a null id, row or element
|   |   |-- TableValueError     NaN, infinity, or a number that the table's dtype cannot hold
|   |   `-- DuplicateIdError    an id twice
|   |-- SequenceGap             a delta came before one that must come first
|   |-- StoreError              a shard's directory that cannot be opened, read or written
|   |   |-- StoreLocked         another process has it open for writing
|   |   |-- StoreDamaged        a file of it is not what was written
|   |   `-- StoreFull           no space left: writes stop, reads go on
|   |-- RemoteError             a shard that cannot be reached or refused the call
|   |   `-- Unauthenticated     it asks for a token, and this one is not it
|   |-- MemoryExhausted         the system gave no memory
|   `-- InstructionSetError     PARAMSERVER_ISA asks for what this CPU lacks
`-- ProgrammerError             a broken invariant: a bug of this package
"""

__all__ = [
    "ArrayError",
    "BagError",
    "CallerError",
    "ChecksumError",
    "ClosedError",
    "ConfigError",
    "DeltaError",
    "DuplicateIdError",
    "EpochError",
    "IdError",
    "InstructionSetError",
    "MemoryExhausted",
    "OperatingError",
    "OptionError",
    "ParamServerError",
    "ProgrammerError",
    "RemoteError",
    "RetiredVersion",
    "RowValueError",
    "SequenceConflict",
    "SequenceGap",
    "ShardMapError",
    "StoreDamaged",
    "StoreError",
    "StoreFull",
    "StoreLocked",
    "TableFileError",
    "TableNullError",
    "TableSchemaError",
    "TableValueError",
    "Unauthenticated",
    "UnknownTable",
]


class ParamServerError(Exception):
    """Base of every error that this package raises on purpose."""


class CallerError(ParamServerError):
    """The caller's fault: the same call will fail again."""


class OptionError(CallerError, ValueError):
    """An option is outside its range; the message names it, its value and what was expected."""


class IdError(CallerError, TypeError):
    """Ids are not int64 or uint64; float ids are never converted, because float64 merges ids above 2**53."""


class ArrayError(CallerError, ValueError):
    """An array has the wrong dtype, shape, layout or writability; the message names it and what was expected."""


class BagError(CallerError, ValueError):
    """Offsets do not begin at 0, fall somewhere, or do not end at the number of ids."""


class RowValueError(CallerError, ValueError):
    """A row holds NaN, infinity, or a number that the table's dtype cannot hold; nothing of the batch was written."""


class EpochError(CallerError, ValueError):
    """An epoch or a sequence that the table cannot take, or no longer holds; the message names what it holds."""


class DeltaError(CallerError, ValueError):
    """A delta that can never be taken; the message names table, sequence and field."""


class ChecksumError(DeltaError):
    """A delta's content is not what its checksum says."""


class SequenceConflict(DeltaError):
    """A delta's sequence was taken before by other content."""


class RetiredVersion(DeltaError):
    """A delta's base version is retired: its rows belong to a model that no longer serves."""


class UnknownTable(CallerError, KeyError):
    """No table of this name; the message names those there are."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class ShardMapError(CallerError, ValueError):
    """A shard map that is no shard map, or that differs from the other side's."""


class ConfigError(CallerError, ValueError):
    """A configuration that cannot be run; the message lists every problem with its path."""


class ClosedError(CallerError, RuntimeError):
    """The object was closed before this call."""


class OperatingError(ParamServerError):
    """The call is right, but a file, the memory or the machine does not allow it."""


class TableFileError(OperatingError):
    """A table file cannot be read or written; the message names the path."""


class TableSchemaError(TableFileError):
    """A table file lacks a column, or a column has a type or a width that does not fit."""


class TableNullError(TableFileError):
    """A table file holds a null id, row or element; the message names column and row."""


class TableValueError(TableFileError):
    """A table file holds NaN, infinity or a number too large for the dtype; the message names column and row."""


class DuplicateIdError(TableFileError):
    """A table file holds an id twice; the message names the id and a row."""


class SequenceGap(OperatingError):
    """A delta came before one that must come first; `missing` is the first and last sequence to send before it."""

    def __init__(self, message: str, missing: tuple[int, int] = (0, 0)) -> None:
        super().__init__(message)
        self.missing = missing


class StoreError(OperatingError):
    """A shard's directory cannot be opened, read or written; the message names the path."""


class StoreLocked(StoreError):
    """Another process has the directory open for writing."""


class StoreDamaged(StoreError):
    """A file of the directory is not what was written; the message names it and what to do."""


class StoreFull(StoreError):
    """No space left: nothing of this write was taken; reads go on, and writes do once there is space."""


class RemoteError(OperatingError):
    """A shard cannot be reached or refused the call; the message names its address."""


class Unauthenticated(RemoteError):
    """A shard's server asks for a bearer token, and none came or one that it does not know for such a call."""


class MemoryExhausted(OperatingError):
    """The system gave no memory for a table; a batch may have been written in part."""


class InstructionSetError(OperatingError):
    """PARAMSERVER_ISA names an instruction set that is unknown or that this CPU lacks."""


class ProgrammerError(ParamServerError):
    """An invariant of this package is broken: please report it."""
