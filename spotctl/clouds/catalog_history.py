"""The history of the public catalog: one file a day of a cloud, from the versions of its repository.

git brings the commits without their files, then the files that are wanted, all in one request. What
was brought stays in the home, so that a fetch that was cut off goes on.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from pathlib import Path

from pricing_data.catalog import Catalog
from pricing_data.errors import NoAnswer, UnknownResource
from pricing_data.fetched_rows import FetchedRows
from pricing_data.sources.base import NO_REGION, FetchRequest, FetchTask
from pricing_data.sources.public_catalog import NAME, CatalogFile, OwnGpus, read_catalog
from pricing_data.units import DAY, SECOND, Span, counted, format_time
from spotctl.clouds.errors import on_one_line

WHAT = f"{NAME}, one look a day"
_REF = "refs/spotctl/catalog"
_PATH = re.compile(r"catalogs/v(?P<version>\d+)/")
_CURE = "try again: what was brought is kept"
_MEGABYTE = 1 << 20
_STORED_AT_A_TIME = 8
"""How many looks are stored at once: the store writes all that it knows of a cloud each time."""


@dataclass(frozen=True, slots=True)
class _Look:
    """A version of a cloud's file: when it was committed, and git's name of its content."""

    at: int
    version: int
    commit: str
    path: str


@dataclass(slots=True)
class CatalogHistory:
    """The looks at one cloud, at most `most_bytes` of them as git sends files."""

    cloud: str
    repository: str
    folder: Path
    most_bytes: int
    known: Callable[[], Catalog]
    by_zone: bool
    gpus_of: OwnGpus | None = None

    def tasks(self, request: FetchRequest) -> list[FetchTask]:
        """See `Source`."""
        rows = partial(self._rows, request)
        return [FetchTask(self.cloud, NO_REGION, WHAT, rows, spot_prices=True)]

    def _rows(self, request: FetchRequest) -> Iterator[FetchedRows]:
        regions = " ".join(sorted(request.regions)) or "*"
        key = f"{WHAT} {request.history(self.cloud, regions)}"
        since = request.start_of(key)
        looks = self._looks(since, request.until)
        if not looks:
            day = format_time(since)[:10]
            problem = f"{self.cloud}: {self.repository} has no file of this cloud since {day}"
            raise UnknownResource(problem, "name a later date")

        # The newest one tells about how large all are.
        names = [
            self._git("rev-parse", f"{look.commit}:{look.path}").decode().strip() for look in looks
        ]
        self._bring(names[-1:])
        packs = [path.stat() for path in self.folder.glob("objects/pack/*.pack")]
        packs.sort(key=attrgetter("st_mtime_ns"))
        size = max(packs[-1].st_size, 1) if packs else 1
        allowed = max(self.most_bytes // size, 1)
        left = len(looks) - allowed
        looks, names = looks[-allowed:], names[-allowed:]
        megabytes = len(looks) * size / _MEGABYTE
        notes = [f"{self.cloud}: {counted(len(looks), 'look')}, {megabytes:.0f} MB at most"]
        if left > 0:
            day, days = format_time(looks[0].at)[:10], counted(left, "earlier day")
            notes.append(f"{self.cloud}: begins on {day}: {days} left out, see --most-mb")
        yield FetchedRows(notes=tuple(notes))

        self._bring(names)
        for first in range(0, len(looks), _STORED_AT_A_TIME):
            some = slice(first, first + _STORED_AT_A_TIME)
            pairs = zip(looks[some], names[some], strict=True)
            rows = FetchedRows.joined(self._read(look, name, request) for look, name in pairs)
            yield replace(rows, covered={key: Span(since, looks[some][-1].at)})

    def _read(self, look: _Look, name: str, request: FetchRequest) -> FetchedRows:
        content = self._git("cat-file", "blob", name)
        file = CatalogFile(self.cloud, look.version, look.at, content)
        try:
            rows = read_catalog(
                file, request, self.known(), by_zone=self.by_zone, gpus_of=self.gpus_of
            )
        except NoAnswer as error:
            return FetchedRows(notes=(f"{error.problem}: left out",))
        return replace(rows, notes=())

    def _looks(self, since: int, until: int) -> list[_Look]:
        """The last version of each day, of the newest format that has the cloud on that day."""
        if not (self.folder / "HEAD").exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            self._git("init", "--quiet", "--bare", ".")
        self._git("config", "remote.origin.url", self.repository)
        self._git("config", "remote.origin.promisor", "true")
        begin = f"--shallow-since={format_time(since)}"
        fetch = ("fetch", "--quiet", "--no-tags", "--filter=blob:none", begin, "origin")
        self._git(*fetch, f"+HEAD:{_REF}")

        form = ("--format=%x00%H %ct", "--name-only", "--no-renames")
        commits = self._git("log", *form, _REF, "--", f"catalogs/v*/{self.cloud}/vms.csv").decode()
        newest: dict[int, _Look] = {}
        for entry in filter(str.strip, commits.split("\0")):
            head, *paths = entry.split("\n")
            commit, seconds = head.split()
            at = int(seconds) * SECOND
            if not since <= at <= until:
                continue
            for path in filter(None, paths):
                match = _PATH.match(path)
                version = int(match["version"]) if match else 0
                look, before = _Look(at, version, commit, path), newest.get(at // DAY)
                is_newer = before is None or (version, at) > (before.version, before.at)
                # The commit may have removed it.
                if is_newer and self._git("ls-tree", commit, path):
                    newest[at // DAY] = look
        return [newest[day] for day in sorted(newest)]

    def _bring(self, names: Sequence[str]) -> None:
        """Fetches files that are not here yet, all at once: git itself would ask for each alone."""
        note = self.folder / "brought"
        here = set(note.read_text().split()) if note.exists() else set[str]()
        missing = [name for name in dict.fromkeys(names) if name not in here]
        if missing:
            # A server takes the files of each commit that it sees here to be here, too.
            fetch = ("-c", "fetch.negotiationAlgorithm=noop", "fetch", "--quiet", "--no-tags")
            options = ("--no-write-fetch-head", "--filter=blob:none", "origin", "--stdin")
            self._git(*fetch, *options, given="\n".join(missing))
            with note.open("a") as file:
                file.writelines(f"{name}\n" for name in missing)

    def _git(self, *words: str, given: str = "") -> bytes:
        """The output of git. NoAnswer: it fails."""
        variables = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "GIT_DIR": str(self.folder)}
        try:
            done = subprocess.run(
                ["git", *words],  # noqa: S607 - whichever there is
                cwd=self.folder,
                env=variables,
                input=given.encode(),
                capture_output=True,
                check=False,
            )
        except FileNotFoundError:
            problem = f"{self.cloud}: the catalog's history is in a git repository"
            raise NoAnswer(problem, "install git") from None
        if done.returncode != 0:
            said = on_one_line(Exception(done.stderr.decode(errors="replace").strip()), 200)
            raise NoAnswer(f"{self.cloud}: {self.repository}: git: {said}", _CURE)
        return done.stdout
