"""Reads a provider's export: CSV, JSON lines or Parquet, compressed or not. Its columns tell the provider."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from spotctl.clouds.bill_format import BadCell, Cells, ExportFormat, moment, normalized
from spotctl.clouds.bill_lines import BadBill, BillLine, ProviderBill
from spotctl.clouds.parts import bill_clouds, bill_formats
from spotctl.home.errors import BadRequest

_SHOWN_COLUMNS = 6


def read_bill(path: Path, provider: str = "") -> ProviderBill:
    """Reads a bill; without `provider`, the columns tell whose it is."""
    if provider and provider not in bill_clouds():
        raise BadRequest(f"provider {provider!r} is not one of {', '.join(bill_clouds())}")
    lines: list[BillLine] = []
    begins: list[int] = []
    ends: list[int] = []
    format_: ExportFormat | None = None
    for where, cells in _rows(path):
        try:
            format_ = format_ or _format(cells, provider)
            lines += format_.lines_with_ids(cells, where)
            if format_.periods is not None:
                _add_period(cells, format_.periods, begins, ends)
        except BadCell as error:
            raise BadBill(f"bill {path}, {where}: {error}") from error
        except BadBill as error:
            raise BadBill(f"bill {path}: {error}") from error
    if format_ is None:
        raise BadBill(f"bill {path}: has no lines; export a period with charges")
    whole = bool(begins and ends)
    end = max(ends) + format_.after_end if whole else None
    return ProviderBill(format_.provider, tuple(lines), min(begins) if whole else None, end)


def _format(cells: Cells, provider: str) -> ExportFormat:
    if provider:
        chosen = bill_formats()[provider]
        if missing := chosen.missing(cells):
            cure = chosen.cure_of(missing)
            how = "" if cure is None else f"; {cure[1]}"
            raise BadBill(f"column missing: {', '.join(missing)}; {provider} exports have it{how}")
        return chosen
    formats = bill_formats().values()
    fitting = [export for export in formats if export.fits(cells)]
    if fitting:
        return fitting[0]
    cures = (cure for export in formats if (cure := export.cure_of(export.missing(cells))) is not None)
    for content, how in cures:
        raise BadBill(f"has no {content}; {how}")
    names = ", ".join(list(cells)[:_SHOWN_COLUMNS])
    known = ", ".join(export.recognized_by for export in formats)
    raise BadBill(f"not a known export (columns {names} ...); {known}")


def _add_period(cells: Cells, names: tuple[str, str], begins: list[int], ends: list[int]) -> None:
    for name, moments in zip(names, (begins, ends), strict=True):
        if text := cells.get(name, "").strip():
            at = moment(text, name)
            if not moments or moments[-1] != at:
                moments.append(at)


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
                    raise BadBill(f"bill {path}, line {reader.line_num}: has {len(row)} cells for {len(names)} columns")
                yield f"line {reader.line_num}", dict(zip(names, row, strict=True))
        except csv.Error as error:
            raise BadBill(f"bill {path}, line {reader.line_num}: is not CSV: {error}") from error


def _json_lines(path: Path) -> Iterator[tuple[str, Cells]]:
    with _open_text(path) as file:
        for number, text in enumerate(file, 1):
            if not text.strip():
                continue
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
            yield key, json.dumps(_tags_of(value), default=str)
        else:
            yield key, "" if value is None else str(value)


def _tags_of(value: Any) -> Any:  # noqa: ANN401  # JSON is any value
    """Parquet's maps are read as lists of pairs."""
    pairs = isinstance(value, list) and value and all(isinstance(pair, tuple) for pair in value)
    return dict(value) if pairs else value


@contextmanager
def _open_text(path: Path) -> Iterator[TextIO]:
    try:
        with (
            gzip.open(path, "rt", encoding="utf-8-sig", newline="")
            if path.suffix == ".gz"
            else path.open(encoding="utf-8-sig", newline="") as file
        ):
            yield file
    except UnicodeDecodeError as error:
        raise BadBill(f"bill {path}: is not UTF-8 text; use the file as the provider exported it") from error
    except (OSError, EOFError) as error:
        raise BadBill(f"bill {path}: {getattr(error, 'strerror', None) or error}") from error
