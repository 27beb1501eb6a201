"""The container of a job, and what its image must have."""

import shutil
import sys
from collections.abc import Sequence

from spotctl.agent.container import NO_CONTAINER, Container
from spotctl.agent.layout import PYTHON_VARIABLE
from spotctl.files.job.spec import JobSpec
from spotctl.home.errors import BadRequest

_NEEDED = "cloudpickle, cryptography, msgspec, numpy"
_CHECK = f"""\
need=${{{PYTHON_VARIABLE}:-$1}}
if ! why=$(python3 -c "import sys; assert sys.version.startswith('$need.'), sys.version; import {_NEEDED}" 2>&1); then
  why=$(echo "$why" | tail -n 1)
  echo "spotctl: image.container: a training's nodes need Python $need and glibc in the image: $why" >&2
  exit {NO_CONTAINER}
fi
shift
exec "$@"
"""


def container_of(spec: JobSpec) -> Container | None:
    """The container for a job's payloads; None if they run directly on the machine."""
    image = spec.image
    return None if image.container is None else Container(image.container, image.login or "", spec.secrets)


def checked(node: Sequence[str]) -> list[str]:
    """The command of a training's node behind a check of its Python: the node gets packages for its machine's Python,
    or on the local market for this computer's."""
    return ["/bin/sh", "-c", _CHECK, "check", f"{sys.version_info.major}.{sys.version_info.minor}", *node]


def check_podman(spec: JobSpec) -> None:
    """Refuses a container on the local market of a computer without podman. Rented machines get it."""
    if spec.is_local and spec.image.container is not None and shutil.which("podman") is None:
        raise BadRequest(
            f"{spec.name}: image.container needs podman, and this computer has none; install it (on Debian: apt install"
            " podman uidmap), or remove image.container"
        )
