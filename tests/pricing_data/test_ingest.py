from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from pricing_data.errors import AccessDenied, CloudError, MissingCredentials, NoAnswer
from pricing_data.fetched_rows import FetchedRows, PriceBatch, PriceEvent
from pricing_data.ingest import TaskReport, fetch, ingest
from pricing_data.query import export
from pricing_data.sources import files
from pricing_data.sources.base import FetchRequest, FetchTask
from pricing_data.store import PriceStore
from pricing_data.store.table import PriceTable
from pricing_data.units import DAY, HOUR, Span
from tests.pricing_data.histories import START, market, random_batch, stored
from tests.pricing_data.sources.test_files import GOOD, HEADER, written
from tests.pricing_data.store.test_table import contents


@pytest.fixture
def store(tmp_path: Path) -> PriceStore:
    return PriceStore(tmp_path / "prices")


def test_imports_are_idempotent(store: PriceStore, tmp_path: Path) -> None:
    table = PriceTable.of(random_batch(seed=3, markets=5, rows=5000))
    export(table, tmp_path / "history.csv.gz")
    once = ingest(store, tmp_path / "history.csv.gz")
    after_once = contents(store.table())
    twice = ingest(store, tmp_path / "history.csv.gz")
    assert contents(store.table()) == after_once == contents(table)
    assert (once.committed.added, once.committed.known) == (5000, 0)
    assert (twice.committed.added, twice.committed.known) == (0, 5000)


def test_all_bad_rows_are_counted_and_named(store: PriceStore, tmp_path: Path) -> None:
    path = written(tmp_path / "f.csv", HEADER, *["nonsense"] * 50, GOOD)
    report = ingest(store, path)
    assert (report.rows, report.skipped, len(report.bad), report.failure) == (51, 50, 50, None)
    assert len(store.table()) == 1


def test_strict_rejects_the_whole_file(
    store: PriceStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_CHUNK", 100)
    monkeypatch.setattr(files, "_BLOCK", 200)
    rows = [GOOD.replace("00:35:34", f"00:00:{n:02}") for n in range(50)]
    report = ingest(store, written(tmp_path / "f.csv", HEADER, *rows, "nonsense"), strict=True)
    assert (
        report.failure
        == "was rejected: 1 bad row, the first in line 52: 1 cells where the header has 7"
    )
    assert not store.root.exists()
    assert (
        ingest(store, written(tmp_path / "g.csv", HEADER, *rows), strict=True).committed.added == 50
    )


def test_a_truncated_file_keeps_its_good_rows_unless_strict(
    store: PriceStore, tmp_path: Path
) -> None:
    table = PriceTable.of(random_batch(seed=3, markets=5, rows=20_000))
    path = tmp_path / "history.csv.gz"
    export(table, path)
    path.write_bytes(path.read_bytes()[:-1000])
    assert ingest(store, path, strict=True).committed.added == 0
    report = ingest(store, path)
    assert report.failure is not None
    assert "breaks off" in report.failure
    held = contents(store.table())
    assert 0 < len(held) < 20_000
    assert held.items() <= contents(table).items()


def test_a_table_of_another_kind_is_rejected(store: PriceStore, tmp_path: Path) -> None:
    report = ingest(store, written(tmp_path / "f.csv", HEADER, GOOD), layout="on-demand prices")
    assert report.failure == "contains price changes, not on-demand prices"
    assert store.markets() == []


REQUEST = FetchRequest(START, START + 30 * DAY)


def page(region: str, *hours: int, covered: Span | None = None) -> FetchedRows:
    events = [PriceEvent(market(zone=region), START + hour * HOUR, 1 + hour) for hour in hours]
    return FetchedRows(PriceBatch.of(events), covered={f"aws/{region}": covered} if covered else {})


@dataclass
class Scripted:
    """A source whose tasks yield and fail as scripted."""

    scripts: dict[str, Callable[[], Iterator[FetchedRows]]] = field(default_factory=dict)
    refusal: CloudError | None = None
    cloud: str = "aws"
    asked: list[FetchRequest] = field(default_factory=list)

    def tasks(self, request: FetchRequest) -> list[FetchTask]:
        self.asked.append(request)
        if self.refusal:
            raise self.refusal
        return [
            FetchTask(self.cloud, region, "prices", pull) for region, pull in self.scripts.items()
        ]


def by_region(reports: list[TaskReport]) -> dict[str, TaskReport]:
    return {report.region: report for report in reports}


def test_rows_before_a_failure_are_kept_and_other_tasks_continue(store: PriceStore) -> None:
    def broken() -> Iterator[FetchedRows]:
        yield page("r1", 0, 1, covered=Span(START, START + HOUR))
        yield page("r1", 2)
        raise NoAnswer("page 3 broke")

    def fine() -> Iterator[FetchedRows]:
        yield page("r2", 0, 1, 2)
        yield page("r2", 3, covered=Span(START, START + 3 * HOUR))

    sources = [
        Scripted({"r1": broken, "r2": fine}),
        Scripted(refusal=MissingCredentials("set a key"), cloud="gcp"),
    ]
    reports = by_region(fetch(store, sources, REQUEST))
    assert str(reports["r1"].failure) == "page 3 broke"
    assert reports["r2"].failure is None
    assert (reports["r1"].committed.added, reports["r2"].committed.added) == (3, 4)
    assert isinstance(reports["-"].failure, MissingCredentials)
    assert len(stored(store, market(zone="r1"))) == 3
    assert store.covered == {
        "aws/r1": Span(START, START + HOUR),
        "aws/r2": Span(START, START + 3 * HOUR),
    }


def test_many_tasks_share_few_threads_and_one_store(store: PriceStore) -> None:
    def pull(region: str) -> Callable[[], Iterator[FetchedRows]]:
        return lambda: (page(region, hour) for hour in range(50))

    scripts = {f"r{number}": pull(f"r{number}") for number in range(40)}
    seen: list[int] = []
    reports = fetch(
        store,
        [Scripted(scripts)],
        REQUEST,
        workers=3,
        on_progress=lambda all_: seen.append(sum(r.done for r in all_)),
    )
    assert len(store.table()) == 2000
    assert all(report.done and report.committed.added == 50 for report in reports)
    assert seen[0] == 0
    assert seen == sorted(seen)
    assert seen[-1] == 40


def test_a_bug_in_a_source_ends_the_fetch_instead_of_hanging_it(store: PriceStore) -> None:
    def buggy() -> Iterator[FetchedRows]:
        yield page("r1", 0)
        raise ZeroDivisionError

    def endless() -> Iterator[FetchedRows]:
        while True:
            yield page("r2", 0)

    with pytest.raises(ZeroDivisionError):
        fetch(store, [Scripted({"r1": buggy})], REQUEST)
    with pytest.raises(ZeroDivisionError):
        fetch(store, [Scripted({"r1": buggy, "r2": endless})], REQUEST)


def test_an_unwritable_store_ends_the_fetch(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    def endless() -> Iterator[FetchedRows]:
        while True:
            yield page("r2", *range(1000))

    with pytest.raises(Exception, match="cannot write"):
        fetch(PriceStore(tmp_path / "file"), [Scripted({"r2": endless})], REQUEST)


def test_each_cloud_gets_its_own_regions_only(store: PriceStore) -> None:
    aws, gcp, azure = (Scripted(cloud=cloud) for cloud in ("aws", "gcp", "azure"))
    fetch(
        store, [aws, gcp, azure], replace(REQUEST, regions=("us-east-1", "us-east1", "eu-west-1"))
    )
    assert [one.regions for one in aws.asked] == [("us-east-1", "eu-west-1")]
    assert [one.regions for one in gcp.asked] == [("us-east1",)]
    assert azure.asked == []
    fetch(store, [azure], REQUEST)
    assert azure.asked == [REQUEST]


def test_no_source_means_no_task(store: PriceStore) -> None:
    assert fetch(store, [], REQUEST) == []
    denied = AccessDenied("not allowed")
    assert fetch(store, [Scripted(refusal=denied)], REQUEST)[0].failure is denied


@pytest.mark.parametrize(
    ("covered", "start"),
    [
        (None, START),
        (Span(START - DAY, START + 2 * DAY), START + 2 * DAY),
        (Span(START, START + 2 * DAY), START + 2 * DAY),
        (Span(START + DAY, START + 2 * DAY), START),
        (Span(START - 9 * DAY, START - 2 * DAY), START),
    ],
)
def test_a_fetch_continues_where_the_history_is_complete(covered: Span | None, start: int) -> None:
    request = FetchRequest(START, START + 30 * DAY, covered={"aws/r": covered} if covered else {})
    assert request.start_of("aws/r") == start


def test_the_history_of_some_types_is_not_the_history_of_all() -> None:
    some = FetchRequest(START, START + DAY, types=("c4.*", "m4.*"))
    assert some.history("aws", "r") == "aws/r c4.* m4.*"
    assert some.history("aws", "r") == FetchRequest(0, 1, types=("m4.*", "c4.*")).history(
        "aws", "r"
    )
    assert [name for name in ("c4.large", "m5.large") if some.wants_type(name)] == ["c4.large"]
