"""Services that Apprise reaches: a mail server and a JSON receiver, both on the loopback
interface."""

from __future__ import annotations

import io
import logging
import socket
from collections.abc import Iterator
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import cast

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session

from spotctl.files.job.spec import Notify
from spotctl.nightly.environment import keep_addresses, read_addresses, resolved_addresses
from spotctl.run.notify import Message, deliver, post, send
from tests.spotctl.command_line import spotctl
from tests.spotctl.launches import COMMAND
from tests.spotctl.nightly.hooks import hook

MESSAGE = Message("run-1", "small: done", good=True, lines={"Cost": "<$1.00>", "Evictions": "3"})
PASSWORD = "s3cr3t-pass"


class Mailbox:
    """A mail server of the test's own; it keeps what it receives, or refuses every message."""

    def __init__(self) -> None:
        self.got: list[EmailMessage] = []
        self.refusal = ""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]

    async def handle_DATA(  # noqa: N802 - the name in aiosmtpd
        self, _server: SMTP, _session: Session, envelope: Envelope
    ) -> str:
        if self.refusal:
            return self.refusal
        content = cast("bytes", envelope.content)
        self.got.append(message_from_bytes(content, policy=policy.default))
        return "250 OK"

    @property
    def address(self) -> str:
        return f"mailto://127.0.0.1:{self.port}?from=spotctl@example.com&to=me@example.com"


@pytest.fixture
def mailbox() -> Iterator[Mailbox]:
    box = Mailbox()
    controller = Controller(box, hostname="127.0.0.1", port=box.port)
    controller.start()
    yield box
    controller.stop()


def json_address(url: str, user: str = "") -> str:
    """The address for Apprise of a receiver of JSON."""
    return url.replace("http://", f"json://{user}")


def refusal(tmp_path: Path, address: str, **variables: str) -> str:
    """The line with which a job that names an address is refused."""
    path = tmp_path / "job.yaml"
    path.write_text(COMMAND.format(run="'true'") + f"notify: {{to: [{address!r}]}}\n")
    ended = spotctl("launch", path, "--yes", **variables)
    assert ended.code == 2
    (line,) = ended.err.splitlines()
    return line.replace(str(path), "job.yaml")


def test_a_mail_has_the_title_and_the_lines_of_the_message(mailbox: Mailbox) -> None:
    delivery = send(MESSAGE, mailbox.address)
    assert delivery.text == "notified E-Mail"
    (sent,) = mailbox.got
    assert (sent["Subject"], sent["To"]) == ("small: done", "me@example.com")
    assert sent.get_content().splitlines() == ["Cost: <$1.00>", "Evictions: 3"]


def test_a_message_without_lines_has_its_title_as_content(mailbox: Mailbox) -> None:
    assert not send(Message("i", "a title", good=False), mailbox.address).failure
    assert mailbox.got[0].get_content().strip() == "a title"


def test_the_webhook_and_every_service_get_the_message(mailbox: Mailbox) -> None:
    with hook() as webhook, hook() as service:
        deliveries = deliver(
            MESSAGE, Notify(webhook.url, to=(json_address(service.url), mailbox.address))
        )
    assert [delivery.failure for delivery in deliveries] == ["", "", ""]
    assert (len(webhook.got), service.got[0]["title"], len(mailbox.got)) == (1, "small: done", 1)


def test_control_characters_that_a_message_quotes_are_shown(mailbox: Mailbox) -> None:
    quoting = Message(
        "i", "small: \x1b[2J", good=False, lines={"What happened": "exit 1: \x07\x1b]0;x\u202e"}
    )
    with hook() as webhook:
        deliver(quoting, Notify(webhook.url, to=(mailbox.address,)))
    (sent,), (posted,) = mailbox.got, webhook.got
    assert sent.get_content().strip() == r"What happened: exit 1: \x07\x1b]0;x\u202e"
    assert posted["text"] == r"small: \x1b[2J"
    assert posted["attachments"][0]["fields"][0]["value"] == r"exit 1: \x07\x1b]0;x\u202e"


def test_a_service_that_refuses_is_reported_and_the_others_get_the_message(
    mailbox: Mailbox,
) -> None:
    with hook(401) as receiver:
        first, second = deliver(MESSAGE, Notify(to=(json_address(receiver.url), mailbox.address)))
    assert first.text.startswith("could not notify JSON: ")
    assert "401" in first.failure
    assert (second.failure, len(mailbox.got)) == ("", 1)


def test_a_mail_server_that_refuses_the_message_is_a_failed_delivery(mailbox: Mailbox) -> None:
    mailbox.refusal = "554 no"
    assert send(MESSAGE, mailbox.address).text.startswith("could not notify E-Mail: ")


@pytest.mark.parametrize(("more", "received"), [("", 1), ("?retry=1&wait=0", 2)])
def test_a_failed_attempt_is_repeated_if_the_address_says_so(more: str, received: int) -> None:
    with hook(503) as receiver:
        delivery = send(MESSAGE, json_address(receiver.url) + more)
        assert (len(receiver.got), delivery.failure == "") == (received, received == 2)


def test_a_redirect_is_not_followed() -> None:
    with hook(302) as receiver:
        assert send(MESSAGE, json_address(receiver.url)).failure
        assert len(receiver.got) == 1


@pytest.mark.parametrize("answers", [(), (500,), (302,)])
def test_neither_a_line_of_ours_nor_a_log_has_the_address(
    answers: tuple[int, ...],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    logged = io.StringIO()
    handler, root = logging.StreamHandler(logged), logging.getLogger()
    with hook(*answers) as receiver, caplog.at_level(logging.DEBUG):
        root.addHandler(handler)
        monkeypatch.setenv("A_SERVICE", json_address(receiver.url, f"me:{PASSWORD}@"))
        monkeypatch.setenv("A_HOOK", receiver.url)
        said = [
            delivery.text for delivery in deliver(MESSAGE, Notify("$A_HOOK", to=("$A_SERVICE",)))
        ]
        root.removeHandler(handler)
    assert len(receiver.got) >= 2
    printed = "\n".join([*said, logged.getvalue(), *capfd.readouterr()])
    assert PASSWORD not in printed
    assert "xyz" not in printed


def test_other_threads_and_requests_are_logged_as_ever(caplog: pytest.LogCaptureFixture) -> None:
    with hook() as receiver, caplog.at_level(logging.INFO):
        post(MESSAGE, receiver.url)
        logging.getLogger("httpx").info("another request")
    assert caplog.messages == ["another request"]


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        (
            "tgramm://123:abc/456",
            "tgramm:// is no service of Apprise (did you mean tgram?); see "
            "https://appriseit.com/services",
        ),
        (
            "tgram://nothing",
            "the tgram:// address is incomplete or malformed; "
            "https://appriseit.com/services/telegram/ shows its form",
        ),
        ("mailto://", "expected an address of Apprise"),
        (
            f"mailto://me:{PASSWORD}@example.com",
            "the mailto:// address holds a secret; put it into an environment variable, and write "
            "$NAME here",
        ),
        ("https://hooks.slack.com/services/s3cr3t-pass", "(https://... is for webhook)"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused_when_the_job_is_read(
    address: str, problem: str, tmp_path: Path
) -> None:
    line = refusal(tmp_path, address)
    assert line.startswith("spotctl: job.yaml:")
    assert "notify.to" in line
    assert problem in line
    assert PASSWORD not in line


def test_an_address_in_a_variable_is_checked_before_anything_is_rented(tmp_path: Path) -> None:
    line = refusal(tmp_path, "$A_SERVICE", A_SERVICE=f"tgram://{PASSWORD}")
    assert "$A_SERVICE: the tgram:// address is incomplete or malformed" in line
    assert PASSWORD not in line


def test_a_launch_sends_its_end_and_stores_no_secret(tmp_path: Path, mailbox: Mailbox) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(
        COMMAND.format(run="'true'")
        + f"notify: {{to: [$A_SERVICE, $A_MISSING, {mailbox.address!r}]}}\n"
    )
    with hook() as receiver:
        address = json_address(receiver.url, f"me:{PASSWORD}@")
        ended = spotctl("--debug", "launch", path, "--yes", "--json", A_SERVICE=address)
    assert ended.code == 0, ended.err
    assert (
        receiver.got[0]["title"]
        == mailbox.got[0]["Subject"]
        == f"small: done (run {ended.json['run']})"
    )
    assert "could not notify $A_MISSING: A_MISSING is not in the environment" in ended.err
    assert PASSWORD not in ended.err + ended.out
    home = tmp_path / "home"
    assert PASSWORD.encode() not in b"".join(
        kept.read_bytes() for kept in home.rglob("*") if kept.is_file()
    )
    assert b"$A_SERVICE" in b"".join(
        kept.read_bytes() for kept in home.rglob("*") if kept.is_file()
    )


def test_doctor_tries_every_address_of_a_job_file(tmp_path: Path, mailbox: Mailbox) -> None:
    path = tmp_path / "job.yaml"
    with hook(404) as receiver:
        addresses = f"{{webhook: '{receiver.url}', to: [{mailbox.address!r}]}}"
        path.write_text(COMMAND.format(run="'true'") + f"notify: {addresses}\n")
        failed, done = (spotctl("doctor", path, "--json") for _ in range(2))
    assert (failed.code, done.code) == (1, 0)
    assert [found["level"] for found in failed.json["findings"]] == ["fails", "good"]
    first, second = failed.json["findings"]
    assert (first["what"].partition(":")[0], first["told"]) == ("127.0.0.1", "HTTP 404 Not Found")
    assert (first["cure"], second["what"]) == ("check the address of the webhook", "E-Mail")
    assert mailbox.got[0]["Subject"] == "small: a test message"
    path.write_text(COMMAND.format(run="'true'"))
    nothing = spotctl("doctor", path)
    assert (nothing.code, "names no address" in nothing.err) == (2, True)


def test_nights_keep_the_addresses_and_find_their_variables(tmp_path: Path) -> None:
    addresses = Notify("$A_HOOK", None, ("$A_SERVICE", "syslog://"))
    path = tmp_path / "addresses"
    keep_addresses(path, addresses)
    assert read_addresses(path) == addresses
    found = resolved_addresses(addresses, {"A_SERVICE": "tgram://x"})
    assert found == Notify("$A_HOOK", None, ("tgram://x", "syslog://"))


def test_an_environment_without_apprise_is_told_what_to_install(
    mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("spotctl.files.job.messaging.find_spec", lambda _: None)
    assert "pip install 'spotctl[messages]'" in refusal(tmp_path, mailbox.address)
    assert "pip install 'spotctl[messages]'" in send(MESSAGE, mailbox.address).failure
