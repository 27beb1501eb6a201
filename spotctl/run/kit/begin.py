"""Prepares a full trial: chooses its machines, opens the cloud, and keeps its record."""

import getpass
import json
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

from pricing_data.catalog import InstanceType
from pricing_data.library import Library
from spotctl.clouds.capabilities import AllowsTrials, RentingProvider
from spotctl.clouds.wiring import cloud_provider
from spotctl.files.job.reader import loads
from spotctl.files.job.spec import JobSpec
from spotctl.home.cloud import cloud_of
from spotctl.home.config import Settings
from spotctl.home.errors import BadRequest
from spotctl.run.kit.account import Kit
from spotctl.run.kit.record import TrialRecord, as_json
from spotctl.run.start.trial import CAP_USD, fitting_types, known_types

_ANY = "name: try\nkind: command\nrun: 'true'\nresources: {{clouds: [{cloud}], regions: [{region}]{arch}}}\n"


def open_kit(
    cloud: str,
    regions: Sequence[str],
    types: Sequence[str],
    settings: Settings,
    known: Library,
    bucket: str,
    identity: str,
) -> Kit:
    """The kit for one region, the cloud's largest if none is named. BadRequest: its cloud cannot be tried, or no price
    is known."""
    job = cloud_of(cloud).job
    region = regions[0] if regions else (job.region if job is not None else "")
    if len(regions) > 1 or not region:
        raise BadRequest("a full trial is in one region: --region NAME")
    kinds = _kinds(cloud, region, types, known, settings)
    provider = cloud_provider(settings, [cloud], [region])
    if not isinstance(provider, AllowsTrials):
        raise BadRequest(
            f"{cloud} does not say how its orders are checked and its machines evicted; try it without --full"
        )
    every = tuple(known_types(cloud, [region], known))
    rented = cast("RentingProvider", provider)
    return Kit(cloud, region, settings, known, rented, kinds, every, bucket, identity, cap_usd=CAP_USD)


def _kinds(
    cloud: str, region: str, types: Sequence[str], known: Library, settings: Settings
) -> tuple[InstanceType, InstanceType]:
    """The named types, or the smallest that suits, and the smallest of another architecture or else another type."""
    if types:
        if len(types) > 2:
            raise BadRequest("a full trial rents two kinds of machines: --type NAME, once or twice")
        first, second = (known.catalog.instance_type(cloud, name) for name in (types[0], types[-1]))
        return first, second
    fitting = fitting_types(_spec(cloud, region), cloud, [region], known)
    others = [machine for machine in fitting if machine.name != fitting[0].name] or fitting
    if getattr(settings.table(cloud, cloud_of(cloud).settings_of_machines.table), "image", None) is None:
        with suppress(BadRequest):  # no price of an ARM machine may be known
            others = fitting_types(_spec(cloud, region, ", arch: arm64"), cloud, [region], known)
    return fitting[0], others[0]


def _spec(cloud: str, region: str, arch: str = "") -> JobSpec:
    return loads(_ANY.format(cloud=cloud, region=region, arch=arch), Path("try.yaml"))


def keep(kit: Kit, record: TrialRecord) -> Path:
    """Writes the record, and what a later comparison with a bill needs, to the home; returns the record's file."""
    words = private_words(kit)
    shown = as_json(record, words)
    path = kit.folder / f"record-{record.cloud}-{record.date}.json"
    path.write_text(json.dumps(shown, indent=2) + "\n")
    kept = {"record": shown, "file": path.name, "runs": kit.runs, "bare_run": kit.bare_run}
    kept_file(kit.settings, kit.cloud).write_text(json.dumps(kept, indent=2) + "\n")
    return path


def kept_file(settings: Settings, cloud: str) -> Path:
    """The file that the last full trial of a cloud keeps for `spotctl try --bill`."""
    return settings.home / "try" / f"full-{cloud}.json"


def private_words(kit: Kit) -> tuple[str, ...]:
    """Everything in settings, options and on this computer that names its user or the account."""
    own = (str(kit.settings.home), str(Path.home()), getpass.getuser(), socket.gethostname(), kit.bucket, kit.identity)
    return tuple(word for word in (*own, *_settings_of(kit)) if word)


def _settings_of(kit: Kit) -> Iterator[str]:
    of_cloud = cloud_of(kit.cloud).settings_of_machines
    for name in of_cloud.keys:
        yield kit.settings.text(name) or os.environ.get(of_cloud.variables.get(name, ""), "")
    yield from (os.environ.get(name, "") for name in of_cloud.variables.values())
    table: Any = kit.settings.table(kit.cloud, of_cloud.table)
    for field in fields(table):
        value = getattr(table, field.name)
        if isinstance(value, str) and field.name != of_cloud.image:
            yield value
        elif isinstance(value, tuple) and field.name != "regions":
            yield from map(str, value)
