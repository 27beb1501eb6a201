from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from pricing_data.units import NANO_SECONDS_PER_DOLLAR
from spotctl.log.events import FINISH, BudgetExceeded
from spotctl.log.state import RunState
from spotctl.run import notify as sending
from spotctl.run.notify import Message, body, message_of_alarm, post
from tests.spotctl.command_line import spotctl
from tests.spotctl.launches import COMMAND
from tests.spotctl.nightly.hooks import hook

MESSAGE = Message(
    "run-1",
    "small: failed",
    good=False,
    lines={"Cost": "$1.00"},
    facts={"spent_usd": 1.0, "job": "small"},
)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "FIRST_PAUSE_SECONDS", 0.01)


@pytest.mark.parametrize(
    ("url", "keys"),
    [
        ("https://hooks.slack.com/services/T/B/x", {"text", "attachments"}),
        ("https://chat.example.org/hooks/abc", {"text", "attachments", "id", "ok", "facts"}),
        ("https://acme.webhook.office.com/webhookb2/x", {"type", "attachments"}),
        ("https://prod-1.westeurope.logic.azure.com:443/workflows/x", {"type", "attachments"}),
        ("https://discord.com/api/webhooks/1/x", {"content"}),
        ("https://nothooks.slack.com.example.org/x", {"text", "attachments", "id", "ok", "facts"}),
    ],
)
def test_format_by_receiver(url: str, keys: set[str]) -> None:
    sent = body(MESSAGE, url)
    assert sent.keys() == keys
    assert "small: failed" in json.dumps(sent)
    assert "$1.00" in json.dumps(sent)


def test_programs_receive_the_facts() -> None:
    assert body(MESSAGE, "https://example.org/x")["facts"] == {"spent_usd": 1.0, "job": "small"}


def test_a_budget_that_will_not_last_is_reported_with_both_amounts() -> None:
    exceeded = BudgetExceeded(FINISH, 12 * NANO_SECONDS_PER_DOLLAR, 8 * NANO_SECONDS_PER_DOLLAR)
    message = message_of_alarm("small", RunState(run="small-1"), exceeded)
    assert "expected to cost $12.00, more than its budget of $8.00" in message.text
    assert (message.facts["expected_usd"], message.facts["budget_usd"], message.good) == (
        12.0,
        8.0,
        False,
    )


@given(
    secret=st.text(min_size=4, max_size=12, alphabet="ab"),
    around=st.text(max_size=6, alphabet="ab"),
)
def test_secrets_are_hidden_everywhere(secret: str, around: str) -> None:
    text = around + secret + around
    hidden = Message("i", text, good=True, lines={"x": text}, facts={"y": text, "z": 3}).without(
        [secret, secret[:4]]
    )
    assert secret not in hidden.text
    assert secret not in str(hidden.facts["y"])
    assert hidden.facts["z"] == 3


def test_a_secret_that_contains_another_is_hidden_completely() -> None:
    assert Message("i", "abcdefgh", good=True).without(["abcd", "abcdefgh"]).title == "***"


@pytest.mark.parametrize(
    ("answers", "times", "failure"),
    [
        ((), 1, ""),
        ((500, 429), 3, ""),
        ((500, 503, 500), 3, "HTTP 500"),
        ((404,), 1, "HTTP 404"),
        ((302,), 1, "HTTP 302"),
    ],
)
def test_temporary_failures_are_retried(answers: tuple[int, ...], times: int, failure: str) -> None:
    with hook(*answers) as receiver:
        delivery = post(MESSAGE, receiver.url)
    assert len(receiver.got) == times
    assert delivery.failure.startswith(failure)
    assert bool(delivery.failure) is bool(failure)
    assert "xyz" not in delivery.text


def test_an_unreachable_receiver_is_a_failed_delivery() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        delivery = post(MESSAGE, f"http://127.0.0.1:{silent.getsockname()[1]}/x")
    assert "ConnectError" in delivery.failure


def test_a_receiver_that_never_answers_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        monkeypatch.setattr(sending, "TIMEOUT_SECONDS", 0.05)
        delivery = post(MESSAGE, f"http://127.0.0.1:{silent.getsockname()[1]}/x")
    assert "ReadTimeout" in delivery.failure


def test_a_launch_notifies_its_webhook_without_secrets(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    with hook() as receiver:
        job = COMMAND.format(run=json.dumps("exit 3"))
        path.write_text(f"{job}secrets: [A_TOKEN]\nnotify: {{webhook: '{receiver.url}'}}\n")
        ended = spotctl("launch", path, "--yes", "--json", A_TOKEN="fail")
    (sent,) = receiver.got
    assert (ended.code, sent["ok"]) == (1, False)
    assert sent["id"] == ended.json["run"]
    assert sent["facts"]["cost_usd"] == ended.json["cost_usd"]
    assert "***" in sent["text"]
    assert "fail" not in json.dumps(sent)


def test_an_address_from_the_environment_is_not_logged(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(COMMAND.format(run="'true'") + "notify: {webhook: $A_HOOK}\n")
    with hook() as receiver:
        ended = spotctl("launch", path, "--yes", "--json", A_HOOK=receiver.url)
    assert [sent["ok"] for sent in receiver.got] == [True]
    assert ended.code == 0, ended.err
    written = b"".join(
        kept.read_bytes() for kept in (tmp_path / "home").rglob("*") if kept.is_file()
    )
    assert b"$A_HOOK" in written
    assert receiver.url.encode() not in written
    assert "A_HOOK is not in the environment" in spotctl("launch", path, "--yes").err


def test_a_failed_delivery_does_not_fail_the_launch(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    with hook(404) as receiver:
        path.write_text(COMMAND.format(run="'true'") + f"notify: {{webhook: '{receiver.url}'}}\n")
        ended = spotctl("launch", path, "--yes")
    assert ended.code == 0
    assert "could not notify 127.0.0.1" in ended.err
