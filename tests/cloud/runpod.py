"""Pods of the simulated RunPod on a host whose machines run.

As in the images that people use, nothing runs in a pod but what its order says, and there is no
sshd: apt-get is here the only way to it. A pod that stops loses its processes and its files. Others
reach it only at the ports of its host's router that the order has asked for.
"""

from __future__ import annotations

import json
import shlex
from itertools import count

from tests.cloud.host import MachineSpec
from tests.cloud.namespaces import Namespaces
from tests.servers.loopback import Reply, Request
from tests.servers.runpod_market import Pod

_BARE = """\
kill $(pidof sshd)
mv /usr/sbin/sshd /usr/sbin/not-installed
mkdir -p /usr/local/sbin
cat >/usr/local/sbin/apt-get <<'END'
#!/bin/sh
case "$*" in *openssh-server*) cp /usr/sbin/not-installed /usr/sbin/sshd ;; esac
END
chmod 755 /usr/local/sbin/apt-get
"""


def _no_metadata(_: Request) -> Reply:
    return Reply(404)


class RunningPods:
    """See `PodContainers`. `port` is that of the API, which pods reach at the address in their
    variables.
    """

    def __init__(self, host: Namespaces) -> None:
        self._host, self._starts = host, count()
        self._names: dict[str, str] = {}
        self.port = 0

    def started(self, pod: Pod) -> None:
        name = f"p{pod.id}-{next(self._starts)}"
        router = self._host.behind_router(name, pod.id, pod.wanted_ports)
        pod.address, pod.ports = router.outside, router.ports
        variables = {one["key"]: one["value"] for one in pod.given.get("env") or ()}
        variables |= {
            "RUNPOD_POD_ID": pod.id,
            "RUNPOD_API_KEY": pod.key,
            "RUNPOD_PUBLIC_IP": router.inside,
            **{f"RUNPOD_TCP_PORT_{own}": str(port) for own, port in router.ports.items()},
            "RUNPOD_API_BASE_URL": f"http://{self._host.reach(self.port)}",
        }
        exports = "".join(
            f"export {name}={shlex.quote(value)}\n" for name, value in variables.items()
        )
        first = json.loads(pod.given["dockerArgs"])
        words = shlex.join((*first["entrypoint"], *first["cmd"]))
        script = f"#!/bin/sh\n{_BARE}{exports}exec {words}\n"
        spec = MachineSpec(name, script.encode(), _no_metadata)
        # A pod whose processes have all ended stays until its owner ends it.
        self._host.start(spec, lambda _: None)
        self._names[pod.id] = name

    def stopped(self, pod: Pod) -> None:
        self._host.power_off(self._names.pop(pod.id))

    def has(self, pod: Pod, path: str) -> bool:
        """Whether a file exists in a pod, once that has started."""
        name = self._names.get(pod.id)
        return name is not None and self._host.execute(name, "test", "-e", path).returncode == 0

    def touch(self, pod: Pod, path: str) -> None:
        # It may have been stopped meanwhile.
        if (name := self._names.get(pod.id)) is not None:
            self._host.execute(name, "touch", path)
