"""The life of rented machines: real ones, made of namespaces, from their start-up script to their
end.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from spotctl.agent import layout
from spotctl.agent.lease.lease_files import MachineNotice
from spotctl.clouds.errors import ProviderError, Unusable
from spotctl.clouds.link import ReverseTunnel
from spotctl.clouds.remote import bundle
from tests.cloud.namespaces import Namespaces, namespaces
from tests.servers.loopback import Reply, Request
from tests.spotctl.clouds.remote.indexes import add_installed, use_index
from tests.spotctl.clouds.remote.rented import after, launcher, renting, shell
from tests.waiting import eventually

pytestmark = pytest.mark.cloud

SERVICE = "spotctl.agent.rented"
SECRET = "planted-5f1c9e-secret"


@pytest.fixture(scope="module")
def host() -> Iterator[Namespaces]:
    with namespaces() as started:
        yield started


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    job = tmp_path / "job"
    job.mkdir()
    (job / "data.txt").write_text("brought\n")
    return job


@contextlib.contextmanager
def arguments_watched(secret: str) -> Iterator[set[str]]:
    """Collects processes, of this computer and of its machines, that have a secret in their
    arguments for a moment.

    Of ssh's clients also those that have it in their environment.
    """
    found: set[str] = set()
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            for process in Path("/proc").glob("[0-9]*"):
                with contextlib.suppress(OSError):
                    words = (process / "cmdline").read_bytes()
                    client = words.startswith((b"ssh\0", b"/usr/bin/ssh\0"))
                    seen = words + ((process / "environ").read_bytes() if client else b"")
                    if secret.encode() in seen:
                        found.add(words.decode(errors="replace"))

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield found
    finally:
        done.set()
        watcher.join()


def test_the_start_up_script_may_run_again(host: Namespaces, tmp_path: Path) -> None:
    with renting(host, tmp_path) as one:
        one.start(shell("sleep 999"), lease=60)
        link = one.prepared()
        link.renew(after(5000))
        eventually(lambda: float(one.sh(f"cat {layout.LEASE}").split()[0]) > time.time() + 4000)
        before = one.sh(f"cat {layout.LEASE}")
        per_boot = "/var/lib/cloud/scripts/per-boot"
        # At its first run, cloud-init starts it from elsewhere; at later boots, it is this copy
        # that runs.
        one.sh(f"mkdir -p {per_boot}; /var/lib/cloud/instance/part-001")
        one.sh(f"{per_boot}/spotctl")
        assert one.console.count("spotctl: ready") == 3
        # Others see that one runs, and end.
        eventually(
            lambda: (
                host.execute(one.name, "pgrep", "-fc", "^sh /opt/spotctl/watchdog").stdout == "1\n"
            )
        )
        assert one.sh(f"cat {layout.LEASE}") == before
        assert one.sh(f"stat -c %U {layout.LEASE} {layout.AGENT_FOLDER} {layout.ROOT}").split() == [
            "spotctl",
            "spotctl",
            "root",
        ]
        eventually(lambda: not one.failure())
        assert link.status().work == "work"


@pytest.mark.slow
def test_launchers_at_once_and_killed_anywhere_leave_one_agent(
    host: Namespaces, tmp_path: Path, folder: Path
) -> None:
    chance = random.Random(7)
    (folder / "large.bin").write_bytes(chance.randbytes(3 << 20))
    with renting(host, tmp_path, secrets={"HF_TOKEN": SECRET}, folder=folder) as one:
        one.start(shell("echo started; sleep 999"))
        eventually(lambda: "spotctl: ready" in one.console)
        for _ in range(3):
            with launcher(one), launcher(one):
                time.sleep(chance.uniform(0.3, 2.5))
        with launcher(one) as first, launcher(one) as second:
            for process in (first, second):
                assert process.stdout is not None
                assert "up work\n" in iter(process.stdout.readline, "")
        link = one.prepared()
        eventually(lambda: b"started" in link.output())
        assert link.output() == b"started\n"
        # The service, and the agent that it forked.
        assert host.execute(one.name, "pgrep", "-fc", SERVICE).stdout == "2\n"
        eventually(lambda: one.sh(f"ls {layout.ROOT}/incoming") == "")
        assert len(one.sh(f"ls {layout.BUNDLES}").split()) == 1


@pytest.mark.slow
def test_secrets_are_nowhere_but_with_the_payload(
    host: Namespaces, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with renting(host, tmp_path, secrets={"HF_TOKEN": SECRET}, folder=folder) as one:
        monkeypatch.setenv("HF_TOKEN", SECRET)
        one.start(shell("sleep 999"))
        with arguments_watched(SECRET) as found:
            link = one.prepared()
        assert not found
        link_key = (one.home / "link.key").read_text().strip()
        for secret in (SECRET, link_key):
            assert secret not in one.console
            assert one.holders(secret) == set()
        one.sh(f"echo {SECRET} > /var/tmp/written")
        assert one.holders(SECRET) == {"/var/tmp/written"}
        # The environment of processes: of the payload's user only.
        holders = one.sh(f"grep -lF {SECRET} /proc/[0-9]*/environ").split()
        assert holders
        assert set(one.sh("stat -c %U " + " ".join(holders)).split()) == {"spotctl"}
        others = one.sh(
            f"setpriv --reuid=nobody --clear-groups cat {' '.join(holders)} 2>/dev/null | grep -cF "
            f"{SECRET}"
        )
        assert others.strip() == "0"
        assert not [
            path
            for path in one.home.rglob("*")
            if path.is_file() and SECRET.encode() in path.read_bytes()
        ]
        assert link.status().work == "work"


def test_nothing_is_sent_to_a_machine_with_another_host_key(
    host: Namespaces, tmp_path: Path
) -> None:
    other = (
        "spotctl: host key ssh-ed25519 "
        "AAAAC3NzaC1lZDI1NTE5AAAAILeA+OpggkFY3N1ZtNJ4g2M1+y2wAQrbBxDWhOm/dEri\n"
    )
    with renting(host, tmp_path, secrets={"HF_TOKEN": SECRET}) as one:
        one.start()
        eventually(lambda: "spotctl: ready" in one.console)
        genuine = type(one).console
        try:
            type(one).console = property(lambda _: other)  # type: ignore[assignment,method-assign]
            one.agents.prepare(one.machine, one.supplies)
            eventually(lambda: "differs from the one on its console" in one.failure())
        finally:
            type(one).console = genuine  # type: ignore[method-assign]
        assert one.sh(f"ls {layout.BUNDLES}") == ""
        # What the console shows counts, whatever it showed before.
        one.prepared()


def test_another_home_is_not_admitted(host: Namespaces, tmp_path: Path) -> None:
    with renting(host, tmp_path) as one:
        one.start()
        one.prepared()
        with renting(host, tmp_path / "other") as stranger:
            stranger.name, stranger.address = one.name, one.address
            eventually(lambda: "does not accept this home's ssh key" in stranger.failure())
            stranger.agents.close()


def test_a_notice_of_the_cloud_reaches_the_payload(host: Namespaces, tmp_path: Path) -> None:
    warned = threading.Event()

    def metadata(request: Request) -> Reply:
        if request.method == "PUT":
            return Reply(200, b"token")
        if request.path.endswith("spot/instance-action") and warned.is_set():
            return Reply.of_json({"action": "terminate", "time": "2033-05-18T03:33:20Z"})
        return Reply(404)

    with renting(host, tmp_path) as one:
        one.start(
            shell("trap 'echo saving; exit 5' TERM; echo working; while :; do sleep 0.1; done"),
            metadata=metadata,
        )
        link = one.prepared()
        eventually(lambda: b"working" in link.output())
        warned.set()
        eventually(lambda: link.status().exit_code == 5)
        assert link.notices() == (MachineNotice("evict", 2_000_000_000_000_000, "aws"),)
        assert link.output().endswith(b"saving\n")


def test_a_tunnel_that_cannot_be_opened_does_not_cost_the_link(
    host: Namespaces, tmp_path: Path
) -> None:
    # The machine's own sshd listens there already.
    with renting(host, tmp_path, reach=(ReverseTunnel(22, "127.0.0.1", 1),)) as one:
        one.start()
        link = one.prepared()
        for _ in range(3):
            one.agents.prepare(one.machine, one.supplies)
            assert link.status().work == ""
        one.sh("pkill -u spotctl sshd")
        eventually(lambda: not one.failure())


def test_ports_of_the_launcher_are_reached_through_ssh(host: Namespaces, tmp_path: Path) -> None:
    class Hello(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"from the launcher\n")

        def log_message(self, *_: object) -> None:
            """Silence."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hello)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    tunnel = ReverseTunnel(7001, "127.0.0.1", server.server_address[1])
    try:
        with renting(host, tmp_path, reach=(tunnel,)) as one:
            one.start()
            link = one.prepared()
            one.agents.prepare(one.machine, one.supplies)
            code = (
                "import urllib.request as u; "
                "print(u.urlopen('http://127.0.0.1:7001').read().decode())"
            )
            eventually(lambda: link.exec(["python3", "-c", code]).out == b"from the launcher\n\n")
            # They are opened again with a connection that was lost, here by a call of the link.
            one.sh("pkill -u spotctl sshd")
            eventually(lambda: not one.failure())
            assert link.exec(["python3", "-c", code]).out == b"from the launcher\n\n"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.slow
def test_payloads_import_packages_of_the_launcher(host: Namespaces, tmp_path: Path) -> None:
    with renting(
        host, tmp_path, packages=("numpy", "cryptography", "cloudpickle", "msgspec")
    ) as one:
        one.start()
        link = one.prepared()
        code = (
            "import numpy, cryptography, cloudpickle, msgspec, agileml; "
            "print(numpy.arange(4).sum(), numpy.__file__)"
        )
        done = link.exec(["python3", "-c", code])
        assert done.err == b""
        assert done.out.split()[0] == b"6"
        assert done.out.split()[1].decode().startswith(layout.BUNDLES)


@pytest.mark.slow
def test_machines_get_one_version_of_our_code_although_it_is_upgraded_meanwhile(
    host: Namespaces, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes of different versions refuse each other."""
    with renting(host, tmp_path) as one, renting(host, tmp_path) as other:
        other.agents = one.agents
        one.start()
        one.prepared()
        monkeypatch.setattr("importlib.metadata.version", lambda _: "99.0")
        other.start()
        other.prepared()
        assert other.sh(f"ls {layout.ROOT}/bundles") == one.sh(f"ls {layout.ROOT}/bundles")


MAC = None
"""The platform of a computer whose packages run on no machine."""


@pytest.mark.slow
def test_a_mac_sends_wheels_of_its_package_index(
    host: Namespaces, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("numpy", "msgspec", "cloudpickle"):
        add_installed(tmp_path / "index", name, "cp311-cp311-manylinux_2_28_x86_64")
    use_index(monkeypatch, tmp_path / "index")
    monkeypatch.setattr(bundle, "here", lambda: MAC)
    with renting(host, tmp_path, packages=("numpy", "msgspec", "cloudpickle")) as one:
        one.start()
        link = one.prepared()
        code = (
            "import numpy, msgspec, cloudpickle, agileml; print(numpy.arange(4).sum(), "
            "numpy.__file__)"
        )
        done = link.exec(["python3", "-c", code])
        assert done.err == b""
        assert done.out.split()[0] == b"6"
        assert done.out.split()[1].decode().startswith(layout.BUNDLES)


def test_a_machine_for_which_the_index_has_no_packages_is_given_up_and_the_link_says_why(
    host: Namespaces, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_index(monkeypatch, tmp_path / "empty")
    monkeypatch.setattr(bundle, "here", lambda: MAC)
    with renting(host, tmp_path, packages=("cloudpickle",)) as one:
        one.start()

        def refused() -> bool:
            one.agents.prepare(one.machine, one.supplies)
            return "no wheel of cloudpickle" in one.failure()

        eventually(refused)
        with pytest.raises(Unusable):
            one.agents.link(one.machine).status()


def test_the_connection_is_made_again_after_it_was_lost(host: Namespaces, tmp_path: Path) -> None:
    with renting(host, tmp_path) as one:
        one.start()
        link = one.prepared()
        one.sh("pkill -u spotctl sshd")
        eventually(lambda: not one.failure())
        assert link.status().work == ""


def test_a_computer_without_an_ssh_client_is_told_before_anything_is_rented(
    host: Namespaces, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with renting(host, tmp_path) as one:
        with pytest.raises(ProviderError, match="install openssh-client"):
            one.start()
        one.host = host
        monkeypatch.undo()
        one.start(lease=0.0)
