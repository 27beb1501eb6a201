"""A `JobSpec` as a job.yaml would say it, in values that JSON can hold: what the event log keeps of a job."""

from __future__ import annotations

from typing import Any

from pricing_data.units import MINUTE, format_time
from spotctl.files.job.spec import Command, Image, JobSpec, LocalMarket, Needs, Resources, Stop, Training
from spotctl.files.job.units import accelerators_text, deadline_text, money_text, range_text, span_text


def written(spec: JobSpec) -> dict[str, Any]:
    """The keys and values of a file that describes this job; `jobspec.file.restored` reads them."""
    return _said(
        name=spec.name,
        kind=str(spec.kind),
        **_program(spec.program),
        setup=spec.setup,
        workdir=str(spec.workdir),
        env=dict(spec.env),
        secrets=list(spec.secrets),
        data=dict(spec.data),
        outputs=dict(spec.outputs),
        image=_image(spec.image),
        identity=dict(spec.identity),
        resources=_resources(spec.resources, of_training=isinstance(spec.program, Training)),
        objective=str(spec.objective),
        deadline=spec.deadline and deadline_text(spec.deadline),
        hours=spec.hours and span_text(spec.hours),
        budget=spec.budget and money_text(spec.budget),
        throughputs=dict(spec.throughputs),
        tags=dict(spec.tags),
        strategy=spec.strategy,
        notify=_said(webhook=spec.webhook),
        local=_local(spec.local) if spec.is_local else None,
    )


def _said(**values: object) -> dict[str, Any]:
    """Without what says nothing. 0 and false say something."""
    return {name: value for name, value in values.items() if value is not None and value not in ({}, [])}


def _program(program: Training | Command) -> dict[str, Any]:
    if isinstance(program, Training):
        return _said(app=program.app, args=dict(program.args), stop=_stop(program.stop))
    kept = program.checkpoint
    checkpoint = kept and _said(path=kept.path, every=kept.every and span_text(kept.every))
    return _said(run=program.run, nodes=program.nodes, checkpoint=checkpoint)


def _stop(stop: Stop) -> dict[str, Any]:
    minutes = stop.span and stop.span / MINUTE
    return _said(clocks=stop.clocks, minutes=minutes, loss=stop.loss, converged=stop.converged)


def _image(image: Image) -> dict[str, Any]:
    return _said(ami=image.ami, container=image.container, disk_gib=image.disk_gib)


def _resources(resources: Resources, of_training: bool) -> dict[str, Any]:
    reliable = resources.reliable
    return _said(
        clouds=list(resources.clouds),
        types=list(resources.types) or _needs(resources.needs),
        regions=list(resources.regions),
        machines=range_text(resources.machines) if of_training else None,
        reliable=_said(machines=reliable.machines, type=reliable.type),
    )


def _needs(needs: Needs) -> dict[str, Any]:
    return _said(
        vcpus=needs.vcpus and range_text(needs.vcpus),
        memory_gib=needs.memory_gib and range_text(needs.memory_gib),
        accelerators=needs.accelerators and accelerators_text(needs.accelerators),
    )


def _local(local: LocalMarket) -> dict[str, Any]:
    return _said(
        speed=local.speed,
        seed=local.seed,
        start=None if local.start is None else format_time(local.start),
        warning=span_text(local.warning),
        unwarned=local.unwarned,
    )
