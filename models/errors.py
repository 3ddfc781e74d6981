"""Every error that the models package raises on purpose.

    ModelsError
      CallerError                the caller's fault: an argument or a config that cannot be right
        ConfigError              a training config cannot be right
        DatasetError             a dataset cannot be used as asked
        GraphError               a graph does not have the structure that a pass needs
          OpRefusedError         a graph holds an op that a pushed graph may not hold; names node and op
          FreezeError            a signature cannot be frozen; it can still be served as a SavedModel
        SignatureError           a model has no such signature, or one that cannot be
      OperatingError             the world's fault: disk, network, a damaged or missing package
        PackageError             a model package is not what its manifest says; names the file
          PackageMissingError    there is no package there
          PackageExistsError     that version is already published
        SavedModelError          a model's folder or file is not what it should be; names it
        SourceUnavailableError   a dataset cannot be fetched now
      ProgrammerError            ours: a step's own check failed
        ExportCheckError         an exported package does not meet what export promises
"""

from pathlib import Path

__all__ = [
    "CallerError", "ConfigError", "DatasetError", "ExportCheckError", "FreezeError", "GraphError", "ModelsError",
    "OpRefusedError", "OperatingError", "PackageError", "PackageExistsError", "PackageMissingError", "ProgrammerError",
    "SavedModelError", "SignatureError", "SourceUnavailableError",
]


class ModelsError(Exception):
    """Base of every error raised by this package."""


class CallerError(ModelsError):
    """The caller's fault: an argument or config that cannot be right."""


class OperatingError(ModelsError):
    """The world's fault: disk, network, a damaged or missing package."""


class ProgrammerError(ModelsError):
    """Our own fault: a step's own check failed."""


class ConfigError(CallerError):
    """A training config cannot be right; lists every problem."""


class DatasetError(CallerError):
    """A dataset cannot be used as asked."""


class GraphError(CallerError):
    """A graph does not have the structure that a pass needs."""


class OpRefusedError(GraphError):
    """A graph holds an op that a pushed graph may not hold.

    `node` is the node's name, `op` its op, `function` the function it is in ("" for the graph itself).
    """

    def __init__(self, node: str, op: str, problem: str, function: str = ""):
        super().__init__(f"node {node!r}{f' of function {function!r}' if function else ''} ({op}): {problem}")
        self.node = node
        self.op = op
        self.function = function
        self.problem = problem


class FreezeError(GraphError):
    """A signature cannot be frozen, so that it has to be served as SavedModel; `reason` is the cause's own text."""

    def __init__(self, model: Path | str, signature: str, reason: str):
        super().__init__(f"{model}: signature {signature!r} cannot be frozen, to be served as SavedModel: {reason}")
        self.signature = signature
        self.reason = reason


class SignatureError(CallerError):
    """A model has no such signature, or one that cannot be."""


class SavedModelError(OperatingError):
    """A model's folder or file is not what it should be; `path` names it."""

    def __init__(self, path: Path | str, problem: str):
        super().__init__(f"{path}: {problem}")
        self.path = Path(path)
        self.problem = problem


class PackageError(OperatingError):
    """A model package is not what its manifest says.

    `file` is the offending file's name inside the package, `problem` what is wrong with it. The message names it by its
    whole path when the package's `folder` is known.
    """

    def __init__(self, file: str, problem: str, folder: Path | str | None = None):
        super().__init__(f"{file if folder is None else Path(folder, file)}: {problem}")
        self.file = file
        self.problem = problem


class PackageMissingError(PackageError):
    """There is no package there."""


class PackageExistsError(PackageError):
    """That version is already published; versions are never overwritten."""


class SourceUnavailableError(OperatingError):
    """A dataset cannot be fetched now."""


class ExportCheckError(ProgrammerError):
    """An exported package does not meet what export promises."""
