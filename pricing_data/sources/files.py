"""Files as a source: price changes, price lists, interruption buckets, machine lives and
availability traces, as CSV (also gzip) or JSON. Reads a file in batches, and reports every row that
it cannot use."""

import csv
import json
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import IO

import numpy as np

from pricing_data.errors import BadInput
from pricing_data.fetched_rows import FetchedRows, PriceBatch, PriceEvent
from pricing_data.market import Market
from pricing_data.sources.layouts import (
    PRICES,
    Fact,
    Header,
    header_of,
    not_after,
    price_columns,
    rows_of_facts,
)
from pricing_data.sources.observations import TRACE_LAYOUT, spans_of_trace
from pricing_data.units import LATEST, format_time, parse_time, parse_usd

_CHUNK = 1 << 20
_BLOCK = 8 << 20
# A block of shorter lines is cut into several, so that its rows fit into memory as well as its
# bytes do.
_MAX_LINES = 1 << 17
_LONGEST_LINE = 1 << 20
_TOO_LONG = b"\x00line too long\x00"
# A JSON document takes about ten times its size in memory.
_LONGEST_JSON = 64 << 20
_BLANKS = b"\xef\xbb\xbf \t\r\n"
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_WINDOW = 31
# us-east-1a is in us-east-1; the local zone us-west-2-lax-1a and the wavelength zone
# us-west-2-wl1-den-wlz-1 are in us-west-2.
_AWS_ZONE = re.compile(r"([a-z]{2,3}(?:-[a-z]+)+-\d+)(?:[a-z]|-[a-z0-9-]+)")


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that was left out: its place in the file, and the reason."""

    where: str
    why: str

    def __str__(self) -> str:
        return f"{self.where}: {self.why}"


@dataclass(frozen=True, slots=True)
class FileBatch:
    """Some rows of a file. `position` is the number of bytes on disk that have been read."""

    fetched: FetchedRows
    layout: str
    rows: int
    bad: tuple[BadRow, ...]
    position: int
    unused: tuple[str, ...] = ()


def read(path: Path, latest: int = LATEST) -> Iterator[FileBatch]:
    """The batches of a file. A truncated file raises `BadInput` after its last good batch.

    A row dated after `latest` is a bad row.
    """
    try:
        with path.open("rb") as file:
            yield from _batches(file, latest)
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror or error}") from error


def _batches(file: IO[bytes], latest: int) -> Iterator[FileBatch]:
    chunks = _plain(file)
    filled = (chunk for chunk in chunks if chunk.strip(_BLANKS))
    first = next(filled, b"")
    if first.lstrip(_BLANKS)[:1] in (b"{", b"["):
        yield from _json_batches(_document(first, chunks), file, latest)
        return

    blocks = _whole_lines(chain([first] if first else [], chunks))
    try:
        head, _, rest = next(blocks).partition(b"\n")
    except StopIteration:
        raise BadInput("is empty") from None

    header = header_of(_cells(head), latest)
    line = 2
    parts = _cut(chain([rest] if rest else [], blocks))

    # or the first block stays in memory to the end, as each part would until the next one is read
    del rest
    for part in parts:
        if part.strip(_BLANKS):
            yield _batch(part, header, line, file.tell())
        line += part.count(b"\n")
        del part


def _document(first: bytes, chunks: Iterator[bytes]) -> bytes:
    """The whole content of a JSON file."""
    content = bytearray(first)
    with suppress(_Truncated):
        for chunk in chunks:
            content += chunk
            if len(content) > _LONGEST_JSON:
                raise BadInput(
                    f"is JSON of more than {_LONGEST_JSON >> 20} MB; export it in parts "
                    "(--start-time, --end-time)"
                )

    return bytes(content)


def _cut(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Blocks of lines in parts of at most `_MAX_LINES` lines."""
    for block in blocks:
        if block.count(b"\n") <= _MAX_LINES:
            yield block
        else:
            breaks = np.flatnonzero(np.frombuffer(block, dtype=np.uint8) == ord("\n"))
            ends = breaks[_MAX_LINES - 1 :: _MAX_LINES] + 1
            edges = [0, *ends.tolist(), len(block)]
            parts = (block[start:end] for start, end in pairwise(edges) if end > start)
            yield from parts
            del breaks
        del block


def _plain(file: IO[bytes]) -> Iterator[bytes]:
    """The content of a file in chunks, decompressed if it is gzip, regardless of its name."""
    if file.read(len(_GZIP_MAGIC)) != _GZIP_MAGIC:
        file.seek(0)
        while chunk := file.read(_CHUNK):
            yield chunk
        return

    # A damaged file decompresses to plausible rows before its checksum fails, so check it before
    # using any row. A truncated file has no checksum, but the rows in it are right.
    file.seek(0)
    with suppress(_Truncated):
        for _ in _decompressed(file):
            pass

    file.seek(0)
    yield from _decompressed(file)


class _Truncated(BadInput):
    """A gzip file that ends too early, or has bytes after its end. The rows before that are
    right."""


class _TrailingBytes(_Truncated):
    """A gzip file followed by bytes that are not gzip."""


def _decompressed(file: IO[bytes]) -> Iterator[bytes]:
    """The content in chunks of at most `_CHUNK` bytes: a few bytes of gzip may hold a gigabyte."""
    chunk = file.read(_CHUNK)
    member = zlib.decompressobj(_GZIP_WINDOW)
    try:
        while chunk:
            yield member.decompress(chunk, _CHUNK)
            if not member.eof:
                chunk = member.unconsumed_tail or file.read(_CHUNK)
                continue
            chunk = (member.unused_data or file.read(_CHUNK)).lstrip(b"\x00")
            if chunk and not chunk.startswith(_GZIP_MAGIC[: len(chunk)]):
                raise _TrailingBytes(
                    f"has other bytes after the end of its gzip data (near byte "
                    f"{file.tell() - len(chunk)}); the rows before them were kept"
                )
            if chunk:
                member = zlib.decompressobj(_GZIP_WINDOW)
    except zlib.error as error:
        raise BadInput(
            f"has damaged gzip data after {file.tell()} bytes ({error}); copy or download it again"
        ) from error

    if not member.eof:
        raise _Truncated(
            f"is a gzip file that breaks off after {file.tell()} bytes; copy or download it again"
        )


def _whole_lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Blocks of whole lines. If reading fails, the lines before the failure are yielded first.

    A line of more than `_LONGEST_LINE` bytes becomes `_TOO_LONG`, which is a bad row.
    """
    pending = bytearray()
    broken: BadInput | None = None
    skipping = False
    while broken is None:
        try:
            chunk = next(chunks, None)
        except BadInput as error:
            broken = error
            chunk = None
        if chunk is None:
            break
        if skipping:
            _, newline, chunk = chunk.partition(b"\n")
            skipping = not newline
            chunk = newline + chunk
        pending += chunk
        if len(pending) - (last := pending.rfind(b"\n") + 1) > _LONGEST_LINE:
            pending[last:] = _TOO_LONG
            skipping = True
        if len(pending) >= _BLOCK and (end := pending.rfind(b"\n") + 1):
            with memoryview(pending) as whole:
                block = bytes(whole[:end])
            yield block
            del block
            del pending[:end]

    if isinstance(broken, _Truncated) and not isinstance(broken, _TrailingBytes):
        # The last line may have been cut within a number, and would still parse.
        del pending[pending.rfind(b"\n") + 1 :]

    if pending:
        yield bytes(pending)
    if broken is not None:
        raise broken


def _batch(block: bytes, header: Header, line: int, position: int) -> FileBatch:
    """The rows of a block that begins at line `line`."""
    if header.layout is PRICES and "on_demand_price" not in header.columns:
        parsed = price_columns(block, header.columns, header.latest)
        if parsed is not None:
            prices, unparsed = parsed
            # Rows that the fast parser rejected are parsed one by one, because some are valid.
            lines = block.split(b"\n") if unparsed else []
            events: list[PriceEvent] = []
            bad_rows: list[BadRow] = []
            for row in unparsed:
                facts, rejected, _ = _row_by_row([lines[row]], header, line + row)
                events += [fact for fact in facts if isinstance(fact, PriceEvent)]
                bad_rows += rejected
            if unparsed:
                prices = PriceBatch.joined([prices, PriceBatch.of(events)])
            rows = len(prices) + len(bad_rows)
            fetched = FetchedRows(prices=prices)
            return FileBatch(fetched, PRICES.name, rows, tuple(bad_rows), position, header.unused)

    content = block.removesuffix(b"\n")
    facts, bad, rows = _row_by_row(content.split(b"\n"), header, line)
    return FileBatch(rows_of_facts(facts), header.layout.name, rows, bad, position, header.unused)


def _row_by_row(
    lines: list[bytes], header: Header, line: int
) -> tuple[list[Fact], tuple[BadRow, ...], int]:
    """Parses each line separately; a row never spans lines, so an unclosed quote costs one row
    only.
    """
    facts: list[Fact] = []
    bad: list[BadRow] = []
    rows = 0
    for number, content in enumerate(lines, line):
        if not content.strip():
            continue
        rows += 1
        try:
            if content.startswith(_TOO_LONG):
                raise BadInput(f"has more than {_LONGEST_LINE:,} bytes")
            cells = _cells(content)
            if len(cells) != len(header.columns):
                raise BadInput(f"{len(cells)} cells where the header has {len(header.columns)}")
            named_cells = zip(header.columns, cells, strict=True)
            facts_of_row = header.layout.facts(dict(named_cells))
            results = list(facts_of_row)
        except BadInput as error:
            results = [error]
        for result in results:
            fact = result if isinstance(result, BadInput) else not_after(header.latest, result)
            if isinstance(fact, BadInput):
                bad.append(BadRow(f"line {number}", str(fact)))
            else:
                facts.append(fact)

    return facts, tuple(bad), rows


def _cells(content: bytes) -> list[str]:
    try:
        line = _text(content).rstrip("\r\n")
        rows = csv.reader([line], strict=True)
        return next(rows, [])
    except csv.Error as error:
        raise BadInput(f"is not a row of CSV ({error})") from None


def _json_batches(content: bytes, file: IO[bytes], latest: int) -> Iterator[FileBatch]:
    """An availability trace, or AWS's price history."""
    answer = None
    with suppress(ValueError, RecursionError):
        answer = json.loads(content)
    if not isinstance(answer, dict) or "metadata" not in answer:
        yield from _aws_json(content, file, latest)
        return

    name = Path(file.name).name.removesuffix(".gz")
    stem = name.removesuffix(".json")
    spans = spans_of_trace(answer, stem)
    if spans[-1].until > latest:
        raise BadInput(
            f"is an availability trace that ends in the future, at {format_time(spans[-1].until)}"
        )

    fetched = FetchedRows(availability=tuple(spans))
    batch = FileBatch(fetched, TRACE_LAYOUT, len(spans), (), file.tell())
    yield batch


def _aws_json(content: bytes, file: IO[bytes], latest: int) -> Iterator[FileBatch]:
    """The output of `aws ec2 describe-spot-price-history`. If it is truncated, its whole records
    are yielded first.
    """
    broken: BadInput | None = None
    try:
        answer = json.loads(content)
        records = answer["SpotPriceHistory"] if isinstance(answer, dict) else answer
    except KeyError:
        raise BadInput(
            "is JSON without SpotPriceHistory, which aws ec2 describe-spot-price-history prints"
        ) from None
    except (ValueError, RecursionError) as error:
        broken = BadInput(f"is not complete JSON ({error}); export it again")
        records = _whole_records(_text(content))

    if not isinstance(records, list):
        raise BadInput("is JSON whose SpotPriceHistory is not a list")

    events: list[Fact] = []
    bad: list[BadRow] = []
    for number, record in enumerate(records, 1):
        try:
            event = not_after(latest, _aws_event(record))
            if isinstance(event, BadInput):
                raise event
            events.append(event)
        except BadInput as error:
            bad.append(BadRow(f"record {number}", str(error)))

    if records or broken is None:
        yield FileBatch(rows_of_facts(events), PRICES.name, len(records), tuple(bad), file.tell())
    if broken is not None:
        raise broken


def _whole_records(text: str) -> list[object]:
    """The complete records of a truncated list."""
    _, _, rest = text.partition("[")
    decoder = json.JSONDecoder()
    records = []
    at = 0
    while (begin := rest.find("{", at)) >= 0:
        try:
            record, at = decoder.raw_decode(rest, begin)
        except ValueError:
            break
        records.append(record)

    return records


def _aws_event(record: object) -> PriceEvent:
    if not isinstance(record, dict):
        raise BadInput(f"{record!r} is not an object")

    try:
        zone, kind, product, price, time = (
            str(record[key])
            for key in (
                "AvailabilityZone",
                "InstanceType",
                "ProductDescription",
                "SpotPrice",
                "Timestamp",
            )
        )
    except KeyError as missing:
        raise BadInput(f"has no {missing.args[0]}") from None

    region = _AWS_ZONE.fullmatch(zone)
    if region is None:
        raise BadInput(f"availability zone {zone!r} does not start with a region")
    market = Market.of_row("aws", region[1], zone, kind, product)
    return PriceEvent(market, parse_time(time), parse_usd(price))


def _text(content: bytes) -> str:
    return content.decode("utf-8-sig", errors="replace")
