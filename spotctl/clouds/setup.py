"""The needs of an account of a cloud, once, and who made them: the engine behind `spotctl setup`.

A cloud lists what it needs as rows (`SetupStep`): whether a thing is there, how it is made and
removed, and the cloud's own commands for it. One engine looks at all of them before it makes any,
writes down what it is about to make, and takes back what it has made if one of them fails. `undo`
removes what is written down, and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from ipaddress import ip_address
from typing import NamedTuple

from pricing_data.atomic_write import atomic_write
from pricing_data.errors import CloudError, UnknownResource
from spotctl.clouds.errors import on_one_line
from spotctl.home.config import Settings
from spotctl.home.errors import BadRequest
from spotctl.home.paths import Paths, make_private_folder

_SECONDS = 10.0


class SetupStep(NamedTuple):
    """One thing that an account needs. `name` is its own for ever: undoing finds it by that.

    `is_there` and `make` raise `CloudError`; so does `undo`, also where others use the thing. What
    has no `undo` cannot be taken back. `commands` make it by hand.
    """

    name: str
    what: str
    is_there: Callable[[], bool]
    make: Callable[[], None]
    undo: Callable[[], None] | None
    commands: tuple[str, ...]


class SetupRecord:
    """The names of what was made in an account from this home, in this order, and of each whether
    it is whole."""

    def __init__(self, paths: Paths, cloud: str, account: str) -> None:
        self._file = paths.setup / f"{cloud}-{account}.json"

    def made(self) -> dict[str, bool]:
        with suppress(FileNotFoundError):
            return {str(name): bool(whole) for name, whole in json.loads(self._file.read_text())}
        return {}

    def note(self, name: str, *, whole: bool | None) -> None:
        """Notes that a thing is about to be made, that it is whole, or (None) that it is gone."""
        names = self.made()
        if whole is None:
            names.pop(name, None)
        else:
            names[name] = whole
        make_private_folder(self._file.parent)
        with atomic_write(self._file) as new:
            new.write_text(json.dumps(list(names.items())))


def public_address(settings: Settings) -> str:
    """The address by which others see this computer, as a range. BadRequest: the page does not say it."""
    import httpx

    cure = 'write ssh_from = ["203.0.113.7/32"] in the cloud\'s table of config.toml'
    try:
        answer = httpx.get(settings.address_url, timeout=_SECONDS, follow_redirects=True)
        answer.raise_for_status()
        address = ip_address(answer.text.strip())
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        why = on_one_line(error)
        problem = f"{settings.address_url} does not say the address of this computer"
        raise BadRequest(f"{problem} ({why}); {cure}") from None
    return f"{address}/{address.max_prefixlen}"


def missing(steps: Sequence[SetupStep], record: SetupRecord) -> list[SetupStep]:
    """The steps whose things are not there, or were begun and not ended. CloudError: one cannot be
    looked up."""
    made = record.made()
    return [step for step in steps if made.get(step.name) is False or not step.is_there()]


def make_all(steps: Sequence[SetupStep], record: SetupRecord, say: Callable[[str], object]) -> None:
    """Makes things, one after another. CloudError: one cannot be made; those before it are gone
    again."""
    begun = list[SetupStep]()
    try:
        for step in steps:
            if step.name in record.made() and step.undo is not None:
                # A command that was killed has left a part of it, or nothing.
                with suppress(CloudError):
                    step.undo()
            record.note(step.name, whole=False)
            begun.append(step)
            step.make()
            record.note(step.name, whole=True)
            say(f"made {step.what}")
    except CloudError:
        undo_all(begun, record, say)
        raise


def undo_all(
    steps: Sequence[SetupStep], record: SetupRecord, say: Callable[[str], object]
) -> list[CloudError]:
    """Removes those of these things that are written down, the last one first; the reasons why some
    are left."""
    left, ours = list[CloudError](), record.made()
    for step in reversed([each for each in steps if each.name in ours]):
        if step.undo is None:
            record.note(step.name, whole=None)
            continue
        try:
            # It may not have been made, or is gone.
            with suppress(UnknownResource):
                step.undo()
                say(f"removed {step.what}")
        except CloudError as error:
            left.append(error)
            continue
        record.note(step.name, whole=None)
    return left
