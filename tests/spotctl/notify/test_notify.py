from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotctl.notify.notice import Notice
from spotctl.notify.shapes import body
from spotctl.notify.webhook import Patience, post
from tests.spotctl.cli import spotctl
from tests.spotctl.launches import COMMAND
from tests.spotctl.nightly.hooks import hook

AT_ONCE = Patience(seconds=5.0, first_pause=0.01)
NOTICE = Notice("run-1", "small: failed", good=False, shown={"Cost": "$1.00"}, facts={"spent_usd": 1.0, "job": "small"})


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
def test_each_receiver_is_sent_what_it_shows(url: str, keys: set[str]) -> None:
    sent = body(NOTICE, url)
    assert sent.keys() == keys
    assert "small: failed" in json.dumps(sent)
    assert "$1.00" in json.dumps(sent)


def test_programs_get_the_facts() -> None:
    assert body(NOTICE, "https://example.org/x")["facts"] == {"spent_usd": 1.0, "job": "small"}


@given(secret=st.text(min_size=4, max_size=12, alphabet="ab"), around=st.text(max_size=6, alphabet="ab"))
def test_secrets_are_hidden_wherever_they_stand(secret: str, around: str) -> None:
    said = around + secret + around
    hidden = Notice("i", said, good=True, shown={"x": said}, facts={"y": said, "z": 3}).without([secret, secret[:4]])
    assert secret not in hidden.text
    assert secret not in str(hidden.facts["y"])
    assert hidden.facts["z"] == 3


def test_a_part_of_another_secret_leaves_nothing_of_it() -> None:
    assert Notice("i", "abcdefgh", good=True).without(["abcd", "abcdefgh"]).title == "***"


@pytest.mark.parametrize(
    ("answers", "times", "failure"),
    [
        ((), 1, ""),
        ((500, 429), 3, ""),
        ((500, 503, 500), 3, "it answered 500"),
        ((404,), 1, "it answered 404"),
        ((302,), 1, "it answered 302"),
    ],
)
def test_a_receiver_is_asked_a_few_times(answers: tuple[int, ...], times: int, failure: str) -> None:
    with hook(*answers) as receiver:
        delivery = post(NOTICE, receiver.url, AT_ONCE)
    assert len(receiver.got) == times
    assert delivery.failure.startswith(failure)
    assert bool(delivery.failure) is bool(failure)
    assert "xyz" not in delivery.words


def test_nobody_there_costs_nothing_but_a_remark() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        delivery = post(NOTICE, f"http://127.0.0.1:{silent.getsockname()[1]}/x", AT_ONCE)
    assert "ConnectError" in delivery.failure


def test_a_receiver_that_never_answers_is_given_up() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        patience = Patience(seconds=0.05, attempts=2, first_pause=0.01)
        delivery = post(NOTICE, f"http://127.0.0.1:{silent.getsockname()[1]}/x", patience)
    assert "ReadTimeout" in delivery.failure


def test_a_launched_job_tells_its_webhook_and_not_its_secrets(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    with hook() as receiver:
        job = COMMAND.format(run=json.dumps("exit 3"))
        path.write_text(f"{job}secrets: [A_TOKEN]\nnotify: {{webhook: '{receiver.url}'}}\n")
        ended = spotctl("launch", path, "--yes", "--json", A_TOKEN="fail")
    (told,) = receiver.got
    assert (ended.code, told["ok"]) == (1, False)
    assert told["id"] == ended.json["run"]
    assert told["facts"]["cost_usd"] == ended.json["cost_usd"]
    assert "***" in told["text"]
    assert "fail" not in json.dumps(told)


def test_an_address_from_the_environment_is_in_no_log(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(COMMAND.format(run="'true'") + "notify: {webhook: $A_HOOK}\n")
    with hook() as receiver:
        ended = spotctl("launch", path, "--yes", "--json", A_HOOK=receiver.url)
    assert [told["ok"] for told in receiver.got] == [True]
    assert (ended.code, ended.err) == (0, "")
    written = b"".join(kept.read_bytes() for kept in (tmp_path / "home").rglob("*") if kept.is_file())
    assert b"$A_HOOK" in written
    assert receiver.url.encode() not in written
    assert "A_HOOK is not in the environment" in spotctl("launch", path, "--yes").error


def test_a_launch_succeeds_though_nobody_can_be_told(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    with hook(404) as receiver:
        path.write_text(COMMAND.format(run="'true'") + f"notify: {{webhook: '{receiver.url}'}}\n")
        ended = spotctl("launch", path, "--yes")
    assert ended.code == 0
    assert "could not be told: it answered 404" in ended.error
