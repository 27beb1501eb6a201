"""Messages in the JSON formats of the receivers, which are recognized by their host names."""

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from spotctl.run.notify.message import Message

_GREEN, _RED = "#2e7d32", "#c62828"
_SHORT = 40
"""Texts up to this length are shown two in a row."""
_DISCORD_LIMIT = 2000


def body(message: Message, url: str) -> dict[str, Any]:
    """The JSON to post to this address."""
    host = urlsplit(url).hostname or ""
    shape = next((shape for suffix, shape in _BY_HOST.items() if host == suffix or host.endswith(f".{suffix}")), _plain)
    return shape(message)


def _slack(message: Message) -> dict[str, Any]:
    """Slack's incoming webhooks, which refuse unknown keys."""
    fields = [
        {"title": name, "value": text, "short": len(text) <= _SHORT} for name, text in message.lines.items() if text
    ]
    color = _GREEN if message.good else _RED
    return {
        "text": message.title,
        "attachments": [{"color": color, "fallback": message.text, "fields": fields}],
    }


def _plain(message: Message) -> dict[str, Any]:
    """For programs, and for Mattermost, Rocket.Chat and others that understand Slack's keys."""
    return {**_slack(message), "id": message.id, "ok": message.good, "facts": dict(message.facts)}


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


def _discord(message: Message) -> dict[str, Any]:
    return {"content": message.text[:_DISCORD_LIMIT]}


_BY_HOST: dict[str, Callable[[Message], dict[str, Any]]] = {
    "hooks.slack.com": _slack,
    "webhook.office.com": _teams,
    "logic.azure.com": _teams,
    "api.powerplatform.com": _teams,
    "discord.com": _discord,
    "discordapp.com": _discord,
}
