"""The service on a rented machine: it ends with its lease, whatever happens to its launcher."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from spotctl.agent import layout
from spotctl.agent.rented import search_path
from spotctl.clouds.errors import NotFound, ProviderError, Unanswered
from spotctl.clouds.link import AgentLink
from tests.cloud.namespaces import Namespaces, namespaces
from tests.servers.loopback import serving
from tests.spotctl.agent.lease.test_self_deletion import AZURE, GOOGLE, Cloud
from tests.spotctl.clouds.remote.rented import Rented, after, launcher, renting, shell
from tests.spotctl.clouds.remote.test_agents import SECRET, SERVICE
from tests.waiting import eventually

pytestmark = pytest.mark.cloud


@pytest.fixture(scope="module")
def host() -> Iterator[Namespaces]:
    with namespaces() as started:
        yield started


def ended(one: Rented) -> str:
    """What the machine says about its end, once it has switched itself off."""
    eventually(lambda: one.ended)
    return next(line for line in one.console.splitlines() if "ending this machine" in line)


def is_gone(link: AgentLink) -> bool:
    """Whether the link says that its machine is gone. First the connection that broke is tried
    again.
    """
    try:
        link.status()
    except NotFound:
        return True
    except Unanswered:
        return False
    return False


def test_payloads_have_the_path_of_the_image_after_the_agents_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "SEARCH_PATH", str(tmp_path / "path"))
    python, usual = str(Path(layout.PYTHON).parent), "/usr/bin:/bin"
    assert search_path(usual) == f"{python}:{usual}"
    (tmp_path / "path").write_text("/opt/conda/bin:/usr/bin\n")
    assert search_path(usual) == f"{python}:/opt/conda/bin:/usr/bin:/bin"


def entered(one: Rented, *command: str) -> tuple[int, str]:
    """What a person's command ends with and prints; the machine was reached."""
    code, out, why = entering(one, *command)
    assert why is None
    return code, out


def entering(one: Rented, *command: str) -> tuple[int, str, ProviderError | None]:
    """The same, and why the machine was not reached."""
    call = one.agents.invocation(one.machine, command)
    assert SECRET not in " ".join(call.words)
    done = subprocess.run(
        call.words,
        env=dict(call.environment),
        cwd=call.folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, call.lost(done.returncode)


def ssh_clients(one: Rented) -> list[str]:
    listed = subprocess.run(["ps", "-wweo", "args"], capture_output=True, text=True, check=True)
    return [
        line
        for line in listed.stdout.splitlines()
        if line.startswith("/") and str(one.home) in line
    ]


@pytest.mark.slow
def test_a_payload_outlives_its_launcher_and_the_machine_ends_with_its_lease(
    host: Namespaces, tmp_path: Path
) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "data.txt").write_text("brought\n")
    script = (
        'id -un; cat data.txt; echo "$HF_TOKEN" | wc -c; '
        'python3 -c "import spotctl.agent.node"; echo done; sleep 999'
    )
    with renting(host, tmp_path, secrets={"HF_TOKEN": SECRET}, folder=folder) as one:
        one.start(shell(script))
        eventually(lambda: "spotctl: ready" in one.console)
        with launcher(one) as first:
            assert first.stdout is not None
            lines = iter(first.stdout.readline, "")
            assert "up work\n" in lines
            assert ssh_clients(one)
            first.kill()
        eventually(lambda: not ssh_clients(one))
        # Nothing is prepared by this process: the link connects to what the first one left.
        link = one.agents.link(one.machine)
        eventually(lambda: not one.failure())
        eventually(lambda: b"done" in link.output())
        assert link.output().decode().split() == [
            "spotctl",
            "brought",
            str(len(SECRET) + 1),
            "done",
        ]
        assert (link.status().work, link.status().exit_code) == ("work", None)
        done = link.exec(["sh", "-c", "pwd -P; echo $SPOTCTL_INDEX $HF_TOKEN; exit 7"])
        folder_there, index, secret = done.out.decode().split()
        assert (done.exit_code, index, secret) == (7, "3", SECRET)
        assert folder_there.startswith(layout.JOBS)
        assert entered(one, "sh", "-c", "pwd -P; echo $SPOTCTL_MACHINE $HF_TOKEN; exit 7") == (
            7,
            f"{folder_there}\n{layout.AGENT_FOLDER} {SECRET}\n",
        )
        assert entered(one, "no-such-command") == (127, "")
        # The client ends with the same status if the machine is not reached.
        assert entered(one, "sh", "-c", "exit 255") == (255, "")
        link.renew(after(0.5))
        assert ended(one) == "spotctl: ending this machine: its lease has ended"
        eventually(lambda: is_gone(link))
        with pytest.raises(NotFound):
            one.agents.invocation(one.machine, ["true"])


def test_a_machine_to_which_no_launcher_comes_ends_with_its_lease(
    host: Namespaces, tmp_path: Path
) -> None:
    with renting(host, tmp_path) as one:
        one.start(lease=1.0)
        assert ended(one) == "spotctl: ending this machine: its lease is over"


@pytest.mark.slow
def test_a_machine_that_is_cut_off_ends_with_its_lease(host: Namespaces, tmp_path: Path) -> None:
    with renting(host, tmp_path) as one:
        one.start(shell("sleep 999"))
        link = one.prepared()
        link.renew(after(20))
        host.cut(one.name)
        code, _, why = entering(one, "true")
        assert (code, type(why)) == (255, Unanswered)
        assert "cut off from the network" in str(why)
        began = time.monotonic()
        assert "its agent" in one.failure()
        assert time.monotonic() - began < 60
        assert ended(one) == "spotctl: ending this machine: its lease has ended"


def test_a_renewed_lease_holds_for_the_watchdog_too(host: Namespaces, tmp_path: Path) -> None:
    with renting(host, tmp_path) as one:
        one.start(lease=60)
        link = one.prepared()
        before = float(one.sh(f"cat {layout.LEASE}").split()[0])
        link.renew(after(5000))
        eventually(lambda: float(one.sh(f"cat {layout.LEASE}").split()[0]) > before + 4000)
        epoch, uptime = map(float, one.sh(f"cat {layout.LEASE}").split())
        left, left_up = map(float, one.sh("date +%s; cut -d. -f1 /proc/uptime").split())
        assert abs((epoch - left) - (uptime - left_up)) <= 3
        assert not one.ended


@pytest.mark.parametrize(
    ("kill", "reason"),
    [
        ("-9 -of", "its agent does not run any more"),
        ("-9 -nf", "its agent failed with status -9"),
        ("-15 -of", "a shutdown was requested"),
    ],
)
def test_a_machine_whose_agent_has_ended_ends(
    host: Namespaces, tmp_path: Path, kill: str, reason: str
) -> None:
    with renting(host, tmp_path) as one:
        one.start(shell("sleep 999"))
        one.prepared()
        host.execute(one.name, "pkill", *kill.split(), SERVICE)
        assert ended(one) == f"spotctl: ending this machine: {reason}"


@pytest.mark.parametrize(("cloud", "path"), [("gcp", GOOGLE), ("azure", AZURE)])
def test_a_machine_deletes_itself_where_switching_off_does_not_end_the_bill(
    host: Namespaces, tmp_path: Path, cloud: str, path: str
) -> None:
    api = Cloud()
    with serving(api) as server, renting(host, tmp_path) as one:
        reach = "http://" + host.reach(int(server.url.rpartition(":")[2]))
        variables = {
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE": reach,
            "AZURE_RESOURCE_MANAGER_URL": reach,
        }
        one.start(lease=1.0, cloud=cloud, metadata=api.answer, environment=variables)
        assert ended(one) == "spotctl: ending this machine: its lease is over"
        assert api.deleted == [path]
