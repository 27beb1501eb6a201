"""Which measures against stragglers a job takes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from agileml.errors import BadArgument, check_flag
from agileml.policies.dbw import DBW, FixedWait, WaitPolicy
from agileml.policies.flexrr import Reassignment

WORDS = {"reassign": "reassign", "backup-workers": "backup_workers", "balance": "balance_servers"}
"""Names of the settings on a command line."""

ONLY_AUTO = "the slowest workers are left out only while that clearly pays"


@dataclass(frozen=True, slots=True)
class Stragglers:
    """`reassign`: workers that fall behind lend work to faster ones (FlexRR); `Reassignment` has
    its settings.

    `backup_workers`: with `auto`, clocks end without the slowest workers while that clearly pays;
    their number is chosen for each clock (DBW). Experiments may pass True (always DBW), the number
    to leave out, or a policy. `balance_servers`: partitions move away from servers that are slow
    (PSLD).
    """

    reassign: bool | Reassignment = False
    balance_servers: bool = False
    backup_workers: bool | int | Literal["auto"] | WaitPolicy = False

    def __post_init__(self) -> None:
        given = self.backup_workers
        known = isinstance(given, int) and given >= 0
        if not (known or given == "auto" or callable(getattr(given, "observe", None))):
            raise BadArgument(f"stragglers: backup_workers is {given!r}; choose auto or false")
        if not isinstance(self.reassign, Reassignment):
            check_flag("stragglers: reassign", self.reassign)
        check_flag("stragglers: balance_servers", self.balance_servers)

    @property
    def reassignment(self) -> Reassignment | None:
        """The settings of the work that workers lend; None if they lend none."""
        if isinstance(self.reassign, Reassignment):
            return self.reassign
        return Reassignment() if self.reassign else None

    @property
    def wait_policy(self) -> WaitPolicy | None:
        """The policy that chooses how many workers each clock waits for; None to wait for all."""
        match self.backup_workers:
            case False | 0:
                return None
            case True | "auto" as given:
                return DBW(auto=given == "auto")
            case int(backups):
                return FixedWait(backups)
            case policy:
                return policy

    @classmethod
    def of(cls, given: str | Mapping[str, Any]) -> Stragglers:
        """Settings from a text (see `parse`), or from their names and values."""
        if isinstance(given, str):
            return cls.parse(given)

        _check_names("stragglers", given, WORDS.values())
        backups = given.get("backup_workers", False)
        if isinstance(backups, int) and backups:
            raise BadArgument(f"stragglers: backup_workers is {backups!r}; write auto: {ONLY_AUTO}")

        reassign = given.get("reassign", False)
        if isinstance(reassign, Mapping):
            _check_names(
                "stragglers: reassign", reassign, [field.name for field in fields(Reassignment)]
            )
            reassign = Reassignment(**reassign)

        return cls(**{**given, "reassign": reassign})

    @classmethod
    def parse(cls, text: str) -> Stragglers:
        """Parses words such as `reassign,backup-workers=auto`; an empty text turns everything
        off."""
        settings: dict[str, Any] = {}
        for word in text.split(",") if text.strip() else []:
            name, has_value, value = word.strip().partition("=")
            if name not in WORDS:
                raise BadArgument(
                    f"stragglers is {text!r}: unknown word {name!r}; choose from {', '.join(WORDS)}"
                )
            if name == "backup-workers" and value != "auto":
                raise BadArgument(f"stragglers is {text!r}: write backup-workers=auto: {ONLY_AUTO}")
            if has_value and name != "backup-workers":
                raise BadArgument(f"stragglers is {text!r}: {name} takes no value")
            settings[WORDS[name]] = value if has_value else True

        return cls(**settings)


def _check_names(where: str, given: Iterable[str], known: Collection[str]) -> None:
    for name in given:
        if name not in known:
            raise BadArgument(f"{where}: unknown setting {name!r}; choose from {', '.join(known)}")
