"""The environment file of a nightly job, because timers do not know the variables of a shell, and
its addresses.

The environment file has lines `NAME=value` and is readable by its owner only. Its values go into
the environment of the run and are never written anywhere else.

The file of addresses says where nights are reported if the job file or the installation cannot be
read, or Python does not start. It has lines `webhook=...`, `to=...` and `heartbeat=...`, and is
readable by its owner only. `$NAME` stays `$NAME`: its value is in the environment file alone.
"""

import os
import re
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from agileml.runtime.ground import replaced
from spotctl.files.job.spec import Notify
from spotctl.home.errors import BadRequest

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CLOUD_PREFIXES = ("AWS_", "AZURE_", "GOOGLE_", "CLOUDSDK_", "SPOTCTL_")
_NOT_NEEDED = frozenset({"SPOTCTL_HOME"})
"""Set from the home folder that was used at installation."""

_HEAD = """\
# Variables for the nightly runs of {name}, one NAME=value per line. Keep it readable by its owner only.
# Put the job's secrets and cloud credentials here: a timer does not know the variables of your shell.
"""


def create_file(path: Path, name: str, secrets: Iterable[str]) -> None:
    """Creates an environment file to fill in, unless it exists."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(_HEAD.format(name=name) + "".join(f"#{secret}=\n" for secret in secrets))


def read_file(path: Path) -> dict[str, str]:
    """The variables in the file, which must not be readable by others because it holds secrets."""
    try:
        status = path.stat()
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequest(f"{path}: cannot be read: {error}") from None

    if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
        raise BadRequest(
            f"{path}: readable by other users; run: chmod 600 {path} (and replace the secrets in "
            "it)"
        )
    return dict(_variable(path, number, line) for number, line in _lines(text))


def readable(path: Path) -> dict[str, str]:
    """The variables as far as the file can be read, for the address at which its problems are
    reported.
    """
    try:
        text = path.read_text("utf-8", "replace")
    except OSError:
        return {}

    variables = dict[str, str]()
    for number, line in _lines(text):
        with suppress(BadRequest):
            variables.update([_variable(path, number, line)])
    return variables


def _lines(text: str) -> Iterable[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            yield number, line.strip()


def _variable(path: Path, number: int, line: str) -> tuple[str, str]:
    # The message must not contain the value, which may be a secret.
    name, equals, value = line.removeprefix("export ").partition("=")
    if not equals or not _NAME.fullmatch(name):
        raise BadRequest(f"{path}:{number}: expected NAME=value")
    is_quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
    if is_quoted:
        value = value[1:-1]
    return name, value


def missing(secrets: Iterable[str], variables: Mapping[str, str]) -> list[str]:
    """The secrets that are not set or empty."""
    return [name for name in secrets if not variables.get(name)]


def only_in_shell(environ: Mapping[str, str], variables: Mapping[str, str]) -> list[str]:
    """Names of cloud variables that are set in this shell but not in the environment file."""
    names = list[str]()
    for name, value in environ.items():
        is_needed = name.startswith(_CLOUD_PREFIXES) and name not in _NOT_NEEDED
        if value and is_needed and name not in variables:
            names.append(name)
    return sorted(names)


def resolved_addresses(addresses: Notify, variables: Mapping[str, str]) -> Notify:
    """The addresses with the values of variables that are known."""
    known = {f"${name}": value for name, value in variables.items() if value}
    webhook = addresses.webhook
    if webhook is not None:
        webhook = known.get(webhook, webhook)
    heartbeat = addresses.heartbeat
    if heartbeat is not None:
        heartbeat = known.get(heartbeat, heartbeat)
    receivers = tuple(known.get(address, address) for address in addresses.to)
    return Notify(webhook, heartbeat, receivers)


def read_addresses(path: Path) -> Notify | None:
    """The addresses; None if there is no file that can be read."""
    try:
        lines = path.read_text("utf-8", "replace").splitlines()
    except OSError:
        return None

    last = dict[str, str]()
    receivers = list[str]()
    for line in lines:
        name, is_named, value = line.partition("=")
        if is_named:
            last[name] = value
            if name == "to":
                receivers.append(value)

    return Notify(last.get("webhook"), last.get("heartbeat"), tuple(receivers))


def keep_addresses(path: Path, addresses: Notify) -> None:
    """Writes the addresses, unless they are there."""
    if read_addresses(path) == addresses:
        return

    text = ""
    if addresses.webhook is not None:
        text += f"webhook={addresses.webhook}\n"
    if addresses.heartbeat is not None:
        text += f"heartbeat={addresses.heartbeat}\n"
    for address in addresses.to:
        text += f"to={address}\n"
    with replaced(path) as new:
        new.touch(0o600)
        new.write_text(text)
