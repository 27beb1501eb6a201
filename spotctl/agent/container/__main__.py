"""Becomes podman: `python -m spotctl.agent.container CONTAINER COMMAND...`, or `PID COMMAND...`.

The first runs a payload in a new container. The second runs a person's command in the container
that PID, a process of the payload, is in; the command gets the variables of that process.
"""

import sys
from collections.abc import Sequence

from spotctl.agent.container.podman import NO_CONTAINER, Container, become_container, join_container
from spotctl.agent.container.processes import CANNOT_START
from spotctl.agent.errors import AgentError


def main(words: Sequence[str]) -> int:
    """Returns only if there can be no container."""
    first, *command = words
    try:
        if first.isdigit():
            join_container(int(first), command)
        become_container(Container.from_json(first), command)
    except AgentError as error:
        print(f"spotctl: {error}", file=sys.stderr)  # noqa: T201
        return CANNOT_START if first.isdigit() else NO_CONTAINER


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
