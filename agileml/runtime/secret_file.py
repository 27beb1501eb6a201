"""A job's secret, as the user keeps it in a file, and as a node gets it that is started for the user."""

import logging
import stat
from pathlib import Path

from agileml.errors import BadInput
from agileml.transport.handshake import SHORTEST_SECRET

SECRET_VARIABLE = "AGILEML_SECRET"  # noqa: S105 - the name of a variable, not a secret

_MOST_BYTES = 4096

_LOG = logging.getLogger(__name__)


def read_secret(path: Path) -> bytes:
    """The secret, without white space around it. Raises BadInput for a file that is not fit to hold one."""
    make = f"create one with: (umask 077; openssl rand -hex 32 > {path})"
    try:
        with path.open("rb") as file:
            mode = path.stat().st_mode
            content = file.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        raise BadInput(f"secret file {path}: no such file; {make}") from None
    except OSError as error:
        raise BadInput(f"secret file {path} cannot be read: {error.strerror or error}") from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        # No reason to refuse: Docker and Kubernetes mount secrets this way, read-only.
        _LOG.warning("secret file %s can be read by other users; if it is yours, run: chmod 600 %s", path, path)
    # Before white space is removed: what follows was not read.
    if len(content) > _MOST_BYTES:
        raise BadInput(f"secret file {path} has more than {_MOST_BYTES} bytes; {make}")
    secret = content.strip()
    if not secret:
        raise BadInput(f"secret file {path} is empty; {make}")
    if len(secret) < SHORTEST_SECRET:
        raise BadInput(
            f"secret file {path} has {len(secret)} bytes; at least {SHORTEST_SECRET} random ones are needed; {make}"
        )
    return secret
