"""What is to be told, before anybody decides how it looks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

HIDDEN = "***"
_SHORTEST = 4
"""Values below this length are words of the language rather than secrets; hiding them would garble the text."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A message. `id` is the same for the same news, so that a receiver knows one that comes twice.

    `shown` are lines for people, name and text; `facts` are for programs.
    """

    id: str
    title: str
    good: bool
    shown: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, object] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """All of it, as lines of plain text."""
        return "\n".join([self.title, *(f"{name}: {said}" for name, said in self.shown.items())])

    def without(self, secrets: Iterable[str]) -> Notice:
        """The same with these values hidden, wherever they stand: what a program prints may hold them."""
        # The longest first: one value may be a part of another.
        values = sorted({value for value in secrets if len(value) >= _SHORTEST}, key=len, reverse=True)
        return replace(
            self,
            title=_hidden(self.title, values),
            shown={name: _hidden(said, values) for name, said in self.shown.items()},
            facts={name: _hidden(fact, values) if isinstance(fact, str) else fact for name, fact in self.facts.items()},
        )


def _hidden(text: str, values: Iterable[str]) -> str:
    for value in values:
        text = text.replace(value, HIDDEN)
    return text
