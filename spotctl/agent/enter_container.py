"""Runs a person's command in the container of a payload: `python -m spotctl.agent.enter_container PID COMMAND...`.

PID is a process of the payload, whose variables the command gets. This process becomes podman.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from spotctl.agent.command import CANNOT_START
from spotctl.agent.container import ENVIRONMENT, become_podman, container_name, shell_variables
from spotctl.agent.processes import MARK, environment_of

_ENTRY = f'. /proc/self/fd/{ENVIRONMENT}; exec {ENVIRONMENT}<&-; exec "$@"'


def main(words: Sequence[str]) -> int:
    """Becomes podman. Returns only if the payload has ended meanwhile."""
    variables = environment_of(int(words[0]))
    if MARK not in variables:
        print("spotctl: the container has ended; try again", file=sys.stderr)  # noqa: T201
        return CANNOT_START
    terminal = ["--tty"] if sys.stdin.isatty() else []
    options = ["--interactive", *terminal, f"--preserve-fds={ENVIRONMENT - 2}", container_name(Path(variables[MARK]))]
    line = ["podman", "--log-level=error", "exec", *options, "/bin/sh", "-c", _ENTRY, "spotctl", *words[1:]]
    return become_podman(line, shell_variables(variables))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
