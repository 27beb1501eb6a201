"""Which jobs' runners move to a machine, and what is missing where they cannot."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from agileml.runtime.blob_store import FileBlobStore
from spotctl.agent.data.locations import MACHINE, store_at
from spotctl.clouds.aws.cloud import AwsMachineSettings
from spotctl.clouds.azure.cloud import AzureMachineSettings
from spotctl.clouds.gcp.cloud import GcpMachineSettings
from spotctl.clouds.remote.bundle import packages_archive
from spotctl.files.job.reader import loads
from spotctl.files.job.spec import JobSpec
from spotctl.home import config
from spotctl.home.errors import BadRequest
from spotctl.run.remote_runner.homes import archives_of, config_text, new_home
from spotctl.run.remote_runner.place import (
    Admission,
    all_places,
    ask_admission,
    attach,
    check_movable,
    keep,
    known_place,
    place_of_run,
    stays_because,
)

JOB = """\
name: line
kind: command
run: "true"
identity: {aws: runner}
outputs: {model: s3://bucket/models/line/}
resources: {clouds: [aws], regions: [us-east-1], types: [c6i.large], reliable: {machines: 1}}
"""


@pytest.fixture
def settings(tmp_path: Path) -> config.Settings:
    return config.load(
        {"SPOTCTL_AWS": 'ssh_from = ["203.0.113.7/32"]\ntags = {team = "\\u00e4"}'},
        tmp_path / "home",
    )


def spec(tmp_path: Path, *changes: tuple[str, str]) -> JobSpec:
    text = JOB
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return loads(text, tmp_path / "job.yaml")


def test_a_runner_moves(tmp_path: Path, settings: config.Settings) -> None:
    job = spec(tmp_path)
    assert stays_because(job) == ""
    check_movable(job, settings)
    place = place_of_run(job, "line-1")
    assert place.location == "s3://bucket/models/line/spotctl/line-1"
    assert (known_place("line", settings), all_places(settings)) == (None, [])
    new_home("line", settings)
    keep(place, settings)
    assert (known_place("line", settings), all_places(settings)) == (place, [place])


def test_what_was_packed_for_one_run_is_there_for_the_next(settings: config.Settings) -> None:
    """Packing takes seconds of processor time. What ends with the home of a run is only the
    link."""
    for _ in range(2):
        home = new_home("line", settings).home
        archive = packages_archive(archives_of(home), ["cloudpickle"])
        (packed,) = archives_of(settings.home).glob("*.zip")
        assert packed.name == archive.path.name
        packed.write_bytes(b"kept")
        shutil.rmtree(home)
        assert packed.read_bytes() == b"kept"


def test_it_says_why_it_stays(tmp_path: Path) -> None:
    commands = (", reliable: {machines: 1}", "")
    assert "no reliable machine" in stays_because(spec(tmp_path, commands))
    on_hosts = spec(
        tmp_path,
        commands,
        ("[aws], regions: [us-east-1]", "[vast]"),
        ("identity: {aws: runner}\n", ""),
    )
    assert "machines of vast have no identity" in stays_because(on_hosts)


@pytest.mark.parametrize(
    ("old", "new", "missing"),
    [
        ("identity: {aws: runner}\n", "", "write identity: {aws: NAME}"),
        ("outputs: {model: s3://bucket/models/line/}\n", "", "outputs: {model: s3://BUCKET/PATH}"),
        (", regions: [us-east-1]", "", "name one of each under resources"),
        (
            "regions: [us-east-1]",
            "regions: [us-east-1, us-west-2]",
            "name one of each under resources",
        ),
    ],
)
def test_it_says_what_is_missing(
    old: str, new: str, missing: str, tmp_path: Path, settings: config.Settings
) -> None:
    with pytest.raises(BadRequest) as refused:
        check_movable(spec(tmp_path, (old, new)), settings)
    assert missing in str(refused.value)
    assert "--attached" in str(refused.value)


@pytest.mark.parametrize(
    "about",
    ["{", "[]", '{"job": "line"}', '{"job": "../../.ssh", "run": "line-1", "installation": "i-1"}'],
)
def test_only_what_was_published_is_attached(
    about: str, tmp_path: Path, settings: config.Settings
) -> None:
    folder = tmp_path / "store"
    store_at(str(folder)).put("run", [about.encode()])
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(BadRequest, match="not written by spotctl"):
        attach(str(folder), settings, MACHINE)
    assert sorted(tmp_path.rglob("*")) == before


def test_identities_in_the_settings_count(tmp_path: Path, settings: config.Settings) -> None:
    job = spec(
        tmp_path,
        ("identity: {aws: runner}\n", ""),
        ("[aws]", "[gcp]"),
        ("us-east-1", "us-central1"),
        ("c6i.large", "n2-standard-4"),
        ("s3://", "gs://"),
    )
    with pytest.raises(BadRequest, match="identity"):
        check_movable(job, settings)
    check_movable(
        job, replace(settings, tables={"gcp": GcpMachineSettings(service_account="runner@p.iam")})
    )


def test_a_machine_reads_the_settings_that_hold_there(
    tmp_path: Path, settings: config.Settings
) -> None:
    full = replace(
        settings,
        keys={
            "azure_subscription": "sub",
            "gcp_project": "p",
            "gcp_compute_endpoint": "http://127.0.0.1:1",
        },
    )
    folder = tmp_path / "copied"
    folder.mkdir()
    (folder / "config.toml").write_text(config_text(full))
    there = config.load({}, folder)
    assert there.tables["aws"] == replace(
        settings.table("aws", AwsMachineSettings), private_ssh=True
    )
    assert there.tables["gcp"] == GcpMachineSettings(private_ssh=True)
    assert there.tables["azure"] == AzureMachineSettings(private_ssh=True)
    assert there.keys == {
        "gcp_project": "p",
        "azure_subscription": "sub",
        "azure_managed_identity": True,
    }


KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGx0 spotctl"


def test_a_key_is_admitted_once(tmp_path: Path) -> None:
    store, authorized = FileBlobStore(tmp_path / "store"), tmp_path / "authorized_keys"
    authorized.write_text("restrict,port-forwarding,pty ssh-ed25519 AAAAfirst spotctl\n")
    Admission(store, authorized).turn()
    ask_admission(store, KEY)
    admission = Admission(store, authorized)
    admission.turn()
    ask_admission(store, KEY)
    admission.turn()
    Admission(store, authorized).turn()
    assert authorized.read_text().splitlines() == [
        "restrict,port-forwarding,pty ssh-ed25519 AAAAfirst spotctl",
        f"restrict,port-forwarding,pty {KEY}",
    ]


@pytest.mark.parametrize(
    "asked",
    [
        "",
        f'command="rm" {KEY}',
        f"{KEY}\nssh-ed25519 AAAA spotctl",
        "ssh-rsa AAAA spotctl",
        "\u00e4",
    ],
)
def test_anything_but_a_key_is_ignored(asked: str, tmp_path: Path) -> None:
    store, authorized = FileBlobStore(tmp_path / "store"), tmp_path / "authorized_keys"
    ask_admission(store, asked)
    Admission(store, authorized).turn()
    assert not authorized.exists()
