"""Which measures against stragglers a job takes."""

from __future__ import annotations

from dataclasses import dataclass

from agileml.checks import check_flag
from agileml.errors import BadArgument

WORDS = {"reassign": "reassign", "balance": "balance_servers"}
"""What a command line calls the settings."""


@dataclass(frozen=True, slots=True)
class Stragglers:
    """`reassign`: workers that fall behind lend work to faster ones (FlexRR).

    `balance_servers`: partitions move away from servers that are slow (PSLD).
    """

    reassign: bool = False
    balance_servers: bool = False

    def __post_init__(self) -> None:
        check_flag("stragglers: reassign", self.reassign)
        check_flag("stragglers: balance_servers", self.balance_servers)

    @classmethod
    def parse(cls, text: str) -> Stragglers:
        """Parses words separated by commas, such as `reassign`; an empty text turns everything off."""
        words = [word.strip() for word in text.split(",")] if text.strip() else []
        for word in words:
            if word not in WORDS:
                raise BadArgument(f"stragglers is {text!r}: unknown word {word!r}; choose from {', '.join(WORDS)}")
        return cls(**{WORDS[word]: True for word in words})
