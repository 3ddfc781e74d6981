"""Every error that the models package raises on purpose.

    ModelsError
      CallerError                the caller's fault: an argument or a config that cannot be right
        ConfigError              a training config cannot be right
        DatasetError             a dataset cannot be used as asked
        GraphError               a graph does not have the structure that a pass needs
      OperatingError             the world's fault: disk, network, a damaged or missing package
        PackageError             a model package is not what its manifest says; names the file
          PackageMissingError    there is no package there
          PackageExistsError     that version is already published
        SourceUnavailableError   a dataset cannot be fetched now
      ProgrammerError            ours: a step's own check failed
        ExportCheckError         an exported package does not meet what export promises
"""

from pathlib import Path

__all__ = [
    "CallerError", "ConfigError", "DatasetError", "ExportCheckError", "GraphError", "ModelsError", "OperatingError",
    "PackageError", "PackageExistsError", "PackageMissingError", "ProgrammerError", "SourceUnavailableError",
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
