"""The needs of an account of a cloud, once, and who made them: the engine behind `spotctl setup`.

A cloud lists what it needs as rows (`SetupStep`): whether a thing is there, how it is made and
removed, and the cloud's own commands for it. One engine looks at all of them before it makes any,
writes down what it is about to make, and takes back what it has made if one of them fails. `undo`
removes what is written down, and nothing else. Clouds need minutes until they know everywhere what
was made: a call that raises `NotYet` is made again as long.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from ipaddress import ip_address
from typing import Any, NamedTuple

from pricing_data.atomic_write import atomic_write
from pricing_data.errors import AccessDenied, CloudError, UnknownResource
from pricing_data.units import SECOND
from spotctl.clouds.errors import MADE_WITHIN, NotYet, on_one_line
from spotctl.home.config import FILE_NAME, Settings
from spotctl.home.config_file import added, taken_away
from spotctl.home.errors import BadRequest, SpotctlError
from spotctl.home.paths import Paths, make_private_folder

_SECONDS = 10.0
_FIRST_PAUSE, _LONGEST_PAUSE, _SAID_AT = 0.2, 10.0, 4
_SETTLES_LONGER = 5
"""How many times as long a cloud may need for what it begins, such as Azure for a provider."""

SendCall = Callable[..., Any]
"""Makes a call to a cloud, whose name and arguments are given, and returns the answer."""

Call = tuple[Any, ...]
"""The arguments of `SendCall`."""


class SetupStep(NamedTuple):
    """One thing that an account needs. `name` is its own for ever: undoing finds it by that.

    `is_there` is None where there is an older one, which `renew` brings up to date (by default
    `make` does). All calls raise `CloudError`, and NotYet where they may succeed a little later;
    `undo` also where others use the thing. What has no `undo` cannot be taken back. `commands` make
    it by hand. What `settles` is there some time after it was made.
    """

    name: str
    what: str
    is_there: Callable[[], bool | None]
    make: Callable[[], object]
    undo: Callable[[], object] | None
    commands: tuple[str, ...] = ()
    renew: Callable[[], object] | None = None
    settles: bool = False
    is_old: bool = False
    """Whether `make` is to bring up to date what is there."""


def step_of_calls(
    send: SendCall,
    name: str,
    what: str,
    look: Call | Callable[[], bool | None],
    make: Sequence[Call],
    undo: Sequence[Call] | None,
    is_same: Callable[[Any], bool | None] = bool,
) -> SetupStep:
    """A row whose things are looked up, made and removed by calls. `is_same` judges the answer to
    `look`. Of those that remove, the last one tells whether anything is left."""

    def send_all(calls: Sequence[Call], *passed: type[Exception]) -> None:
        for call in calls:
            with suppress(*(() if call is calls[-1] else passed)):
                send(*call)

    is_there = look if callable(look) else lambda: is_same(send(*look))
    removes = None if undo is None else partial(send_all, undo, CloudError)
    return SetupStep(name, what, is_there, partial(send_all, make), removes)


def setting_step(
    settings: Settings, cloud: str, key: str, value: str | tuple[str], why: str
) -> SetupStep:
    """The row of a line in the cloud's table of config.toml; any other value counts as well."""
    path, is_set = settings.home / FILE_NAME, getattr(settings.tables.get(cloud), key, None)
    return SetupStep(
        f"{key} {value if isinstance(value, str) else value[0]}",
        f"setting {key} in [{cloud}]: {why}",
        partial(bool, is_set),
        partial(added, path, cloud, key, value),
        partial(taken_away, path, cloud, key, value),
    )


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
    """The steps whose things are not there, are older, or were begun and not ended. CloudError: one
    cannot be looked up."""
    made, lacking = record.made(), list[SetupStep]()
    for step in steps:
        is_there: bool | None = False
        if made.get(step.name) is not False:
            # What a cloud does not know yet is not there.
            with suppress(UnknownResource, NotYet):
                is_there = step.is_there()
        if is_there is None:
            lacking.append(step._replace(make=step.renew or step.make, is_old=True))
        elif not is_there:
            lacking.append(step)
    return lacking


def make_all(steps: Sequence[SetupStep], record: SetupRecord, say: Callable[[str], object]) -> None:
    """Makes things, one after another. CloudError or BadRequest: one cannot be made; those before
    it are gone again."""
    begun = list[SetupStep]()
    try:
        for step in steps:
            if step.is_old:
                _patiently(step.make, step, say)
                say(f"renewed {step.what}")
                continue
            if step.name in record.made() and step.undo is not None:
                # A command that was killed has left a part of it, or nothing.
                with suppress(CloudError, SpotctlError):
                    _patiently(step.undo, step, say)
            record.note(step.name, whole=False)
            begun.append(step)
            _patiently(step.make, step, say)
            if step.settles:
                _patiently(partial(_settled, step), step, say, _SETTLES_LONGER)
            record.note(step.name, whole=True)
            say(f"made {step.what}")
    except (CloudError, SpotctlError):
        for left in undo_all(begun, record, say):
            say(f"left: {left}")
        raise


def _patiently(
    act: Callable[[], object], step: SetupStep, say: Callable[[str], object], times: int = 1
) -> None:
    """Does something again as long as the cloud does not know yet what it needs for that."""
    import stamina

    for attempt in stamina.retry_context(
        on=NotYet,
        attempts=None,
        timeout=times * MADE_WITHIN / SECOND,
        wait_initial=_FIRST_PAUSE,
        wait_jitter=_FIRST_PAUSE,
        wait_max=_LONGEST_PAUSE,
    ):
        if attempt.num == _SAID_AT:
            say(f"waiting for the cloud: {step.what}")
        with attempt:
            act()


def _settled(step: SetupStep) -> None:
    # Google denies what it does not know everywhere.
    with suppress(UnknownResource, AccessDenied):
        if step.is_there():
            return
    raise NotYet(f"{step.what}: the cloud is still at work; run this command again later")


def undo_all(
    steps: Sequence[SetupStep], record: SetupRecord, say: Callable[[str], object]
) -> list[CloudError | SpotctlError]:
    """Removes those of these things that are written down, the last one first; the reasons why some
    are left."""
    left, ours = list[CloudError | SpotctlError](), record.made()
    for step in reversed([each for each in steps if each.name in ours]):
        if step.undo is None:
            record.note(step.name, whole=None)
            continue
        try:
            # It may not have been made, or is gone.
            with suppress(UnknownResource):
                _patiently(step.undo, step, say)
                if ours[step.name]:
                    say(f"removed {step.what}")
        except (CloudError, SpotctlError) as error:
            left.append(error)
            continue
        record.note(step.name, whole=None)
    return left
