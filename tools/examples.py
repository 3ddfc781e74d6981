"""How the help of a subcommand shows its examples."""

from __future__ import annotations

__all__ = ["examples"]


def examples(*lines: str) -> str:
    """The epilog of a subcommand: one command a line, each of which works as written."""
    return "[bold]Examples[/]\n\n" + "\n\n".join(f"  {line}" for line in lines)
