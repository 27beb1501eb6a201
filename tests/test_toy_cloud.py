"""A cloud can be published as a package of its own: the toy cloud, found through its entry point
alone.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from spotctl.home.installation import INSTALLATION_TAG, RUN_TAG, installation_id
from tests.samples import PART, TOY_CLOUD
from tests.spotctl.clouds.leaving import kill_all, running
from tests.waiting import eventually

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "tests" / "toy_cloud"
GUIDE = ROOT / "docs" / "internals" / "write-a-cloud.md"
MAX_WORDS = 1_000
JOB = """\
name: {name}
kind: command
run: "echo image $TOY_IMAGE, badge $TOY_BADGE; cat hello.txt"
resources: {{clouds: [toy], types: ["block.*"]}}
hours: 15m on block.2
{more}
"""
SETTINGS = """\
toy_folder = "{folder}"
[toy]
badge = "visitor"
most_machines = 3
"""


@dataclass(frozen=True)
class Ended:
    """How a command ended, in a process of its own."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:  # noqa: ANN401  # JSON is any value
        return json.loads(self.out)

    @property
    def error(self) -> str:
        """The one line that an error is."""
        assert self.err.count("\n") == 1, self.err
        assert "Traceback" not in self.err
        return self.err


def python(*words: str, home: Path, packages: Path | None = PACKAGE) -> Ended:
    path = os.pathsep.join(str(folder) for folder in (ROOT, packages) if folder is not None)
    environment = {**os.environ, "PYTHONPATH": path, "SPOTCTL_HOME": str(home)}
    # The tests of the toy's package are not divided into a short and a long part.
    environment.pop(PART, None)
    ended = subprocess.run(
        [sys.executable, *words],
        cwd=home,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def spotctl(home: Path, *words: str, packages: Path | None = PACKAGE) -> Ended:
    return python("-m", "spotctl", *words, home=home, packages=packages)


def job(home: Path, name: str, more: str = "") -> str:
    # Machines never get the folder of a home.
    path = home / "jobs" / f"{name}.yaml"
    path.parent.mkdir(exist_ok=True)
    (path.parent / "hello.txt").write_text("the folder of the job\n")
    path.write_text(JOB.format(name=name, more=more))
    return str(path)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home with the cloud's settings and prices."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "config.toml").write_text(SETTINGS.format(folder=folder / "works"))
    fetched = spotctl(folder, "prices", "fetch", "--cloud", "toy", "--since", "10d", "--json")
    assert fetched.code == 0, fetched.err
    assert {task["cloud"] for task in fetched.json["tasks"]} == {"toy"}
    yield folder
    kill_all(folder)


@pytest.fixture(scope="module")
def launched(home: Path) -> Ended:
    """A job that ran to its end."""
    return spotctl(
        home,
        "launch",
        job(home, "small", "image: {toy: tin}\nidentity: {toy: trainer}"),
        "--yes",
        "--json",
    )


@pytest.fixture
def bill(home: Path, launched: Ended) -> list[dict[str, str]]:
    """A bill with the amounts of the ledger, to which other tests add runs."""
    assert launched.code == 0, launched.err
    rows = csv.DictReader(io.StringIO(spotctl(home, "report", "cost", "--format", "focus").out))
    return [
        {
            "toy": row["ResourceId"],
            "rented": row["ChargePeriodStart"],
            "returned": row["ChargePeriodEnd"],
            "charge": row["BilledCost"],
            "run": json.loads(row["Tags"])["spotctl-run"],
        }
        for row in rows
        if row["ProviderName"] == "Toy Works"
    ]


def reconciled(home: Path, lines: list[dict[str, str]]) -> Ended:
    path = home / "export.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, lines[0])
        writer.writeheader()
        writer.writerows(lines)
    return spotctl(home, "report", "reconcile", "--bill", str(path), "--json")


@TOY_CLOUD
@pytest.mark.slow
def test_the_contract_of_every_provider_holds(tmp_path: Path) -> None:
    contract = str(PACKAGE / "contract_of_toy.py")
    ended = python(
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(ROOT),
        contract,
        home=tmp_path,
    )
    assert ended.code == 0, ended.out
    assert re.search(r"^5\d passed", ended.out, re.MULTILINE)


@TOY_CLOUD
def test_doctor_checks_the_cloud_and_prints_its_policy(home: Path) -> None:
    checked = {
        item["what"]: item
        for item in spotctl(home, "doctor", "--json").json["findings"]
        if item["about"] == "toy"
    }
    assert checked["machines"]["told"] == "3 at a time"
    assert checked["credentials"]["level"] == "good"
    assert spotctl(home, "doctor", "--policy", "toy").json["allow"] == ["read", "write"]


@TOY_CLOUD
def test_prices_are_stored_listed_and_ranked(home: Path) -> None:
    listed = spotctl(home, "lab", "prices", "ls", "toy").out.split()
    assert len(listed) == 9
    assert "toy/shelf2-south/shelf2-south-a/robot.8" in listed
    best = spotctl(home, "prices", "best", "--cloud", "toy", "--gpu", "V100", "--json").json
    assert {offer["market"].partition("/")[0] for offer in best["offers"]} == {"toy"}
    assert "public price list" in spotctl(home, "prices", "fetch", "--sources").out


def test_a_plan_chooses_the_cloud(home: Path) -> None:
    (choice,) = spotctl(home, "plan", job(home, "planned"), "--json").json["choice"]
    assert choice["market"].startswith("toy/shelf")
    # Which block is cheaper for its speed depends on the day; a job without GPUs never rents a
    # robot.
    assert choice["market"].rpartition("/")[2] in ("block.2", "block.8")


@TOY_CLOUD
def test_a_plan_keeps_to_the_regions_of_the_job(home: Path) -> None:
    path = job(home, "south")
    Path(path).write_text(
        Path(path).read_text().replace("clouds: [toy]", "clouds: [toy], regions: [shelf2-south]")
    )
    (choice,) = spotctl(home, "plan", path, "--json").json["choice"]
    assert choice["market"].startswith("toy/shelf2-south/shelf2-south-a/block.")


def test_a_job_runs_to_its_end_with_its_folder_image_and_identity(
    home: Path, launched: Ended
) -> None:
    assert launched.code == 0, launched.err
    assert launched.json["outcome"] == "done"
    logs = spotctl(home, "logs", "small").out
    assert "image tin, badge trainer" in logs
    assert "the folder of the job" in logs
    assert not running(home)


@TOY_CLOUD
def test_settings_are_for_jobs_that_name_nothing(home: Path) -> None:
    ended = spotctl(home, "launch", job(home, "plain"), "--yes")
    assert ended.code == 0, ended.err
    assert "image wood, badge visitor" in spotctl(home, "logs", "plain").out


def test_the_report_has_the_cost(home: Path, launched: Ended) -> None:
    cost = spotctl(home, "report", "cost", "--job", "small", "--by", "cloud", "--json").json
    (group,) = cost["groups"]
    assert group["cloud"] == "toy"
    # At least ten seconds are billed, at 30 to 38 percent of the list price.
    assert 10 / 3600 * 0.012 - 1e-9 <= group["total_usd"] < 0.001
    assert group["total_usd"] == pytest.approx(launched.json["cost_usd"], abs=1e-9)


def test_a_bill_agrees(home: Path, bill: list[dict[str, str]]) -> None:
    agreed = reconciled(home, bill)
    assert agreed.code == 0, agreed.out
    assert agreed.json["provider"] == "toy"
    assert agreed.json["differences"] == []


@TOY_CLOUD
def test_a_difference_in_a_bill_is_found(home: Path, bill: list[dict[str, str]]) -> None:
    extra = {**bill[0], "toy": "toy:unknown-0", "charge": "0.25"}
    differs = reconciled(home, [*bill, extra])
    assert differs.code == 1
    (difference,) = differs.json["differences"]
    assert (difference["kind"], difference["resource"]) == (
        "missing in the ledger",
        "toy:unknown-0",
    )


_LOSE_A_MACHINE = """
import sys
from pathlib import Path
from spotctl.agent.container.payload import Payload
from spotctl.clouds.provider import MachineRequest
from toycloud.price_list import MARKETS
from toycloud.provider import ToyProvider
from toycloud.settings import ToySettings
provider = ToyProvider(Path(sys.argv[1]), ToySettings())
market, bid = next(iter(MARKETS.items()))
tags = dict(word.split("=") for word in sys.argv[2:])
(machine,) = provider.create(MachineRequest("lost", market, 1, bid, provider.now() + 3600 * 10**6, tags))
print(machine.id)
"""


@TOY_CLOUD
@pytest.mark.usefixtures("launched")
def test_an_orphan_is_found_and_removed(home: Path) -> None:
    tags = (f"{RUN_TAG}=lost-000000", f"{INSTALLATION_TAG}={installation_id(home)}")
    lost = python("-c", _LOSE_A_MACHINE, str(home / "works"), *tags, home=home)
    assert lost.code == 0, lost.err
    # Without its log, as if all rows were lost.
    (home / "lost").mkdir()
    for file in home.glob("log.sqlite*"):
        file.rename(home / "lost" / file.name)
    ended = spotctl(home, "gc", "--json")
    (orphan,) = ended.json["resources"]
    assert (orphan["kind"], orphan["id"]) == ("machine", lost.out.strip()), (
        "found although no log names its cloud"
    )
    assert (ended.code, ended.json["not_asked"]) == (
        0,
        ["aws", "gcp", "azure", "slurm", "vast", "runpod"],
    )
    assert spotctl(home, "gc", "--cloud", "aws").code == 5
    for file in (home / "lost").iterdir():
        file.replace(home / file.name)
    assert spotctl(home, "gc", "--yes").code == 0
    eventually(lambda: not running(home))
    assert spotctl(home, "gc", "--json").json["resources"] == []


def test_a_wrong_setting_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("[toy]\ncolour = 'red'\n")
    refused = spotctl(tmp_path, "status")
    assert refused.code == 2
    assert "config.toml: toy is" in refused.error
    assert "among badge, image, most_machines; colour is not one of them" in refused.error


def test_an_unknown_image_ends_a_run(home: Path) -> None:
    refused = spotctl(home, "launch", job(home, "glass", "image: {toy: glass}"), "--yes")
    assert refused.code != 0
    assert "'glass' is not one of wood, tin" in refused.out + refused.err


def test_the_schema_of_job_files_names_the_cloud(tmp_path: Path) -> None:
    schema = spotctl(tmp_path, "schema").out
    assert "On the toy cloud: wood, tin, or auto." in schema
    assert "badge (toy)" in schema
    assert "toy" not in spotctl(tmp_path, "schema", packages=None).out


@TOY_CLOUD
@pytest.mark.parametrize(
    "words",
    [
        ("prices", "fetch", "--cloud", "toy"),
        ("prices", "best", "--cloud", "toy"),
        ("gc", "--cloud", "toy"),
        ("try", "toy"),
    ],
    ids=" ".join,
)
def test_without_its_package_the_cloud_is_unknown(tmp_path: Path, words: tuple[str, ...]) -> None:
    refused = spotctl(tmp_path, *words, packages=None)
    assert refused.code == 2
    assert "'toy'" in refused.error


def test_without_its_package_a_job_file_that_names_the_cloud_is_refused(tmp_path: Path) -> None:
    refused = spotctl(tmp_path, "plan", job(tmp_path, "small"), packages=None)
    assert refused.code == 2
    assert (
        "unknown value 'toy'; expected one of aws, gcp, azure, slurm, vast, runpod, local"
        in refused.error
    )


def publish(folder: Path, descriptor: str | None) -> None:
    """A package `moonshot` with the cloud `moon`, whose module has this text, or is missing."""
    info = folder / "moonshot-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: moonshot\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[spotctl.clouds]\nmoon = moonshot.cloud:CLOUD\n")
    if descriptor is not None:
        (folder / "moonshot").mkdir()
        (folder / "moonshot" / "__init__.py").touch()
        (folder / "moonshot" / "cloud.py").write_text(descriptor)


@TOY_CLOUD
@pytest.mark.parametrize(
    ("descriptor", "problem"),
    [
        (None, "moonshot.cloud:CLOUD cannot be loaded (No module named 'moonshot')"),
        ("CLOUD = object()", "moonshot.cloud:CLOUD has no markets"),
        (
            "from spotctl.home.cloud import Cloud\nCLOUD = Cloud(moons=3)",
            "unexpected keyword argument 'moons'",
        ),
    ],
    ids=["no module", "no markets", "another version"],
)
@pytest.mark.parametrize(
    "words", [("doctor",), ("lab", "prices", "ls"), ("doctor", "--policy", "aws")], ids=" ".join
)
def test_a_broken_package_is_named(
    tmp_path: Path, descriptor: str | None, problem: str, words: tuple[str, ...]
) -> None:
    publish(tmp_path, descriptor)
    refused = spotctl(tmp_path, *words, packages=tmp_path)
    assert refused.code == 2
    assert "cloud moon of package moonshot: " in refused.error
    assert problem in refused.error


@TOY_CLOUD
def test_a_part_that_cannot_be_imported_is_named(tmp_path: Path) -> None:
    text = (
        (PACKAGE / "toycloud" / "cloud.py")
        .read_text()
        .replace('"toy"', '"moon"')
        .replace("toycloud", "moonshot")
    )
    publish(tmp_path, text)
    (tmp_path / "moonshot" / "settings.py").write_text(
        (PACKAGE / "toycloud" / "settings.py").read_text()
    )
    (tmp_path / "moonshot" / "prices.py").write_text("import rocket\n")
    missing, broken = (
        spotctl(tmp_path, *words, packages=tmp_path)
        for words in (("doctor",), ("prices", "fetch", "--cloud", "moon"))
    )
    assert (missing.code, broken.code) == (2, 2)
    assert "cloud moon of package moonshot: has no part 'doctor' (moonshot.doctor)" in missing.error
    assert (
        "part 'prices' cannot be loaded: No module named 'rocket' (moonshot.prices)" in broken.error
    )


def test_a_descriptor_that_imports_a_part_is_told_so(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "own")
    descriptor = tmp_path / "own" / "toycloud" / "cloud.py"
    descriptor.write_text(
        descriptor.read_text().replace("\nCLOUD =", "\nimport toycloud.provider\nCLOUD =")
    )
    listed, imported = (
        python(*words, home=tmp_path, packages=tmp_path / "own")
        for words in (("-m", "spotctl", "doctor"), ("-c", "import toycloud.cloud"))
    )
    assert listed.code == 2
    assert listed.error == (
        "spotctl: cloud toy of package toycloud: toycloud.cloud imports toycloud.provider, which "
        "needs the descriptor"
        " in toycloud.cloud; a descriptor holds values, and imports no part of its cloud\n"
    )
    assert "toycloud.cloud imports toycloud.provider, which needs the descriptor" in imported.err


def test_help_needs_no_cloud(tmp_path: Path) -> None:
    publish(tmp_path, None)
    for words in (("--version",), ("--help",), ("launch", "--help")):
        shown = spotctl(tmp_path, *words, packages=tmp_path)
        assert (shown.code, shown.err) == (0, "")


def test_the_guide_is_short() -> None:
    assert len(GUIDE.read_text(encoding="utf-8").split()) <= MAX_WORDS
