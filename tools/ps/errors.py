"""What a subcommand says when something goes wrong: the error's own words, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

__all__ = ["PsError", "told"]

# Name of a class of paramserver.errors -> what to do next; the nearest class of an error decides. StoreDamaged is not
# here: its messages say it, and it differs by file.
_ADVICE = {
    "SequenceGap": "push the deltas that are missing, then this again: staging twice changes nothing",
    "SequenceConflict": "a delta's number is taken once and for all: write the change under the next number",
    "RetiredVersion": "write the delta for a version that serves; `lambda-svc ps stats` names them",
    "EpochError": "`lambda-svc ps stats` shows what each shard holds",
    "UnknownTable": "`lambda-svc ps stats` names the tables",
    "ShardMapError": "compare the cluster's shards.json with the servers' configurations",
    "StoreLocked": "one process writes to a directory: ask the server that has it, with --cluster",
    "StoreFull": "free some space and try again: reads go on, nothing of this write was taken",
    "MemoryExhausted": "give the table a RAM budget (tier), or spread it over more shards: `lambda-svc ps plan`",
    "Unauthenticated": "pass --token-file FILE, the control_token_file of the servers' configurations, or their "
                       "token_file where there is no other",
    "RemoteError": "is it running? `lambda-svc ps stats` shows who answers, `lambda-svc ps serve CONFIG` starts one",
}


class PsError(Exception):
    """A subcommand cannot go on; the message says why and what to do next."""


@contextmanager
def told(code: int = 1) -> Iterator[None]:
    """Turns errors of the parameter server, of files and PsError into lines on stderr and an exit code."""
    try:
        yield
    except PsError as error:
        _end(str(error).splitlines(), error, code)
    except OSError as error:
        _end([f"{error.filename or 'the system'}: {error.strerror or error}"], error, code)
    except Exception as error:
        from paramserver import ParamServerError  # only now: --help must not wait for it

        if not isinstance(error, ParamServerError):
            raise
        advice = next((_ADVICE[kind.__name__] for kind in type(error).__mro__ if kind.__name__ in _ADVICE), None)
        _end([*str(error).splitlines(), *getattr(error, "__notes__", []), *([advice] if advice else [])], error, code)


def _end(lines: list[str], error: Exception, code: int) -> None:
    for line in lines:
        typer.echo(f"lambda-svc: {line}", err=True)
    raise typer.Exit(code) from error
