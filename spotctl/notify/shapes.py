"""Notices as the JSON that a receiver shows. Which one it is, its address tells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from spotctl.notify.notice import Notice

_GREEN, _RED = "#2e7d32", "#c62828"
_SHORT = 40
"""Characters of a text that stands beside another."""
_DISCORD_MOST = 2000


def body(notice: Notice, url: str) -> dict[str, Any]:
    """What is posted to an address."""
    host = urlsplit(url).hostname or ""
    shape = next((shape for suffix, shape in _BY_HOST.items() if host == suffix or host.endswith(f".{suffix}")), _plain)
    return shape(notice)


def _slack(notice: Notice) -> dict[str, Any]:
    """Slack's incoming webhooks; it refuses keys that it does not know."""
    fields = [
        {"title": name, "value": said, "short": len(said) <= _SHORT} for name, said in notice.shown.items() if said
    ]
    color = _GREEN if notice.good else _RED
    return {
        "text": notice.title,
        "attachments": [{"color": color, "fallback": notice.text, "fields": fields}],
    }


def _plain(notice: Notice) -> dict[str, Any]:
    """For programs; Mattermost, Rocket.Chat and others that understand Slack's keys show it as well."""
    return {**_slack(notice), "id": notice.id, "ok": notice.good, "facts": dict(notice.facts)}


def _teams(notice: Notice) -> dict[str, Any]:
    """An adaptive card, as the workflows of Microsoft Teams take it."""
    title = {
        "type": "TextBlock",
        "text": notice.title,
        "weight": "bolder",
        "wrap": True,
        "color": "good" if notice.good else "attention",
    }
    facts = [{"title": name, "value": said} for name, said in notice.shown.items() if said]
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": [title, {"type": "FactSet", "facts": facts}],
    }
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "content": card}
    return {"type": "message", "attachments": [attachment]}


def _discord(notice: Notice) -> dict[str, Any]:
    return {"content": notice.text[:_DISCORD_MOST]}


_BY_HOST: dict[str, Callable[[Notice], dict[str, Any]]] = {
    "hooks.slack.com": _slack,
    "webhook.office.com": _teams,
    "logic.azure.com": _teams,
    "api.powerplatform.com": _teams,
    "discord.com": _discord,
    "discordapp.com": _discord,
}
