"""`Message`: what is sent to a job's webhook, in the JSON format of its receiver, and to services
through Apprise.

A failed delivery is reported and never fails the run. No line names more of an address than its
host or its service: the rest is a secret.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pricing_data.units import NANO_SECONDS_PER_DOLLAR, counted, moment, usd_text
from spotctl.clouds.errors import may_succeed_later
from spotctl.files.job.messaging import secrets_of, service_at
from spotctl.files.job.spec import JobSpec
from spotctl.home.errors import BadRequest
from spotctl.home.printable import printable
from spotctl.log.events import Alarm, LoginAwaited, RunEnded
from spotctl.log.ledger.same_work import final_figures
from spotctl.log.outcomes import DONE
from spotctl.log.state import RunState

if TYPE_CHECKING:
    from spotctl.files.job.spec import Notify


TIMEOUT_SECONDS = 10.0
_ATTEMPTS = 3
FIRST_PAUSE_SECONDS = 1.0
"""Between the first attempt and the second."""

HIDDEN = "***"

_SHORTEST = 4
"""Shorter values are not hidden: they are common words rather than secrets, and hiding them would
garble the text."""

_SHORT = 40
"""Texts up to this length are shown two in a row."""

_DISCORD_LIMIT = 2000

_FAILURES = ("WARNING", "ERROR", "CRITICAL")
"""The levels at which Apprise says why a service did not take a message."""

_MAX_REASON = 200

_GREEN, _RED = "#2e7d32", "#c62828"


@dataclass(frozen=True, slots=True)
class Delivery:
    """The result of sending a message to a receiver: the host of a webhook, or a service such as
    Telegram.
    """

    receiver: str
    failure: str = ""

    @property
    def text(self) -> str:
        """A line for the log."""
        if self.failure:
            return f"could not notify {self.receiver}: {self.failure}"
        return f"notified {self.receiver}"


def deliver(message: Message, addresses: Notify) -> list[Delivery]:
    """Sends a message to the webhook and to the services of a job; control characters that it
    quotes are shown.
    """
    lines = {name: printable(text) for name, text in message.lines.items()}
    message = replace(message, title=printable(message.title), lines=lines)
    posted = [] if addresses.webhook is None else [post(message, addresses.webhook)]
    return [*posted, *(send(message, address) for address in addresses.to)]


def send(message: Message, address: str) -> Delivery:
    """Sends a message through Apprise to an address or to that in a variable. Never raises for what
    a service does.
    """
    url = os.environ.get(address[1:], "") if address.startswith("$") else address
    if not url:
        return Delivery(address, f"{address[1:]} is not in the environment")

    try:
        service = service_at(url)
    except BadRequest as error:
        return Delivery(address if address.startswith("$") else url.partition(":")[0], str(error))

    from apprise import Apprise, NotifyFormat, NotifyType

    kind = NotifyType.SUCCESS if message.good else NotifyType.FAILURE
    lines = "\n".join(f"{name}: {text}" for name, text in message.lines.items())
    sender = Apprise(asset=service.asset)
    sender.add(service)
    with _unlogged():
        result = sender.notify(lines or message.title, message.title, kind, NotifyFormat.TEXT)
    name = str(service.service_name)
    if result:
        return Delivery(name)

    said = [
        entry.message
        for outcome in result
        for attempt in outcome
        for entry in attempt
        if entry.level in _FAILURES
    ]

    reason = " ".join(
        hidden(said[-1] if said else "it gave no reason", secrets_of(service)).split()
    )
    return Delivery(name, f"{reason[:_MAX_REASON]}; check the address")


def post(content: Message | str, address: str) -> Delivery:
    """Posts a message to an address or to that in a variable (`$NAME`), or tells a health check
    there that a night starts (`/start`), has ended well (empty) or has not (`/fail`). Never raises
    for receiver or network errors."""
    import httpx
    import stamina

    url = os.environ.get(address[1:], "") if address.startswith("$") else address
    if not url:
        return Delivery(address, f"{address[1:]} is not in the environment")

    host = urlsplit(url).netloc
    try:
        for attempt in stamina.retry_context(
            on=may_succeed_later,
            attempts=_ATTEMPTS,
            wait_initial=FIRST_PAUSE_SECONDS,
            wait_max=8 * FIRST_PAUSE_SECONDS,
            timeout=None,
        ):
            with attempt, _unlogged():
                # Redirects are not followed: the message is only for the configured receiver.
                if isinstance(content, str):
                    answer = httpx.get(url.rstrip("/") + content, timeout=TIMEOUT_SECONDS)
                else:
                    answer = httpx.post(url, json=body(content, url), timeout=TIMEOUT_SECONDS)
                answer.raise_for_status()
    except httpx.HTTPStatusError as error:
        return Delivery(
            host,
            f"HTTP {error.response.status_code} {error.response.reason_phrase}; check the address "
            "of the webhook",
        )
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return Delivery(host, f"{type(error).__name__} ({_ATTEMPTS} attempts)")

    return Delivery(host)


_CLIENTS = ("httpx", "httpcore.connection", "httpcore.http11", "urllib3.connectionpool")


@contextmanager
def _unlogged() -> Iterator[None]:
    """Drops what the clients log meanwhile, because it has the address: with --debug, it would be
    printed.
    """
    drop = logging.Filter("nothing that is logged has this name")
    clients = [logging.getLogger(name) for name in _CLIENTS]
    for client in clients:
        client.addFilter(drop)

    try:
        yield
    finally:
        for client in clients:
            client.removeFilter(drop)


@dataclass(frozen=True, slots=True)
class Message:
    """A message. A repeated message has the same `id`, so that receivers can drop it.

    `lines` are for people (name and text), `facts` are for programs; `good` selects the color.
    """

    id: str
    title: str
    good: bool
    lines: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, object] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return "\n".join([self.title, *(f"{name}: {text}" for name, text in self.lines.items())])

    def without(self, secrets: Iterable[str]) -> Message:
        """The message with these values replaced by `***`: a message may quote what a program
        printed.
        """
        values = list(secrets)
        return replace(
            self,
            title=hidden(self.title, values),
            lines={name: hidden(text, values) for name, text in self.lines.items()},
            facts={
                name: hidden(fact, values) if isinstance(fact, str) else fact
                for name, fact in self.facts.items()
            },
        )


def hidden(text: str, secrets: Iterable[str]) -> str:
    """The text without the values of secrets."""
    # The longest first, because one value may be part of another.
    for value in sorted(
        {value for value in secrets if len(value) >= _SHORTEST}, key=len, reverse=True
    ):
        text = text.replace(value, HIDDEN)
    return text


def body(message: Message, url: str) -> dict[str, Any]:
    """The JSON to post to this address."""
    host = urlsplit(url).hostname or ""
    receiver = ""
    for suffix, known in _BY_HOST.items():
        if host == suffix or host.endswith(f".{suffix}"):
            receiver = known
            break

    if receiver == "discord":
        return {"content": message.text[:_DISCORD_LIMIT]}
    if receiver == "teams":
        return _teams(message)

    fields = [
        {"title": name, "value": text, "short": len(text) <= _SHORT}
        for name, text in message.lines.items()
        if text
    ]

    color = _GREEN if message.good else _RED
    slack = {
        "text": message.title,
        "attachments": [{"color": color, "fallback": message.text, "fields": fields}],
    }

    # Slack's incoming webhooks refuse unknown keys. Others, such as Mattermost and Rocket.Chat,
    # understand Slack's, and programs read the rest.
    if receiver == "slack":
        return slack
    return {**slack, "id": message.id, "ok": message.good, "facts": dict(message.facts)}


def _teams(message: Message) -> dict[str, Any]:
    """An adaptive card for the workflows of Microsoft Teams."""
    title = {
        "type": "TextBlock",
        "text": message.title,
        "weight": "bolder",
        "wrap": True,
        "color": "good" if message.good else "attention",
    }

    facts = [{"title": name, "value": text} for name, text in message.lines.items() if text]
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": [title, {"type": "FactSet", "facts": facts}],
    }

    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "content": card}
    return {"type": "message", "attachments": [attachment]}


_BY_HOST = {
    "hooks.slack.com": "slack",
    "webhook.office.com": "teams",
    "logic.azure.com": "teams",
    "api.powerplatform.com": "teams",
    "discord.com": "discord",
    "discordapp.com": "discord",
}
"""The receivers whose webhooks want a format of their own."""


_FACTS = (
    "outcome",
    "message",
    "cost_usd",
    "on_demand_usd",
    "replayed",
    "hours",
    "evictions",
    "model",
)


def notify_of_end(spec: JobSpec, state: RunState, ended: RunEnded) -> list[Delivery]:
    """Sends the end of a run to all addresses of its job."""
    if not spec.notify.has_receivers:
        return []
    message = message_of_end(spec.name, state, ended).without(
        secret_values(spec.secrets, os.environ)
    )
    return deliver(message, spec.notify)


def message_of_end(job: str, state: RunState, ended: RunEnded) -> Message:
    """The message about the end of a run."""
    answer = final_figures(state, ended)
    alive = len(state.alive)
    lines = {
        "What happened": ended.message,
        "Cost": cost_text(answer["cost_usd"], answer["on_demand_usd"], replayed=state.is_replayed),
        "Evictions": str(state.evictions),
        "Still running": counted(alive, "machine") if alive else "nothing",
        "Model": str(answer.get("model", "")),
    }

    known_lines = {name: text for name, text in lines.items() if text}
    facts = {"event": "run ended", "job": job, "run": state.run, "left_running": alive}
    facts |= {name: answer[name] for name in _FACTS if name in answer}
    title = f"{job}: {ended.outcome} (run {state.run})"
    return Message(state.run, title, ended.outcome == DONE, known_lines, facts)


def notify_of_alarm(
    spec: JobSpec, state: RunState, alarm: Alarm, done: Callable[[Delivery], object]
) -> None:
    """Sends an alarm from another thread to all addresses of the job; `done` gets the result of
    each.
    """
    if not spec.notify.has_receivers:
        return

    message = message_of_alarm(spec.name, state, alarm).without(
        secret_values(spec.secrets, os.environ)
    )

    def send() -> None:
        for delivery in deliver(message, spec.notify):
            done(delivery)

    # The run goes on while a receiver is slow: leases have to be renewed.
    Thread(target=send, daemon=True).start()


def message_of_alarm(job: str, state: RunState, alarm: Alarm) -> Message:
    """The message that a cloud refuses a run's login, or that a run is expected to cost more than
    its budget.
    """
    facts: dict[str, object] = {"event": "budget too low", "job": job, "run": state.run}
    if isinstance(alarm, LoginAwaited):
        until = moment(alarm.until)
        key = f"{state.run}-login-{alarm.until}"
        title = "sign in again"
        happened = alarm.message
        follows = (
            f"machines keep working until {until}; then they end with their leases, and the run "
            "ends"
        )
        cure = (
            "sign in again; after that moment, launch the job again: it continues from its "
            "checkpoint"
        )
        facts |= {"event": "login expired", "until": until}
    else:
        expected = alarm.committed / NANO_SECONDS_PER_DOLLAR
        limit = alarm.limit / NANO_SECONDS_PER_DOLLAR
        key = f"{state.run}-budget"
        title = "the budget will not last"
        happened = (
            f"the whole job is expected to cost {usd_text(expected)}, more than its budget of "
            f"{usd_text(limit)}"
        )
        follows = "the run continues until the budget is used up"
        cure = f"to let it finish: spotctl resume {job} --budget USD"
        facts |= {"expected_usd": expected, "budget_usd": limit}

    lines = {"What happened": happened, "What follows": follows, "What to do": cure}
    return Message(key, f"{job}: {title} (run {state.run})", good=False, lines=lines, facts=facts)


def cost_text(spent: float | None, on_demand: float | None, *, replayed: bool) -> str:
    """`$3.10 (on demand $8.20)`, and for replayed money that nothing was billed."""
    if spent is None:
        return "unknown"
    compared = f" (on demand {usd_text(on_demand)})" if on_demand else ""
    return f"{usd_text(spent)}{compared}{', replayed: nothing was billed' if replayed and spent else ''}"


def secret_values(names: Iterable[str], environ: Mapping[str, str]) -> list[str]:
    """The values of a job's secrets, which no message may contain."""
    return [environ[name] for name in names if name in environ]
