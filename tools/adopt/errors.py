"""Every error that `lambda-svc adopt` raises on purpose.

    AdoptError
      RequestsError    a file of requests is not what it should be; names file, record and input
      NoDensePart      nothing of a model is a dense graph that engines could run
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["AdoptError", "NoDensePart", "RequestsError"]


class AdoptError(Exception):
    """Base of every error raised by this package."""


class RequestsError(AdoptError):
    """A file of requests is not what it should be. `record` counts from 0; None when it is the file as a whole."""

    def __init__(self, file: Path | str, problem: str, record: int | None = None):
        super().__init__(f"{file}{'' if record is None else f', record {record}'}: {problem}")
        self.file = Path(file)
        self.record = record
        self.problem = problem


class NoDensePart(AdoptError):
    """Nothing of a model is a dense graph that engines could run; the text is the reason."""
