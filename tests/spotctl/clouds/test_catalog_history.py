"""The catalog's history from a git repository on 127.0.0.1, as a server that allows filters has it."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from select import select
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Thread
from urllib.parse import urlsplit

import pytest

from pricing_data.catalog import Catalog
from pricing_data.errors import NoAnswer, UnknownResource
from pricing_data.sources.base import FetchRequest
from pricing_data.units import DAY, SECOND, parse_time
from spotctl.clouds.catalog_history import CatalogHistory
from tests.pricing_data.sources.catalog_rows import AWS_COLUMNS, aws_row, csv_of
from tests.servers.pulling import Pulled, pulled

BEGIN = parse_time("2026-11-01T06:00:00Z")
MEGABYTES = 100 << 20


class Repository:
    """A repository with commits of chosen moments."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self._git("init", "--quiet", "--initial-branch=master")
        self._git("config", "uploadpack.allowFilter", "true")
        self._git("config", "uploadpack.allowAnySHA1InWant", "true")

    def commit(self, at: int, files: Mapping[str, bytes | None]) -> None:
        """Writes files, or removes those without content."""
        for name, content in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if content is None:
                path.unlink()
            else:
                path.write_bytes(content)
        self._git("add", "--all")
        self._git("commit", "--quiet", "--allow-empty", "-m", "looked", at=at)

    def _git(self, *words: str, at: int = BEGIN) -> None:
        moment = f"{at // SECOND} +0000"
        who = {f"GIT_{role}_{part}": "a@example.com" for role in ("AUTHOR", "COMMITTER")
               for part in ("NAME", "EMAIL")}  # fmt: skip
        dated = {"GIT_AUTHOR_DATE": moment, "GIT_COMMITTER_DATE": moment}
        subprocess.run(
            ["git", "-c", "commit.gpgsign=false", *words],
            cwd=self.folder,
            env={**os.environ, **who, **dated},
            check=True,
        )


def prices(usd: float) -> bytes:
    return csv_of(AWS_COLUMNS, [aws_row(spot=f"{usd:g}")])


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """Ten days of version 8, and of version 9 since the sixth."""
    made = Repository(tmp_path / "catalog.git")
    for day in range(10):
        for hour in (0, 7):
            at = BEGIN + day * DAY + hour * 3600 * SECOND
            files = {"catalogs/v8/aws/vms.csv": prices(1 + day + hour / 10)}
            if day >= 5:
                files["catalogs/v9/aws/vms.csv"] = prices(101 + day + hour / 10)
            made.commit(at, files)
    return made


@pytest.fixture
def url(repository: Repository) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["git", "daemon", "--export-all", "--reuseaddr", "--listen=127.0.0.1",
             f"--port={port}", f"--base-path={repository.folder.parent}"]  # fmt: skip
    with subprocess.Popen(words, stderr=subprocess.DEVNULL) as server:
        while True:
            with socket.socket() as asked:
                if asked.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert server.poll() is None
            time.sleep(0.01)
        yield f"git://127.0.0.1:{port}/catalog.git"
        subprocess.run(["pkill", "-P", str(server.pid)], check=False)
        server.terminate()


@contextmanager
def cut(url: str, after: int) -> Iterator[str]:
    """The repository behind a line that is cut after each connection's first bytes."""
    port = urlsplit(url).port
    assert port is not None

    class Line(BaseRequestHandler):
        def handle(self) -> None:
            with socket.create_connection(("127.0.0.1", port)) as far:
                left = after
                while left > 0:
                    for near in select([self.request, far], [], [])[0]:
                        data = near.recv(min(left, 4096) if near is far else 4096)
                        if not data:
                            return
                        (self.request if near is far else far).sendall(data)
                        left -= len(data) if near is far else 0

    with ThreadingTCPServer(("127.0.0.1", 0), Line) as server:
        server.daemon_threads = True
        Thread(target=server.serve_forever, daemon=True).start()
        yield url.replace(str(port), str(server.server_address[1]))
        server.shutdown()


def fetch(url: str, folder: Path, most: int = MEGABYTES, **covered: object) -> Pulled:
    history = CatalogHistory("aws", url, folder, most, Catalog, by_zone=True)
    request = FetchRequest(BEGIN, BEGIN + 9 * DAY + 20 * 3600 * SECOND)
    (task,) = history.tasks(replace(request, covered=covered))  # type: ignore[arg-type]
    return pulled(task)


def spot(got: Pulled) -> dict[int, float]:
    """The price of each day."""
    return {(event.time - BEGIN) // DAY: event.price / 1e9 for event in got.events}


def test_one_look_a_day_comes_of_the_newest_version_that_has_it(url: str, tmp_path: Path) -> None:
    got = fetch(url, tmp_path / "kept")
    assert got.error is None
    assert spot(got) == {day: (1.7 if day < 5 else 101.7) + day for day in range(10)}
    looks = [step.watched for step in got.steps if step.watched]
    spans = [span for watched in looks for record in watched.values() for span in record.complete]
    assert [span.end - span.start for span in spans] == [0] * 10


def test_only_the_wanted_files_are_brought_and_none_twice(
    url: str, tmp_path: Path, repository: Repository
) -> None:
    folder = tmp_path / "kept"
    fetch(url, folder)
    brought = (folder / "brought").read_text().split()
    assert len(brought) == len(set(brought)) == 10
    before = {path.name for path in (folder / "objects" / "pack").iterdir()}
    repository.commit(BEGIN + 9 * DAY + 9 * 3600 * SECOND, {"catalogs/v9/aws/vms.csv": prices(300)})
    again = fetch(url, folder)
    assert spot(again)[9] == 300
    assert len((folder / "brought").read_text().split()) == 11
    assert before <= {path.name for path in (folder / "objects" / "pack").iterdir()}


def test_a_limit_of_bytes_keeps_the_latest_days_and_says_so(url: str, tmp_path: Path) -> None:
    few = fetch(url, tmp_path / "kept", most=1)
    assert list(spot(few)) == [9]
    assert "begins on 2026-11-10: 9 earlier days left out" in " ".join(few.all.notes)


def test_a_file_that_is_cut_off_or_has_other_columns_is_left_out(
    url: str, tmp_path: Path, repository: Repository
) -> None:
    last = BEGIN + 9 * DAY + 8 * 3600 * SECOND
    repository.commit(last, {"catalogs/v9/aws/vms.csv": prices(1)[:-1]})
    got = fetch(url, tmp_path / "kept")
    assert sorted(spot(got)) == list(range(9))
    assert "is cut off" in " ".join(got.all.notes)

    renamed = prices(1).replace(b"InstanceType", b"Type")
    repository.commit(last + SECOND, {"catalogs/v9/aws/vms.csv": renamed})
    assert "lacks a column InstanceType" in " ".join(fetch(url, tmp_path / "kept").all.notes)


def test_a_cloud_that_left_the_newest_version_is_read_in_the_older_one(
    url: str, tmp_path: Path, repository: Repository
) -> None:
    last = BEGIN + 9 * DAY + 8 * 3600 * SECOND
    gone = {"catalogs/v9/aws/vms.csv": None, "catalogs/v8/aws/vms.csv": prices(55)}
    repository.commit(last, gone)
    # On that day the newer version was there, too, before.
    assert spot(fetch(url, tmp_path / "kept"))[9] == 110.7


@pytest.mark.parametrize("after", [10, 300, 1000, 3000])
def test_what_a_cut_connection_left_is_completed_by_the_next_fetch(
    url: str, tmp_path: Path, after: int
) -> None:
    folder = tmp_path / "kept"
    with cut(url, after) as bad:
        failed = fetch(bad, folder)
    assert isinstance(failed.error, NoAnswer)
    assert "\n" not in str(failed.error)
    assert len(spot(fetch(url, folder))) == 10


def test_a_server_that_is_away_is_one_line_and_the_next_fetch_works(
    url: str, tmp_path: Path
) -> None:
    folder = tmp_path / "kept"
    away = fetch(url.replace("127.0.0.1", "127.0.0.2"), folder)
    assert isinstance(away.error, NoAnswer)
    assert "\n" not in str(away.error)
    # The next one goes on with what is there.
    assert len(spot(fetch(url, folder))) == 10


def test_a_cloud_without_files_is_named(url: str, tmp_path: Path) -> None:
    history = CatalogHistory("azure", url, tmp_path / "kept", MEGABYTES, Catalog, by_zone=True)
    got = pulled(history.tasks(FetchRequest(BEGIN, BEGIN + DAY))[0])
    assert isinstance(got.error, UnknownResource)
    assert "has no file of this cloud since 2026-11-01" in str(got.error)


def test_files_are_sent_although_the_commits_of_a_part_of_the_history_are_known(
    url: str, tmp_path: Path
) -> None:
    """A server leaves out what it takes a client to have that does not know where history begins."""
    history = CatalogHistory("aws", url, tmp_path / "history", MEGABYTES, Catalog, by_zone=True)
    (task,) = history.tasks(FetchRequest(BEGIN + 6 * DAY, BEGIN + 9 * DAY + 20 * 3600 * SECOND))
    assert spot(pulled(task)) == {6: 107.7, 7: 108.7, 8: 109.7, 9: 110.7}
