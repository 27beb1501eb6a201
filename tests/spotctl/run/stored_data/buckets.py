"""A bucket on loopback, a job whose data is stored there, and what was sent and fetched."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

import pytest

from spotctl.agent.data import stores
from spotctl.agent.data.locations import MACHINE
from spotctl.agent.data.sets import FILES
from spotctl.files.job.reader import load
from spotctl.files.job.spec import JobSpec
from spotctl.home.config import Settings
from spotctl.run.stored_data.storing import store_data
from tests.servers.loopback import LoopbackServer, serving
from tests.servers.objects import GoogleDialect, ObjectStore, bearer

JOB = """\
name: {name}
kind: command
run: "true"
data: {{corpus: {data}}}
checkpoint: {{path: gs://bucket/{name}/}}
{more}resources: {{clouds: [gcp], regions: [us-central1], types: [n2-standard-4]}}
"""


@dataclass
class Bucket:
    """`said` are the lines of launches."""

    server: LoopbackServer
    folder: Path
    said: list[str] = field(default_factory=list)

    @property
    def store(self) -> ObjectStore:
        assert isinstance(self.server.api, ObjectStore)
        return self.server.api

    @property
    def data(self) -> Path:
        return self.folder / "corpus"

    def settings(self, home: str = "home") -> Settings:
        return Settings(home=self.folder / home)

    def launched(self, name: str = "reading", home: str = "home", more: str = "") -> str:
        """The place of the data that a launch stores."""
        return self.stored(name, home, more).data["corpus"]

    def stored(self, name: str = "reading", home: str = "home", more: str = "") -> JobSpec:
        """The job of a launch that stores its data."""
        path = self.folder / f"{name}.yaml"
        path.write_text(JOB.format(name=name, data=self.data, more=more))
        spec = load(path, to_launch=True)
        return store_data(spec, self.settings(home), self.said.append, identity=MACHINE)

    def calls(self, method: str, path: str = FILES) -> list[int]:
        """The bytes of each request to files, in their order; then they are forgotten."""
        found = [
            len(one.body)
            for one in self.server.requests
            if one.method == method and path in unquote(one.path)
        ]
        self.server.requests.clear()
        return found

    def fetched(self) -> int:
        """The bytes of files that were asked for; then they are forgotten."""
        read = [unquote(call.path) for call in self.server.requests if call.method == "GET"]
        asked = [path for path in read if FILES in path]
        self.server.requests.clear()
        return sum(len(self.store.objects[path.removeprefix("/bucket/")].content) for path in asked)


@contextmanager
def bucket_of(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    monkeypatch.setattr(stores, "FIRST_PAUSE", 0.001)
    monkeypatch.setenv("GOOGLE_OAUTH_ACCESS_TOKEN", "token")
    with serving(GoogleDialect("bucket", bearer("token"))) as server:
        monkeypatch.setenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE", server.url)
        yield Bucket(server, folder)


@contextmanager
def bucket_and_corpus(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """An empty bucket, and a folder of two files that can be sent to it."""
    (folder / "corpus" / "deep").mkdir(parents=True)
    (folder / "corpus" / "a").write_bytes(b"a" * 5000)
    (folder / "corpus" / "deep" / "b").write_bytes(b"b" * 300)
    with bucket_of(folder, monkeypatch) as bucket:
        yield bucket
