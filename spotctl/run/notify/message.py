"""`Message`: what is sent to a webhook, independent of the receiver's format."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

HIDDEN = "***"
_SHORTEST = 4
"""Shorter values are not hidden: they are common words rather than secrets, and hiding them would garble the text."""


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

    def without(self, secrets: Iterable[str]) -> "Message":
        """The message with these values replaced by `***`: a message may quote what a program printed."""
        values = list(secrets)
        return replace(
            self,
            title=hidden(self.title, values),
            lines={name: hidden(text, values) for name, text in self.lines.items()},
            facts={name: hidden(fact, values) if isinstance(fact, str) else fact for name, fact in self.facts.items()},
        )


def hidden(text: str, secrets: Iterable[str]) -> str:
    """The text without the values of secrets."""
    # The longest first, because one value may be part of another.
    for value in sorted({value for value in secrets if len(value) >= _SHORTEST}, key=len, reverse=True):
        text = text.replace(value, HIDDEN)
    return text
