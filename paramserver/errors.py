"""What can go wrong in the parameter server, by whose fault it is.

ParamServerError
|-- CallerError                 the call is wrong; the same call will fail again
|   |-- OptionError             an option outside its range: dim, dtype, mode, rows_hint
|   |-- IdError                 ids that are not 64-bit integers
|   |-- ArrayError              an array of the wrong dtype, shape, layout or writability
|   |-- BagError                offsets that do not describe bags of the ids
|   `-- RowValueError           NaN, infinity, or a number that the table's dtype cannot hold
|-- OperatingError              the call is right; the world is not
|   |-- TableFileError          a table file that cannot be read or written
|   |   |-- TableSchemaError    its columns, types or metadata are not a table's
|   |   |-- TableNullError      a null id, row or element
|   |   |-- TableValueError     NaN, infinity, or a number that the table's dtype cannot hold
|   |   `-- DuplicateIdError    an id twice
|   |-- MemoryExhausted         the system gave no memory
|   `-- InstructionSetError     PARAMSERVER_ISA asks for what this CPU lacks
`-- ProgrammerError             a broken invariant: a bug of this package
"""

__all__ = [
    "ArrayError",
    "BagError",
    "CallerError",
    "DuplicateIdError",
    "IdError",
    "InstructionSetError",
    "MemoryExhausted",
    "OperatingError",
    "OptionError",
    "ParamServerError",
    "ProgrammerError",
    "RowValueError",
    "TableFileError",
    "TableNullError",
    "TableSchemaError",
    "TableValueError",
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


class MemoryExhausted(OperatingError):
    """The system gave no memory for a table; a batch may have been written in part."""


class InstructionSetError(OperatingError):
    """PARAMSERVER_ISA names an instruction set that is unknown or that this CPU lacks."""


class ProgrammerError(ParamServerError):
    """An invariant of this package is broken: please report it."""
