from __future__ import annotations

from collections.abc import Callable

import pytest
import typer

from pricing_data.errors import (
    AccessDenied,
    BadInput,
    MissingCredentials,
    StoreError,
    UnknownMarket,
)
from spotctl.agent.errors import BadCheckpoint
from spotctl.cli.app import debug_first
from spotctl.cli.boundary import exit_code_of
from spotctl.clouds.errors import (
    NoCapacity,
    NotFound,
    NotPermitted,
    QuotaReached,
    Throttled,
    Unanswered,
)
from spotctl.home.errors import BadRequest, BadSettings, MissingSecret
from spotctl.log.outcomes import AlreadyRunning, LogFailed
from spotctl.planning.errors import NotInTime, OverBudget


def raising(error: BaseException) -> Callable[[], object]:
    def command() -> object:
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BadInput("x"), 2),
        (UnknownMarket("x"), 2),
        (BadSettings("x"), 2),
        (BadRequest("x"), 2),
        (typer.BadParameter("x"), 2),
        (MissingCredentials("x"), 5),
        (AccessDenied("x"), 5),
        (StoreError("x"), 1),
        (MissingSecret("x"), 5),
        (NotPermitted("x"), 5),
        (NoCapacity("x"), 3),
        (QuotaReached("x"), 3),
        (NotFound("x"), 1),
        (Throttled("x"), 1),
        (Unanswered("x"), 1),
        (NotInTime("x"), 3),
        (OverBudget("x"), 4),
        (AlreadyRunning("x"), 6),
        (LogFailed("x"), 1),
        (BadCheckpoint("x"), 1),
        (KeyboardInterrupt(), 130),
        (ZeroDivisionError("x"), 1),
        (typer.Exit(3), 3),
    ],
)
def test_each_failure_has_its_exit_code_and_one_line(
    error: BaseException, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code_of(raising(error), debug=False) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == (0 if isinstance(error, typer.Exit) else 1)
    assert "Traceback" not in said.err


def test_debug_shows_where(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code_of(raising(StoreError("broken\nin two lines")), debug=True) == 1
    said = capsys.readouterr().err
    assert "Traceback" in said
    assert said.endswith("spotctl: broken in two lines\n")


def test_a_command_that_answers_a_number_ends_with_it() -> None:
    assert [exit_code_of(command, debug=False) for command in (lambda: 2, lambda: None)] == [2, 0]


@pytest.mark.parametrize(
    ("words", "debug", "ordered"),
    [
        ("plan job.yaml", False, "plan job.yaml"),
        ("plan job.yaml --debug", True, "--debug plan job.yaml"),
        ("--debug plan --debug job.yaml", True, "--debug plan job.yaml"),
        ("exec small -- program --debug", False, "exec small -- program --debug"),
        ("exec --debug small -- program --debug", True, "--debug exec small -- program --debug"),
    ],
)
def test_debug_may_stand_anywhere(words: str, debug: bool, ordered: str) -> None:
    assert debug_first(words.split()) == (debug, ordered.split())


def test_a_message_breaks_no_word_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("spotctl.home.printable.width_of", lambda _: 40)
    exit_code_of(
        raising(BadRequest("run a-1 was interrupted: 'spotctl resume a' resumes it")), debug=False
    )
    assert capsys.readouterr().err.splitlines() == [
        "spotctl: run a-1 was interrupted:",
        "'spotctl resume a' resumes it",
    ]
