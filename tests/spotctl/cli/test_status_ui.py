"""`spotctl ui` as a process: who may read, what it answers, and that it follows a run."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlencode, urlsplit

import pytest

from spotctl.log.events import StopRequested
from spotctl.log.store import EventLog
from tests.spotctl.command_line import spotctl
from tests.spotctl.show.runs.made_up_run import rows, run_events
from tests.waiting import eventually

BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
"""The environment of a command whose output is kept back until it is flushed, as it is in pipes."""


@pytest.fixture
def served(
    run: Path, request: pytest.FixtureRequest
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process for a home with one run, and its address."""
    more = getattr(request, "param", [])
    (run / "browser").write_text(BROWSER)
    (run / "browser").chmod(0o700)
    around = BUFFERED | {"BROWSER": f"{run / 'browser'} %s", "ARGUMENTS": str(run / "arguments")}
    # A process that is started in the background, as by a test run, would ignore the signal.
    heeds = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    code = f"{heeds}; from spotctl.cli.app import main; main()"
    words = [sys.executable, "-c", code, "--home", str(run), "ui", *more]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=around
    ) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


BROWSER = """#!/bin/sh
echo "$@" > "$ARGUMENTS.part"
mv "$ARGUMENTS.part" "$ARGUMENTS"
sleep 60
"""


@pytest.mark.parametrize("served", [["--open"]], indirect=True)
def test_the_command_line_of_a_browser_holds_a_private_file_instead_of_the_token(
    served: tuple[subprocess.Popen[str], str], run: Path
) -> None:
    """The browser of this test is one in a terminal, which ends only when its user leaves it."""
    process, address = served
    eventually((run / "arguments").exists)
    opened = (run / "arguments").read_text().strip()
    assert urlsplit(address).path.strip("/") not in opened
    page = Path(unquote(urlsplit(opened).path))
    assert stat.S_IMODE(page.parent.stat().st_mode) == 0o700
    (leads_to,) = re.findall(r'content="0; url=([^"]+)"', page.read_text())
    assert leads_to == address
    assert fetch(address)[0] == 200
    process.send_signal(signal.SIGINT)
    process.wait(timeout=30)
    assert not page.exists()


def fetch(address: str, host: str | None = None) -> tuple[int, str]:
    return ask(urllib.request.Request(address, headers={} if host is None else {"Host": host}))


def send(address: str, origin: str, **fields: str) -> tuple[int, str]:
    """Sends a form to a page of `ui`, and follows the answer."""
    headers = {"Origin": origin} if origin else {}
    return ask(urllib.request.Request(f"{address}do", urlencode(fields).encode(), headers))


def ask(request: urllib.request.Request) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_pages_follow_the_log_and_only_its_user_reads_them(
    served: tuple[subprocess.Popen[str], str], run: Path
) -> None:
    process, address = served
    assert address.startswith("http://127.0.0.1:")
    assert "1 active run" in fetch(address)[1]
    status, page = fetch(f"{address}run/small")
    assert status == 200
    assert "small-1: interrupted" in page
    assert "of $6.00" not in page
    _, _, newest = rows(run_events())[-3:]
    with EventLog(run / "log.sqlite") as log:
        from spotctl.log import events as ev

        log.append(newest.run, newest.at, ev.Progressed(77, 0.1, 2))
    assert ">77<" in fetch(f"{address}run/small")[1]
    assert all(
        "Cost report" in fetch(f"{address}costs{query}")[1] for query in ("", "?all", "?job=small")
    )
    assert 'href="run/small"' in fetch(f"{address}costs?job=small")[1]
    assert "no job named" in fetch(f"{address}costs?job=other")[1]
    assert fetch(f"{address}run/other")[1].count("was launched") == 1
    assert fetch(f"{address}elsewhere")[0] == 404
    port = address.split(":")[2].split("/")[0]
    assert fetch(f"http://127.0.0.1:{port}/guess/")[0] == 403
    assert fetch(f"http://127.0.0.1:{port}/")[0] == 403
    assert fetch(address, host=f"evil.example:{port}")[0] == 421
    assert fetch(address, host=f"localhost:{port}")[0] == 200
    process.send_signal(signal.SIGINT)
    assert process.wait() == 0
    assert process.stderr is not None
    assert process.stderr.read() == ""


def test_only_the_words_of_a_form_on_the_page_itself_begin_a_command(
    served: tuple[subprocess.Popen[str], str], run: Path
) -> None:
    """Neither another page nor a slip stops a run, and no form gives an option to a command."""
    _, address = served
    own = address.rsplit("/", 2)[0]
    stop = {"asked": "stop small", "typed": "stop small"}
    refused = [
        send(address, origin, **stop)[0]
        for origin in ("", "null", "http://evil.example", f"{own}0")
    ]
    assert refused == [403] * 4
    port = own.rpartition(":")[2]
    assert send(f"http://127.0.0.1:{port}/guess/", own, **stop)[0] == 403
    assert send(address, own, asked="stop small", typed="stop smal") == (
        400,
        "Nothing was done: go back, and type stop small\n",
    )
    for words in ("stop --all", "stop other", "gc small", "stop"):
        assert send(address, own, asked=words, typed=words) == (
            400,
            f"nothing was done: no page asks for {words!r}\n",
        )
    assert send(f"{address}costs/", own, **stop)[0] == 404
    with EventLog(run / "log.sqlite") as log:
        assert not [row for row in log.of_run("small-1") if isinstance(row.event, StopRequested)]
    status, page = send(address, own, **stop)
    assert status == 200
    assert "stop small" in page
    # The machines of this run are not there any more.
    eventually(lambda: "is under way" not in fetch(address)[1])


@pytest.mark.slow
def test_a_run_is_resumed_and_stopped_from_its_page(tmp_path: Path) -> None:
    """A launch is killed; the page offers to resume its run, and then to stop it."""
    home, job = tmp_path / "home", tmp_path / "job.yaml"
    job.write_text(
        "name: long\nkind: command\nrun: sleep 600\nhours: 1h\nresources: {clouds: [local]}\n"
    )
    begin = [sys.executable, "-m", "spotctl", "--home", str(home)]
    with (
        subprocess.Popen(
            [*begin, "launch", str(job), "--yes"], stdout=subprocess.DEVNULL
        ) as launched,
        subprocess.Popen(
            [*begin, "ui"], stdout=subprocess.PIPE, text=True, env=BUFFERED
        ) as process,
    ):
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            eventually(lambda: 'action="../do"' in fetch(f"{address}run/long")[1])
            own = address.rsplit("/", 2)[0]
            more = "resume long --budget"
            assert send(address, own, asked=more, typed=f"{more} 7")[0] == 200
            eventually(lambda: "budget set to $7.00" in fetch(f"{address}run/long")[1])
            assert "of $7.00" in fetch(address)[1]
            for typed in (more, f"{more}  7", f"{more} 7 8", f"{more} all"):
                assert send(address, own, asked=more, typed=typed)[0] == 400
            launched.kill()
            launched.wait()
            eventually(lambda: 'value="resume long"' in fetch(f"{address}run/long")[1])
            assert send(address, own, asked="resume long", typed="resume long")[0] == 200
            eventually(lambda: 'value="resume long"' not in fetch(f"{address}run/long")[1])
            assert send(address, own, asked="stop long", typed="stop long")[0] == 200
            eventually(lambda: ">stopped<" in fetch(address)[1])
            assert "do" not in re.findall(r'action="../(\w+)"', fetch(f"{address}run/long")[1])
        finally:
            launched.kill()
            process.kill()


def test_a_program_reads_the_address_while_the_pages_are_served(run: Path) -> None:
    words = [sys.executable, "-m", "spotctl", "--home", str(run), "ui", "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=BUFFERED) as process:
        assert process.stdout is not None
        try:
            address = json.loads(
                process.stdout.readline() + process.stdout.readline() + process.stdout.readline()
            )
            assert fetch(address["address"])[0] == 200
        finally:
            process.kill()


def test_a_port_in_use_is_refused_in_one_line(served: tuple[subprocess.Popen[str], str]) -> None:
    port = served[1].split(":")[2].split("/")[0]
    refused = spotctl("ui", "--port", port)
    assert refused.code == 2
    assert refused.err.splitlines()[-1].endswith(
        f"--port {port}: cannot listen on 127.0.0.1: Address already in use; 0 chooses a free port"
    )


def test_a_home_without_nights_is_shown_without_what_nights_import(tmp_path: Path) -> None:
    """That takes seconds, in which the first page would be waited for."""
    code = """
import sys
from pathlib import Path
from spotctl.cli.nightly import known_jobs
from spotctl.home.config import load
class WithHome:
    settings = load({}, Path(sys.argv[1]))
assert known_jobs(WithHome) == []
assert "spotctl.nightly.install" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
