"""Text files with a header and columns: every cell is kept as it is written.

No type is guessed here, since a label "007" or "NA" must stay what it is.
"""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from layline.data.roots import listed, only_file

_DELIMITERS = (",", ";", "\t")


@dataclass(frozen=True)
class Delimited:
    """The cells of a file.

    Attributes:
        path: The file.
        columns: The cells below each name of the header, without blanks around them.
        rows: Which row of the file each cell stands in, 1 for the header.
        unnamed: How many columns were left out because the header has no name for them.
    """

    path: Path
    columns: dict[str, list[str]]
    rows: list[int]
    unnamed: int = 0

    def column(self, argument: str, name: str) -> list[str]:
        """Give a column that has to be there."""
        if name not in self.columns:
            near = get_close_matches(str(name), self.columns, n=1, cutoff=0.5)
            near = near or [column for column in self.columns if column.lower() == name.lower()]
            cure = f"did you mean {near[0]!r}? " if near else ""
            raise ValueError(
                f"{argument} must be a column of {self.path.name}, got {name!r}: "
                f"{cure}it has {', '.join(self.columns)}"
            )
        return self.columns[name]

    def filled(self, argument: str, name: str) -> list[str]:
        """Give a column that has to be there, without an empty cell."""
        cells = self.column(argument, name)
        empty = [row for row, cell in zip(self.rows, cells, strict=True) if not cell]
        if empty:
            raise ValueError(
                f"column {name!r} must be filled, got nothing in row {listed(empty)}: "
                "fill the cells or delete the rows"
            )
        return cells

    def optional(self, argument: str, name: str | None, usual: str) -> list[str] | None:
        """Give a column that may be absent under its usual name, but not under another."""
        if name is None or (name == usual and name not in self.columns):
            return None
        return self.filled(argument, name)


def read_delimited(root: str | Path) -> Delimited:
    """Read a file with commas, semicolons or tabs, whichever divide its first line."""
    path = only_file(root, (".csv", ".tsv"))
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"root must be text in UTF-8, got {path}: save it as CSV with that encoding"
        ) from error
    first = next((line for line in io.StringIO(text) if line.strip()), "")
    delimiter = max(
        _DELIMITERS, key=lambda mark: len(next(csv.reader([first], delimiter=mark), []))
    )
    reader = csv.reader(io.StringIO(text), delimiter=delimiter, strict=True, skipinitialspace=True)
    records: list[tuple[int, list[str]]] = []
    try:
        for row, record in enumerate(reader, start=1):
            if any(cells := [cell.strip() for cell in record]):
                records.append((row, cells))
    except csv.Error as error:
        raise ValueError(
            f"root must be a table, got {path.name} with {error} in line {reader.line_num}: "
            "check the quotes"
        ) from error
    if len(records) < 2:
        raise ValueError(f"root must have a header and rows, got {path} with {len(records)} lines")
    return _by_column(path, records[0][1], records[1:])


def _by_column(
    path: Path, header: Sequence[str], records: list[tuple[int, list[str]]]
) -> Delimited:
    named = [name for name in header if name]
    twice = [name for name in dict.fromkeys(named) if named.count(name) > 1]
    if twice:
        raise ValueError(f"columns must have different names, got {twice[0]!r} twice: rename one")
    for row, cells in records:
        if len(cells) != len(header):
            raise ValueError(
                f"every row must have {len(header)} cells like the header, got {len(cells)} in "
                f"row {row} of {path.name}: put quotes around a cell that holds the delimiter"
            )
    columns = zip(*(cells for _, cells in records), strict=True)
    return Delimited(
        path,
        {name: list(cells) for name, cells in zip(header, columns, strict=True) if name},
        [row for row, _ in records],
        unnamed=len(header) - len(named),
    )
