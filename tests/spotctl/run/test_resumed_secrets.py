"""What a resumed run lacks is said before a cloud is opened, which takes seconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from spotctl.files.job.programs import Command
from spotctl.files.job.reader import written
from spotctl.files.job.resources import Reliable, Resources
from spotctl.files.job.spec import JobSpec, Range
from spotctl.files.job.values import Nodes
from spotctl.home.config import load
from spotctl.home.errors import MissingSecret
from spotctl.home.paths import Paths
from spotctl.log.events import RunBegan, StopRequested
from spotctl.log.store import EventLog
from spotctl.run.following import RunObserver
from spotctl.run.start import runs


class Opened(Exception):
    """A cloud was opened."""


def opened(*_: object) -> None:
    raise Opened


@pytest.mark.parametrize(
    ("secret", "stop", "meets"),
    [("", None, MissingSecret), ("a-value", None, Opened), ("", runs.ON_REQUEST, Opened)],
    ids=["missing", "there", "not needed, because the run only ends"],
)
def test_a_missing_secret_is_named_first(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    secret: str,
    stop: StopRequested | None,
    meets: type[Exception],
) -> None:
    monkeypatch.setattr(runs, "provider_of", opened)
    monkeypatch.delenv("A_TOKEN", raising=False)
    if secret:
        monkeypatch.setenv("A_TOKEN", secret)
    resources = Resources(("aws",), Range(1, 1), Reliable(0))
    spec = JobSpec("job", Command("true", Nodes(1, 1)), resources, tmp_path, secrets=("A_TOKEN",))
    settings = load({}, tmp_path / "home")
    with EventLog(Paths(settings.home).log) as log:
        log.append("job-1", 0, RunBegan("job", "aws", dict(written(spec)), "", 0))
    with pytest.raises(meets):
        runs.resume("job", settings, RunObserver(), stop)
