"""One Ctrl-C ends a command that waits for a server, a worker or a C library, and loses nothing."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread

import pytest

from pricing_data.store import PriceStore
from tests.waiting import PATIENCE_SECONDS, eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at the process in /proc")

END_SECONDS = 60.0
"""Far longer than it takes on a busy computer, and far shorter than what the commands wait for."""
EXAMPLES = Path(__file__).parents[3] / "examples"


@dataclass
class SilentServer:
    """Accepts every connection and never answers."""

    url: str
    asked: Event = field(default_factory=Event)


@pytest.fixture
def silent() -> Iterator[SilentServer]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = SilentServer(f"http://127.0.0.1:{listener.getsockname()[1]}")
        connections = []

        def accept() -> None:
            while True:
                try:
                    connections.append(listener.accept()[0])
                except OSError:
                    return
                server.asked.set()

        Thread(target=accept, daemon=True).start()
        yield server
        listener.shutdown(socket.SHUT_RDWR)
    for connection in connections:
        connection.close()


def at(server: SilentServer) -> dict[str, str]:
    """An environment in which this server is every cloud."""
    names = (
        "AWS_ENDPOINT_URL SPOTCTL_AWS_PRICE_LIST_URL SPOTCTL_AWS_SPOT_ADVISOR_URL "
        "SPOTCTL_GCP_COMPUTE_ENDPOINT"
        " SPOTCTL_GCP_BILLING_ENDPOINT SPOTCTL_AZURE_RETAIL_PRICES_URL AZURE_RESOURCE_MANAGER_URL"
    )
    account = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y", "SPOTCTL_GCP_PROJECT": "p"}
    return {**dict.fromkeys(names.split(), server.url), **account}


@contextmanager
def started(*words: str | Path, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A command as a process of its own, in a group of its own, as a terminal starts it."""
    heeds = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    command = [
        sys.executable,
        "-c",
        f"{heeds}; from spotctl.cli.app import main; main()",
        *map(str, words),
    ]
    with subprocess.Popen(
        command,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def assert_one_ctrl_c_ends(process: subprocess.Popen[str]) -> None:
    """Sends what a terminal sends: SIGINT to every process of the group."""
    assert process.poll() is None, process.communicate()
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=END_SECONDS)
    assert process.returncode == 130, err
    assert err.splitlines()[-1] == "spotctl: interrupted; stored data is kept"
    assert "Traceback" not in err
    assert "Warning" not in err
    assert_leaves_none(process)


def assert_leaves_none(process: subprocess.Popen[str]) -> None:
    def has_none_left() -> bool:
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return True
        return False

    eventually(has_none_left)


@pytest.mark.parametrize(
    "words",
    [
        ("fetch", "--cloud", "aws", "--region", "us-east-1"),
        ("fetch", "--cloud", "gcp", "--region", "us-central1"),
        ("fetch", "--cloud", "azure", "--region", "eastus"),
        ("best", "--gpu", "A100:8", "--below", "1"),
    ],
)
def test_a_fetch_from_a_server_that_never_answers(
    words: tuple[str, ...], silent: SilentServer, tmp_path: Path
) -> None:
    with started("--home", tmp_path, "prices", *words, **at(silent)) as process:
        assert silent.asked.wait(PATIENCE_SECONDS)
        assert_one_ctrl_c_ends(process)
    assert PriceStore(tmp_path / "prices").inspect().flaws == ()


def test_a_download_that_never_comes(silent: SilentServer, tmp_path: Path) -> None:
    with started("--home", tmp_path, "prices", "import", f"{silent.url}/aws.parquet") as process:
        assert silent.asked.wait(PATIENCE_SECONDS)
        assert_one_ctrl_c_ends(process)


def has_loaded(library: str) -> Callable[[subprocess.Popen[str]], bool]:
    return lambda process: library in Path(f"/proc/{process.pid}/maps").read_text()


def children_of(process: subprocess.Popen[str]) -> list[str]:
    return Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()


def has_workers(process: subprocess.Popen[str]) -> bool:
    # The first child keeps track of what the others share.
    return len(children_of(process)) > 1


ENDLESS = (
    "with recursive n as (select 1 as i union all select i + 1 from n) select max(i) as i from n"
)


@pytest.mark.parametrize(
    ("words", "is_busy"),
    [
        (("lab", "prices", "sql", ENDLESS), has_loaded("duckdb")),
        (
            ("lab", "prices", "sql", "select len(range(3000000000)) as n", "--memory", "1TB"),
            has_loaded("duckdb"),
        ),
        (
            (
                "lab",
                "backtest",
                "run",
                "{folder}/backtest.yaml",
                "--workers",
                "2",
                "--out",
                "{folder}/out",
            ),
            has_workers,
        ),
        (
            (
                "lab",
                "parallel",
                "profile",
                "mlp",
                "--microbatch",
                "1,2,4096,8192,16384",
                "--repeats",
                "999",
            ),
            has_workers,
        ),
    ],
)
def test_work_that_takes_very_long(
    words: tuple[str, ...], is_busy: Callable[[subprocess.Popen[str]], bool], tmp_path: Path
) -> None:
    text = (EXAMPLES / "backtest_local.yaml").read_text()
    (tmp_path / "backtest.yaml").write_text(text.replace("starts: 20", "starts: 20000"))
    with started("--home", tmp_path, *(word.format(folder=tmp_path) for word in words)) as process:
        eventually(lambda: is_busy(process))
        assert_one_ctrl_c_ends(process)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_backtest_leaves_no_worker(number: signal.Signals, tmp_path: Path) -> None:
    text = (EXAMPLES / "backtest_local.yaml").read_text()
    (tmp_path / "backtest.yaml").write_text(text.replace("starts: 20", "starts: 20000"))
    words = ("lab", "backtest", "run", tmp_path / "backtest.yaml", "--workers", "2")
    with started("--home", tmp_path, *words) as process:

        def replay() -> bool:
            _, *workers = children_of(process) or [""]
            maps = [Path(f"/proc/{worker}/maps").read_text() for worker in workers]
            return len(maps) == 2 and all("numpy" in loaded for loaded in maps)

        eventually(replay)
        # To this process alone, as a supervisor sends it.
        process.send_signal(number)
        process.wait(END_SECONDS)
        assert process.returncode == -number
        assert_leaves_none(process)
