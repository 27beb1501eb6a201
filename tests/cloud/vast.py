"""Containers of the simulated Vast.ai on a host whose machines run.

A container that stops loses its processes. Unlike on Vast.ai it also loses its files, so what comes
back starts anew. Others reach a container only at the ports of its host's router that the order has
asked for. The router has two addresses, because this computer and the containers reach each other
through loopback addresses of this computer.
"""

from __future__ import annotations

import shlex
from itertools import count

from tests.cloud.host import MachineSpec
from tests.cloud.namespaces import Namespaces
from tests.servers.loopback import Reply, Request
from tests.servers.vast_market import Contract


def _no_metadata(_: Request) -> Reply:
    return Reply(404)


class RunningContainers:
    """See `Containers`. `port` is that of the API, which containers reach at the address in their
    variables.
    """

    def __init__(self, host: Namespaces) -> None:
        self._host, self._starts = host, count()
        self._names: dict[int, str] = {}
        self.port = 0

    def started(self, contract: Contract) -> None:
        name = f"c{contract.id}-{next(self._starts)}"
        router = self._host.behind_router(
            name, str(contract.host.machine_id), contract.wanted_ports
        )
        contract.host.address, contract.ports = router.outside, router.ports
        variables = dict(contract.body.get("env") or {})  # type: ignore[call-overload]
        variables |= {
            "CONTAINER_ID": str(contract.id),
            "CONTAINER_API_KEY": contract.key,
            "PUBLIC_IPADDR": router.inside,
            **{f"VAST_TCP_PORT_{own}": str(port) for own, port in router.ports.items()},
            "VAST_URL": f"http://{self._host.reach(self.port)}",
        }
        exports = "".join(
            f"export {name}={shlex.quote(value)}\n"
            for name, value in variables.items()
            if not name.startswith("-")
        )
        spec = MachineSpec(
            name, f"#!/bin/sh\n{exports}{contract.body['onstart']}".encode(), _no_metadata
        )
        # A container whose processes have all ended stays until its owner destroys it.
        self._host.start(spec, lambda _: None)
        self._names[contract.id] = name

    def stopped(self, contract: Contract) -> None:
        self._host.power_off(self._names.pop(contract.id))

    def removed(self, contract: Contract) -> None:
        assert contract.id not in self._names, "it was stopped before"

    def has(self, contract: Contract, path: str) -> bool:
        """Whether a file exists in a container, once that has started."""
        name = self._names.get(contract.id)
        return name is not None and self._host.execute(name, "test", "-e", path).returncode == 0

    def touch(self, contract: Contract, path: str) -> None:
        self._host.execute(self._names[contract.id], "touch", path)
