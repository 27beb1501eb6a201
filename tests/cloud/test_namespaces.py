"""Machines made of namespaces: they boot, are reachable as they should be, and leave nothing
behind.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import ThreadingHTTPServer
from itertools import count
from pathlib import Path

import pytest

from tests.cloud.host import MachineSpec
from tests.cloud.namespaces import Namespaces, namespaces
from tests.cloud.ssh import Ssh
from tests.servers.loopback import Reply, handler_of
from tests.waiting import eventually

pytestmark = pytest.mark.cloud


@pytest.fixture(scope="module")
def host() -> Iterator[Namespaces]:
    with namespaces() as started:
        yield started


@pytest.fixture(scope="module")
def ssh(tmp_path_factory: pytest.TempPathFactory) -> Ssh:
    return Ssh.in_folder(tmp_path_factory.mktemp("ssh"))


_numbers = count()


def machine(user_data: bytes = b"", **environment: str) -> MachineSpec:
    return MachineSpec(
        f"m{next(_numbers)}",
        user_data,
        lambda request: Reply(200, request.client.encode()),
        environment,
    )


def ignored(name: str) -> None:
    pass


def test_a_machine_boots_and_is_reached_through_its_public_address(
    host: Namespaces, ssh: Ssh
) -> None:
    spec = machine(ssh.user_data(), ENDPOINT="http://10.0.0.1:8 ")
    addresses = host.start(spec, ignored)
    assert addresses.public.startswith("127.")
    assert ssh.run(
        addresses.public, 'hostname; hostname -I; id -u; echo "$ENDPOINT"'
    ).splitlines() == [
        spec.name,
        addresses.private + " ",
        "0",
        "http://10.0.0.1:8 ",
    ]


def test_user_data_is_run_once_as_root_with_its_output_on_the_console(host: Namespaces) -> None:
    spec = machine(
        b"#!/bin/sh\nid -u >/run/ran\necho boot of $NAME${HOME-}\necho oops >&2\n", NAME="it"
    )
    host.start(spec, ignored)
    eventually(lambda: "boot of it\noops\n" in host.console(spec.name))
    assert (
        host.execute(spec.name, "cat", "/run/ran", "/var/log/cloud-init-output.log").stdout
        == "0\nboot of it\noops\n"
    )


def test_user_data_that_is_no_script_is_only_kept(host: Namespaces) -> None:
    spec = machine(b"echo boot\n")
    host.start(spec, ignored)
    path = "/var/lib/cloud/instance/user-data.txt"
    eventually(lambda: host.execute(spec.name, "cat", path).stdout == "echo boot\n")
    eventually(lambda: host.execute(spec.name, "pgrep", "sshd").returncode == 0)
    assert host.console(spec.name) == ""


def test_a_machine_sees_nothing_of_this_computer(host: Namespaces) -> None:
    spec = machine()
    host.start(spec, ignored)
    eventually(lambda: host.execute(spec.name, "pgrep", "sshd").returncode == 0)
    for folder in (
        "/work",
        "/root",
        "/home",
        "/tmp",
        "/usr/local",
        "/opt",
        str(Path(__file__).parents[2]),
    ):
        assert host.execute(spec.name, "find", folder, "-mindepth", "1").stdout == ""
    assert host.execute(spec.name, "/usr/bin/python3", "-c", "import numpy").returncode == 1
    assert host.execute(spec.name, "ls", "/").stderr == ""
    pids = host.execute(spec.name, "sh", "-c", "ls -d /proc/[0-9]* | wc -l").stdout
    assert int(pids) < 10


def test_software_lies_on_top_of_the_files_of_this_computer(tmp_path: Path) -> None:
    """Its folder is below /, which overlayfs refuses as a layer above /."""
    (tmp_path / "usr/share/software").mkdir(parents=True)
    (tmp_path / "usr/share/software/name").write_text("more\n")
    with namespaces(software=tmp_path) as host:
        spec = machine()
        host.start(spec, ignored)
        eventually(
            lambda: host.execute(spec.name, "cat", "/usr/share/software/name").stdout == "more\n"
        )


def test_each_machine_has_its_own_metadata(host: Namespaces) -> None:
    script = (
        "from urllib.request import urlopen; "
        "print(urlopen('http://169.254.169.254/').read().decode())"
    )
    for _ in range(2):
        spec = machine(f'#!/bin/sh\n/usr/bin/python3 -c "{script}"\n'.encode())
        address = host.start(spec, ignored).private
        eventually(lambda spec=spec, address=address: host.console(spec.name) == address + "\n")  # type: ignore[misc]


def test_machines_reach_each_other_and_a_port_of_this_computer(host: Namespaces, ssh: Ssh) -> None:
    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), handler_of(lambda request: Reply(200, request.path.encode()))
    )
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    first, second = (host.start(machine(ssh.user_data()), ignored) for _ in range(2))
    ssh.run(second.public, "true")
    address = host.reach(server.server_port)
    fetch = "from urllib.request import urlopen; print(urlopen('http://%s/api').read().decode())"
    talk = "import socket; print(socket.create_connection(('%s', 22)).recv(4).decode())"
    out = ssh.run(
        first.public,
        f'python3 -c "{fetch % address}"; python3 -c "{talk % second.private}"; ip route get 1.1.1.1',
    )
    assert out.splitlines()[:2] == ["/api", "SSH-"]
    assert host.reach(server.server_port) == address
    server.shutdown()
    server.server_close()


def test_machines_behind_routers_are_reached_only_at_the_ports_that_those_forward(
    host: Namespaces, ssh: Ssh
) -> None:
    """One behind the same router does not reach the other even there."""
    serve = "python3 -m http.server 7071 --directory /run/sshd >/dev/null 2>&1 &"
    specs = [machine(ssh.user_data() + f"\n{serve}\n".encode()) for _ in range(3)]
    routers = [
        host.behind_router(spec.name, site, [22, 7071])
        for spec, site in zip(specs, "aab", strict=True)
    ]
    addresses = [host.start(spec, ignored) for spec in specs]
    eventually(
        lambda: all(
            host.execute(spec.name, "pgrep", "-f", "http.server").returncode == 0 for spec in specs
        )
    )

    def reached(who: int, address: str, port: int) -> bool:
        fetch = (
            f"from urllib.request import urlopen; urlopen('http://{address}:{port}/', timeout=2)"
        )
        return host.execute(specs[who].name, "python3", "-c", fetch).returncode == 0

    assert (routers[0].inside, routers[0].outside) == (routers[1].inside, routers[1].outside)
    eventually(lambda: reached(2, routers[0].inside, routers[0].ports[7071]))
    assert reached(1, routers[2].inside, routers[2].ports[7071])
    assert not reached(1, routers[0].inside, routers[0].ports[7071])
    assert not reached(2, routers[0].inside, 7071)
    assert not reached(2, addresses[0].private, 7071)
    talk = (
        f"import socket; print(socket.create_connection(('{routers[0].outside}', "
        f"{routers[0].ports[22]})).recv(4))"
    )
    assert (
        "SSH-"
        in subprocess.run(
            [sys.executable, "-c", talk], capture_output=True, text=True, check=True
        ).stdout
    )


@pytest.mark.parametrize(
    "command", ["poweroff", "shutdown -h now", "shutdown now", "halt", "poweroff -f"]
)
def test_a_machine_powers_itself_off(host: Namespaces, ssh: Ssh, command: str) -> None:
    ended = threading.Event()
    spec = machine(ssh.user_data())
    addresses = host.start(spec, lambda name: ended.set() if name == spec.name else None)
    ssh.run(addresses.public, "true")
    ssh.try_run(addresses.public, command)
    assert ended.wait(60)
    assert host.execute(spec.name, "true").returncode != 0


def test_a_shutdown_in_minutes_can_be_called_off(host: Namespaces, ssh: Ssh) -> None:
    addresses = host.start(machine(ssh.user_data()), ignored)
    # The brackets keep pgrep from finding the shell that runs it.
    count_waiting = "pgrep -fc '[s]leep.*PWR' || true"
    ssh.run(addresses.public, "shutdown -h +5")
    eventually(lambda: ssh.run(addresses.public, count_waiting) == "1\n")
    ssh.run(addresses.public, "shutdown -c")
    eventually(lambda: ssh.run(addresses.public, count_waiting) == "0\n")


def test_the_power_button_lets_processes_end_in_good_order(host: Namespaces) -> None:
    ended: list[str] = []
    script = (
        "#!/bin/bash\ntrap 'echo goodbye; exit' TERM\necho up\nwhile true; do sleep 0.05; done\n"
    )
    spec = machine(script.encode())
    host.start(spec, ended.append)
    eventually(lambda: "up" in host.console(spec.name))
    host.shut_down(spec.name, 60)
    assert host.console(spec.name).splitlines()[-1] == "goodbye"
    assert ended == []


def test_the_power_button_pulls_the_plug_in_the_end(host: Namespaces) -> None:
    spec = machine(b"#!/bin/bash\ntrap '' TERM\necho up\nwhile true; do sleep 0.05; done\n")
    host.start(spec, ignored)
    eventually(lambda: "up" in host.console(spec.name))
    host.shut_down(spec.name, 0.2)
    assert host.execute(spec.name, "true").returncode != 0


def test_without_power_everything_ends_at_once_and_in_silence(host: Namespaces, ssh: Ssh) -> None:
    spec = machine(ssh.user_data("setsid sleep 1000 &\n"))
    addresses = host.start(spec, ignored)
    ssh.run(addresses.public, "true")
    held = subprocess.Popen(ssh_banner(addresses.public), stdout=subprocess.PIPE)
    assert held.stdout is not None
    assert held.stdout.read(4) == b"SSH-"
    host.power_off(spec.name)
    assert host.execute(spec.name, "true").returncode != 0
    # The connection is not closed: nothing was left that could have done so.
    with pytest.raises(subprocess.TimeoutExpired):
        held.wait(0.5)
    held.kill()
    held.communicate()
    host.power_off(spec.name)


def ssh_banner(address: str) -> list[str]:
    """A command that prints what the address sends, until the connection ends."""
    script = (
        "import socket, sys; s = socket.create_connection((sys.argv[1], 22))\n"
        "while d := s.recv(99): print(d.decode(), flush=True)"
    )
    return [sys.executable, "-c", script, address]


def test_a_cable_is_pulled_and_plugged_in_again(host: Namespaces, ssh: Ssh) -> None:
    spec = machine(ssh.user_data())
    addresses = host.start(spec, ignored)
    ssh.run(addresses.public, "true")
    host.cut(spec.name)
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run(ssh_banner(addresses.public), timeout=0.5, check=False)
    assert host.execute(spec.name, "pgrep", "sshd").returncode == 0
    host.plug_in(spec.name)
    assert ssh.run(addresses.public, "echo back") == "back\n"


def test_a_firewall_drops_connections_until_it_admits_them(host: Namespaces, ssh: Ssh) -> None:
    open_now = threading.Event()
    spec = replace(machine(ssh.user_data()), admits_ssh=open_now.is_set)
    addresses = host.start(spec, ignored)
    eventually(lambda: host.execute(spec.name, "pgrep", "sshd").returncode == 0)
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run(ssh_banner(addresses.public), timeout=0.5, check=False)
    open_now.set()
    assert ssh.run(addresses.public, "hostname") == spec.name + "\n"


def test_bandwidth_is_limited_in_each_direction(ssh: Ssh) -> None:
    with namespaces(megabits=16) as slow:
        addresses = slow.start(machine(ssh.user_data()), ignored)
        ssh.run(addresses.public, "true")
        start = time.monotonic()
        assert len(ssh.run(addresses.public, "head -c 3000000 /dev/zero")) == 3_000_000
        assert time.monotonic() - start > 1.0  # 24 megabits, at most 2 of them in a burst


def test_test_clouds_run_side_by_side(host: Namespaces, ssh: Ssh) -> None:
    with namespaces() as other:
        spec = machine(ssh.user_data())
        here, there = host.start(spec, ignored), other.start(replace(spec, name="other"), ignored)
        assert not set(here) & set(there)
        assert ssh.run(here.public, "hostname") == spec.name + "\n"
        assert ssh.run(there.public, "hostname") == "other\n"


def test_an_address_in_use_is_refused(host: Namespaces, ssh: Ssh) -> None:
    taken = ipaddress.ip_address(host.start(machine(), ignored).public) + 1
    with (
        socket.create_server((str(taken), 22)),
        pytest.raises(OSError, match=f"port 22 of {taken} .* ListenAddress"),
    ):
        host.start(machine(), ignored)
    assert ssh.run(host.start(machine(ssh.user_data()), ignored).public, "id -u") == "0\n"


_CONTAINER = """
set -e
mkdir -p /tmp/files/bin
cp /bin/dash /tmp/files/bin/sh
ldd /bin/dash | grep -o '/[^ ]*' | xargs -I@ cp --parents -L @ /tmp/files
# Not where this computer keeps its own containers, and not as an overlay on the overlay that the machine's root is.
podman() { command podman --root /tmp/containers --storage-driver vfs "$@"; }
tar -C /tmp/files -c . | podman import - own >/dev/null
podman run --rm --network=host own sh -c 'echo in a container'
"""


def test_containers_run_on_a_machine(host: Namespaces) -> None:
    spec = machine()
    host.start(spec, ignored)
    eventually(lambda: host.execute(spec.name, "pgrep", "sshd").returncode == 0)
    done = host.execute(spec.name, "sh", "-c", _CONTAINER)
    assert done.stdout == "in a container\n", done.stderr


def test_a_name_is_used_once(host: Namespaces) -> None:
    spec = machine()
    host.start(spec, ignored)
    host.power_off(spec.name)
    with pytest.raises(ValueError, match="already"):
        host.start(spec, ignored)


_OWNER = """
import sys, time
from tests.cloud.host import MachineSpec
from tests.cloud.namespaces import Namespaces
from tests.servers.loopback import Reply
host = Namespaces()
spec = MachineSpec("left", b"#!/bin/sh\\nsetsid sleep SECONDS &\\nsleep SECONDS\\n", lambda _: Reply(404))
addresses = host.start(spec, print)
while host.execute("left", "pgrep", "-c", "sleep").stdout != "2\\n":
    time.sleep(0.02)
print(addresses.public, flush=True)
if sys.argv[1] == "close":
    sys.stdin.readline()
    host.close()
    print("closed", flush=True)
time.sleep(1000)
"""


@pytest.mark.parametrize("end", ["close", "SIGKILL"])
@pytest.mark.usefixtures("host")
def test_nothing_stays_behind(end: str) -> None:
    seconds = str(100_000 + os.getpid())
    before = (interfaces(), mounts())
    owner = subprocess.Popen(
        [sys.executable, "-c", _OWNER.replace("SECONDS", seconds), end],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert owner.stdout is not None
        address = owner.stdout.readline().strip()
        assert is_open(address)
        assert processes_named(seconds) == [f"sleep {seconds} "] * 2
        if end == "close":
            assert owner.stdin is not None
            owner.stdin.write("now\n")
            owner.stdin.flush()
            assert owner.stdout.readline() == "closed\n"
            assert processes_named(seconds) == []
    finally:
        owner.send_signal(signal.SIGKILL)
        owner.communicate()
    eventually(lambda: processes_named(seconds) == [])
    eventually(lambda: not is_open(address))
    assert (interfaces(), mounts()) == before


def processes_named(word: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            line = path.read_bytes().replace(b"\0", b" ").decode()
            if word in line and "tests.cloud" not in line:
                found.append(line)
    return found


def is_open(address: str) -> bool:
    """Whether anything listens there: the address can be had if not."""
    try:
        socket.create_server((address, 22)).close()
    except OSError:
        return True
    return False


def interfaces() -> set[str]:
    return {name for _, name in socket.if_nameindex() if name.startswith(("br", "port"))}


def mounts() -> list[str]:
    return [
        line for line in Path("/proc/self/mounts").read_text().splitlines() if "/dev/shm/" in line
    ]
