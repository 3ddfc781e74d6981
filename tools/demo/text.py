"""How the demo speaks: numbered headings, the same look in every step."""

from __future__ import annotations

from rich.console import Console

__all__ = ["STEPS", "heading"]

STEPS = 6


def heading(console: Console, number: int, title: str) -> None:
    """Prints a step's heading."""
    console.print(f"\n[bold cyan]{number}/{STEPS}[/] [bold]{title}[/]", highlight=False)
