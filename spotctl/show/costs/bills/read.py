"""Reads a provider's export: CSV, JSON objects or Parquet, compressed or not. Its columns tell the
provider.
"""

import csv
import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from spotctl.clouds.bills import (
    RECOGNIZED_BY,
    BadBill,
    BadCell,
    BillLine,
    Cells,
    ExportFormat,
    ProviderBill,
    moment,
    normalized,
    provider_of,
)
from spotctl.clouds.wiring import bill_formats, focus_exports
from spotctl.home.errors import BadRequest

_SHOWN_COLUMNS = 6


def read_bill(path: Path, provider: str = "") -> ProviderBill:
    """Reads a bill; without `provider`, the columns tell whose it is."""
    if provider and provider not in bill_formats():
        raise BadRequest(f"provider {provider!r} is not one of {', '.join(bill_formats())}")

    bills: dict[str, _Lines] = {}
    choice: _Choice | None = None
    for where, cells in _rows(path):
        try:
            choice = choice or _choice(cells, provider)
            format_ = choice(cells)
            if format_ is not None:
                bills.setdefault(format_.provider, _Lines(format_)).add(cells, where)
        except BadCell as error:
            raise BadBill(f"bill {path}, {where}: {error}") from error
        except BadBill as error:
            raise BadBill(f"bill {path}: {error}") from error

    if not bills:
        raise BadBill(
            f"bill {path}: has no lines{f' of {provider}' if provider else ''}; export a period "
            "with charges"
        )
    if len(bills) > 1:
        raise BadBill(
            f"bill {path}: has lines of {' and '.join(sorted(bills))}; choose one, for example "
            f"--provider {min(bills)}"
        )

    (lines,) = bills.values()
    return lines.bill()


class _Lines:
    """The lines of a bill and its billing periods so far."""

    def __init__(self, export: ExportFormat) -> None:
        self._export = export
        self._lines: list[BillLine] = []
        self._begins: list[int] = []
        self._ends: list[int] = []

    def add(self, cells: Cells, where: str) -> None:
        # With what tells the lines of a row from those of other rows.
        line_id = cells.get(self._export.line_id, "")
        row = 0 if line_id else hash(tuple(cells.values()))
        lines = self._export.lines(cells, where)
        self._lines += [replace(line, line_id=line_id, row=row) for line in lines]

        for name, moments in zip(
            self._export.periods or (), (self._begins, self._ends), strict=False
        ):
            if text := cells.get(name, "").strip():
                at = moment(text, name)
                if not moments or moments[-1] != at:
                    moments.append(at)

    def bill(self) -> ProviderBill:
        begin = end = None
        if self._begins and self._ends:
            begin = min(self._begins)
            end = max(self._ends) + self._export.after_end
        return ProviderBill(self._export.provider, tuple(self._lines), begin, end)


_Choice = Callable[[Cells], ExportFormat | None]
"""The format of a line; None if the line is of no cloud that was asked for."""


def _choice(cells: Cells, provider: str) -> _Choice:
    has_kinds = {"chargeperiodstart", "chargecategory"} <= cells.keys()
    has_costs = not cells.keys().isdisjoint(("billedcost", "effectivecost"))
    is_focus = has_kinds and has_costs
    if not is_focus:
        chosen = _format(cells, provider)
        return lambda _: chosen

    exports = [export for export in focus_exports() if provider in ("", export.cloud)]
    if missing := [name for export in exports for name in export.format.missing(cells)]:
        raise BadBill(
            f"column missing: {', '.join(dict.fromkeys(missing))}; exports of FOCUS 1.0 have it"
        )

    by_name = {name: export.format for export in exports for name in export.names}
    return lambda line: by_name.get(normalized(provider_of(line)))


def _format(cells: Cells, provider: str) -> ExportFormat:
    if provider:
        chosen = bill_formats()[provider]
        if missing := chosen.missing(cells):
            cure = chosen.cure_of(missing)
            how = "" if cure is None else f"; {cure[1]}"
            raise BadBill(f"column missing: {', '.join(missing)}; {provider} exports have it{how}")
        return chosen

    formats = bill_formats().values()
    fitting = [export for export in formats if not export.missing(cells)]
    if fitting:
        return fitting[0]

    cures = (
        cure for export in formats if (cure := export.cure_of(export.missing(cells))) is not None
    )
    for content, how in cures:
        raise BadBill(f"has no {content}; {how}")
    names = ", ".join(list(cells)[:_SHOWN_COLUMNS])
    known = ", ".join((*(export.recognized_by for export in formats), RECOGNIZED_BY))
    raise BadBill(f"not a known export (columns {names} ...); {known}")


def _rows(path: Path) -> Iterator[tuple[str, Cells]]:
    names = [suffix.lower() for suffix in path.suffixes]
    if ".parquet" in names:
        return _parquet(path)
    if {".json", ".jsonl", ".ndjson"} & set(names):
        return _json_lines(path)
    return _csv(path)


def _csv(path: Path) -> Iterator[tuple[str, Cells]]:
    with _open_text(path) as file:
        reader = csv.reader(file, strict=True)
        try:
            names = [normalized(name) for name in next(reader, [])]
            for row in reader:
                if not row:
                    continue
                if len(row) != len(names):
                    raise BadBill(
                        f"bill {path}, line {reader.line_num}: has {len(row)} cells for "
                        f"{len(names)} columns"
                    )
                yield f"line {reader.line_num}", dict(zip(names, row, strict=True))
        except csv.Error as error:
            raise BadBill(f"bill {path}, line {reader.line_num}: is not CSV: {error}") from error


def _json_lines(path: Path) -> Iterator[tuple[str, Cells]]:
    with _open_text(path) as file:
        lines = enumerate(file, 1)
        for number, text in lines:
            if not text.strip():
                continue
            if text.rstrip() == "{":
                # An object over several lines ends with the next bracket that is not indented.
                for _, more in lines:
                    text += more  # noqa: PLW2901 - the rest of it
                    if more.rstrip() == "}":
                        break
            try:
                row = json.loads(text, parse_float=str)
            except ValueError as error:
                raise BadBill(f"bill {path}, line {number}: is not JSON: {error}") from error
            if not isinstance(row, dict):
                raise BadBill(f"bill {path}, line {number}: is not a JSON object")
            yield f"line {number}", dict(_flat(row))


def _parquet(path: Path) -> Iterator[tuple[str, Cells]]:
    import pyarrow.lib
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            number = 0
            for batch in file.iter_batches():
                for row in batch.to_pylist():
                    number += 1
                    yield f"row {number}", dict(_flat(row))
    except pyarrow.lib.ArrowInvalid as error:
        raise BadBill(f"bill {path}: is not Parquet: {error}") from error
    except OSError as error:
        raise BadBill(f"bill {path}: {error.strerror or error}") from error


def _flat(row: dict[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """Nested objects as separate columns; lists and tags stay JSON."""
    for name, value in row.items():
        key = before + normalized(name)
        if isinstance(value, dict) and not key.endswith(("tags", "labels")):
            yield from _flat(value, key)
        elif isinstance(value, list | dict):
            tree: list[Any] | dict[Any, Any] = value
            if isinstance(value, list) and value and all(isinstance(pair, tuple) for pair in value):
                # Parquet's maps are read as lists of pairs.
                tree = dict(value)
            yield key, json.dumps(tree, default=str)
        else:
            yield key, "" if value is None else str(value)


@contextmanager
def _open_text(path: Path) -> Iterator[TextIO]:
    try:
        if path.suffix == ".gz":
            with gzip.open(path, "rt", encoding="utf-8-sig", newline="") as file:
                yield file
        else:
            with path.open(encoding="utf-8-sig", newline="") as file:
                yield file
    except UnicodeDecodeError as error:
        cure = "use the file as the provider exported it"
        raise BadBill(f"bill {path}: is not UTF-8 text; {cure}") from error
    except (OSError, EOFError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadBill(f"bill {path}: {reason}") from error
