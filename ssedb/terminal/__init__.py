"""Text for a terminal: literal, with its words whole. A pipe or a file gets a line for a line."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

ENDLESS = 10**6


def console(**settings: Any) -> Console:
    """Return a console that prints text literally.

    Paths may hold square brackets, which rich reads as markup, and colons, which it reads as emoji.
    """
    from rich.console import Console

    class Literal(Console):
        def render_str(self, text: str, **more: Any) -> Text:
            return super().render_str(literal(text, keep="\n"), **more)

    return Literal(highlight=False, markup=False, emoji=False, **settings)


def literal(text: str, keep: str = "") -> str:
    """Return a text in which characters that may command a terminal are written as escapes.

    A run's files and a folder's name may hold anything. `keep` has characters to leave as they are.
    """
    return "".join(
        letter
        if letter.isprintable() or letter in keep
        else letter.encode("unicode_escape").decode()
        for letter in text
    )


def wrapped(text: str, begin: str = "", indent: str = "") -> str:
    """Wrap a paragraph between words at the terminal's width; later lines begin with `indent`."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else ENDLESS
    text = literal(text, keep="\n\t")
    whole_words: dict[str, Any] = dict(break_long_words=False, break_on_hyphens=False)
    return textwrap.fill(text, width, initial_indent=begin, subsequent_indent=indent, **whole_words)


def print_pairs(pairs: Mapping[str, str], indent: str = "") -> None:
    """Print names and what they mean, one a line, as two columns."""
    column = max(map(len, pairs))
    for name, meaning in pairs.items():
        print(wrapped(meaning, f"{indent}{name:<{column}}  ", " " * (len(indent) + column + 2)))


def print_places(places: Mapping[str, object]) -> None:
    """Print names and paths, one a line, as two columns; no path is broken."""
    column = max(map(len, places))
    for name, place in places.items():
        print(literal(f"{name:<{column}}   {place}"))


def print_table(table: Table, on: Console | None = None) -> None:
    """Print a table, or a paragraph for each row where the terminal is too narrow for its words."""
    from rich.padding import Padding
    from rich.table import Table

    screen = on or console()
    table.title_justify = "left"
    if _fit_columns(screen, table):
        screen.print(table)
        return
    if table.title:
        screen.print(table.title)
    headings = [column.header for column in table.columns]
    for cells in zip(*(column.cells for column in table.columns), strict=True):
        rows = Table.grid(padding=(0, 2, 0, 0))
        for heading, cell in zip(headings[1:], cells[1:], strict=True):
            rows.add_row(heading, cell)
        screen.print(cells[0])
        screen.print(Padding(rows, (0, 0, 0, 2)))


def _fit_columns(console: Console, table: Table) -> bool:
    """Set the columns' widths so that no word is cut; return False if there is no room for that."""
    from rich.measure import Measurement

    columns = [[column.header, *column.cells] for column in table.columns]
    texts = [[literal(str(cell), keep="\n") for cell in cells] for cells in columns]
    widths = [max(map(len, cells)) for cells in texts]
    least = [max(len(word) for cell in cells for word in ["", *cell.split()]) for cells in texts]
    whole = Measurement.get(console, console.options.update(max_width=ENDLESS), table).maximum
    for _ in range(whole - console.width):
        wide = [(width, i) for i, width in enumerate(widths) if width > least[i]]
        if not wide:
            return False
        widths[max(wide)[1]] -= 1
    for column, width in zip(table.columns, widths, strict=True):
        column.width = width
    return True


def plural(count: int, noun: str) -> str:
    """Return a count with its noun: "1 run", "2 runs"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def clock(seconds: float) -> str:
    """Return a duration as h:mm:ss."""
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


def fit(parts: Iterable[str], width: int) -> str:
    """Join the first part and as many of the next ones as fit into a width."""
    first, *rest = parts
    for part in rest:
        if len(first) + 2 + len(part) > width:
            break
        first += f"  {part}"
    return first
