"""What reports are made of: Markdown tables, and HTML pages with bar plots that need no network."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

__all__ = ["COLOURS", "ITEM_COLOUR", "USER_COLOUR", "bars", "html_table", "markdown_table", "page"]

USER_COLOUR, ITEM_COLOUR = "#d98b3a", "#4a78b5"
COLOURS = (f'<p><span style="color:{ITEM_COLOUR}">&#9632;</span> for each candidate, <span style="color:'
           f'{USER_COLOUR}">&#9632;</span> once a user.</p>')
"""What the colours of plots mean, as HTML."""
_BAR_PX, _ROW_PX, _LABEL_PX, _VALUE_PX = 520, 22, 170, 80
_STYLE = ("body{font:15px/1.45 system-ui,sans-serif;max-width:1080px;margin:2em auto;padding:0 1em;color:#222}"
          "table{border-collapse:collapse;font-variant-numeric:tabular-nums;margin:1em 0}"
          "td,th{padding:.25em .7em;border-bottom:1px solid #ddd;text-align:right}"
          "td:first-child,th:first-child{text-align:left}h3{margin:1.2em 0 .3em}svg{max-width:100%}"
          "td{white-space:nowrap}div{overflow-x:auto}")

Rows = Sequence[Sequence[str]]
"""The first one is the head."""


def markdown_table(rows: Rows) -> list[str]:
    """Lines of a table, numbers to the right, and an empty one."""
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return [lines[0], "|---|" + "---:|" * (len(rows[0]) - 1), *lines[1:], ""]


def html_table(rows: Rows) -> str:
    """A table that scrolls when it is too wide."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in rows[0])
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows[1:])
    return f"<div><table><tr>{head}</tr>{body}</table></div>"


def page(title: str, host: str, body: str) -> str:
    """A whole page; `body` is HTML."""
    return (f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(title)}</title><style>{_STYLE}</style>"
            f"<h1>{escape(title)}</h1><p>{escape(host)}</p>{body}</html>\n")


def bars(label: str, rows: Sequence[tuple[str, Sequence[tuple[float, str]]]], most: float) -> str:
    """Horizontal bars of (value, colour) parts, the sum written behind each; `most` fills the width."""
    drawn = []
    for i, (name, parts) in enumerate(rows):
        y, x = i * _ROW_PX, float(_LABEL_PX)
        drawn.append(f'<text x="{_LABEL_PX - 8}" y="{y + 15}" text-anchor="end">{escape(name)}</text>')
        for value, colour in parts:
            width = value / (most or 1.0) * _BAR_PX
            drawn.append(f'<rect x="{x:.1f}" y="{y + 3}" width="{width:.1f}" height="{_ROW_PX - 6}" fill="{colour}"/>')
            x += width
        total = sum(value for value, _ in parts)
        drawn.append(f'<text x="{x + 6:.1f}" y="{y + 15}">{total:.3g}</text>')
    width, height = _LABEL_PX + _BAR_PX + _VALUE_PX, len(rows) * _ROW_PX
    return (f'<svg role="img" aria-label="{escape(label)}" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}" font-size="13" font-family="system-ui,sans-serif">{"".join(drawn)}</svg>')
