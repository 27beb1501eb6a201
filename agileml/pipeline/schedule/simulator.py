"""Plays the operations of a pipeline with the seconds of a profile: which operation waits for what.

A device runs its operations in order. A transfer starts when its operation ends, occupies the link
between the two devices alone, and never holds up compute. An update waits for all replicas of its
stage and their all-reduce.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from agileml.errors import BadArgument
from agileml.pipeline.schedule.schedules import Pass, PipelineStep, StepOrder


@dataclass(frozen=True)
class StageTimes:
    """Seconds of one microbatch in one virtual stage."""

    forward: float
    backward: float
    """With the second forward pass, if the stage recomputes."""
    send: float = 0.0
    """Time of the output over the link to the next stage; its gradient takes as long."""
    sync: float = 0.0
    """Time of one all-reduce and the update that follows."""


@dataclass(frozen=True)
class PipelineSpan:
    """One operation, as it ran."""

    stage: int
    replica: int
    step: PipelineStep
    start: float
    end: float


@dataclass(frozen=True)
class PipelineRun:
    """All operations of all devices."""

    spans: tuple[PipelineSpan, ...]

    @property
    def seconds(self) -> float:
        return max(span.end for span in self.spans)

    @property
    def idle(self) -> float:
        """The share of device time without compute."""
        worked = sum(
            span.end - span.start for span in self.spans if span.step.kind is not Pass.UPDATE
        )
        devices = len({(span.stage, span.replica) for span in self.spans})
        return 1 - worked / (self.seconds * devices)

    def period(self) -> float:
        """Seconds between updates of the first stage's first replica, from the first third of them
        to the last.
        """
        ends = [
            span.end
            for span in self.spans
            if span.step.kind is Pass.UPDATE and span.stage == span.replica == 0
        ]

        begun = len(ends) // 3
        last = len(ends) - 1 - len(ends) // 3
        if last <= begun:
            return ends[-1] / len(ends)
        return (ends[last] - ends[begun]) / (last - begun)


def play(orders: Sequence[Sequence[StepOrder]], times: Sequence[StageTimes]) -> PipelineRun:
    """Runs the orders of all stages, each with its replicas. `times` has an entry for every chunk
    of every stage.
    """
    return _Play(orders, times).run()


@dataclass
class _Device:
    stage: int
    replica: int
    order: StepOrder
    at: int = 0
    free: float = 0.0
    updates: int = 0


class _Play:
    """Every device has a fixed order, so the result does not depend on which device is looked at
    first.
    """

    def __init__(self, orders: Sequence[Sequence[StepOrder]], times: Sequence[StageTimes]) -> None:
        self._times = times
        self._depth = len(orders)
        self._replicas = [len(stage) for stage in orders]
        self._devices = [
            _Device(s, r, order) for s, stage in enumerate(orders) for r, order in enumerate(stage)
        ]
        self._update_counts = [
            [sum(step.kind is Pass.UPDATE for step in order) for order in stage] for stage in orders
        ]
        self._arrived: dict[tuple[Pass, int, int], float] = {}
        """When the input of a pass is there, by virtual stage and microbatch."""
        self._links: dict[tuple[int, int, int, int], float] = {}
        """When the link from one device to another is free again."""
        self._gradients: dict[tuple[int, int], dict[int, float]] = {}
        """The time at which each replica's gradients were complete, by stage and number of the
        update."""
        self._spans: list[PipelineSpan] = []

    def run(self) -> PipelineRun:
        waiting = self._devices
        while waiting:
            advanced = [self._advance(device) for device in waiting]
            if True not in advanced:
                first = waiting[0]
                step = first.order[first.at]
                raise BadArgument(
                    f"the schedule cannot run: pipeline stage {first.stage + 1} waits forever for "
                    f"the input of {step.kind.value}{step.microbatch}"
                )
            waiting = [device for device in waiting if device.at < len(device.order)]

        return PipelineRun(tuple(self._spans))

    def _advance(self, device: _Device) -> bool:
        """Runs the operations whose inputs have arrived; whether there were any."""
        begun = device.at
        while device.at < len(device.order):
            step = device.order[device.at]
            virtual = step.chunk * self._depth + device.stage
            start: float | None = None
            if step.kind is Pass.UPDATE:
                # Once the last replica has its gradients; the last round may have fewer inputs than
                # replicas.
                ready = self._gradients.setdefault((device.stage, device.updates), {})
                ready[device.replica] = device.free
                counts = self._update_counts[device.stage]
                if len(ready) >= sum(count > device.updates for count in counts):
                    start = max(ready.values())
            elif step.kind is Pass.FORWARD and not virtual:
                start = 0.0
            else:
                start = self._arrived.get((step.kind, virtual, step.microbatch))
            if start is None:
                break
            self._run(device, step, max(start, device.free))
            device.at += 1

        return device.at > begun

    def _run(self, device: _Device, step: PipelineStep, start: float) -> None:
        virtual = step.chunk * self._depth + device.stage
        times = self._times[virtual]
        if step.kind is Pass.FORWARD:
            device.free = start + times.forward
        elif step.kind is Pass.BACKWARD:
            device.free = start + times.backward
        else:
            device.free = start + times.sync

        span = PipelineSpan(device.stage, device.replica, step, start, device.free)
        self._spans.append(span)
        if step.kind is Pass.UPDATE:
            device.updates += 1
        else:
            forward = step.kind is Pass.FORWARD
            target = virtual + 1 if forward else virtual - 1
            if target == len(self._times):
                self._arrived[Pass.BACKWARD, virtual, step.microbatch] = device.free
            if not 0 <= target < len(self._times):
                return
            stage = target % self._depth
            link = (device.stage, device.replica, stage, step.microbatch % self._replicas[stage])
            sending = self._times[virtual if forward else target]
            begins = max(self._links.get(link, 0.0), device.free)
            arrived = begins + sending.send
            self._links[link] = arrived
            self._arrived[step.kind, target, step.microbatch] = arrived


_COLORS = {Pass.FORWARD: "#4c78a8", Pass.BACKWARD: "#72b7b2", Pass.UPDATE: "#e45756"}
_ROW, _GAP, _LEFT, _WIDTH = 26, 6, 90, 1400
_STYLE = (
    "body{font:14px sans-serif;margin:16px}text{font-size:12px}"
    ".label{fill:#fff;pointer-events:none}"
)
_LEGEND = (
    "Rows: stage.replica. Blue: forward, green: backward, red: update. "
    "Numbers are microbatches, from 0."
)
_NAMES = {Pass.FORWARD: "forward", Pass.BACKWARD: "backward", Pass.UPDATE: "update"}


def trace_json(run: PipelineRun) -> str:
    """Trace events in microseconds, for chrome://tracing and Perfetto."""
    events = [
        {
            "name": _label(span),
            "cat": _NAMES[span.step.kind],
            "ph": "X",
            "ts": span.start * 1e6,
            "dur": (span.end - span.start) * 1e6,
            "pid": span.stage,
            "tid": span.replica,
        }
        for span in run.spans
    ]
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})


def timeline_page(run: PipelineRun, title: str) -> str:
    """A page with one row per device; the pointer shows the operation and its seconds."""
    devices = sorted({(span.stage, span.replica) for span in run.spans})
    rows = {device: row for row, device in enumerate(devices)}
    scale = (_WIDTH - _LEFT) / run.seconds
    height = len(rows) * (_ROW + _GAP) + _GAP
    shapes = []
    for (stage, replica), row in rows.items():
        y = _GAP + row * (_ROW + _GAP) + 17
        shapes.append(f'<text x="4" y="{y}">{stage + 1}.{replica + 1}</text>')
    for span in run.spans:
        x = _LEFT + span.start * scale
        y = _GAP + rows[span.stage, span.replica] * (_ROW + _GAP)
        width = max((span.end - span.start) * scale, 0.5)
        place = f'x="{x:.2f}" y="{y}" width="{width:.2f}" height="{_ROW}"'
        color = _COLORS[span.step.kind]
        hint = f"{_label(span)}: {span.start:.6g} to {span.end:.6g} s"
        shapes.append(f'<rect {place} fill="{color}" stroke="#fff"><title>{hint}</title></rect>')
        if width > 16:
            microbatch = span.step.microbatch
            shapes.append(f'<text class="label" x="{x + 2:.2f}" y="{y + 17}">{microbatch}</text>')

    name = escape(title)
    head = f'<meta charset="utf-8"><title>{name}</title><style>{_STYLE}</style>'
    speed = f"{run.seconds:.4g} s, {run.idle:.1%} idle."
    drawing = f'<svg width="{_WIDTH}" height="{height}" role="img">{"".join(shapes)}</svg>'
    body = f"<h1>{name}</h1><p>{speed} {_LEGEND}</p>{drawing}"
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{body}</body></html>\n'


def _label(span: PipelineSpan) -> str:
    chunk = f".{span.step.chunk}" if span.step.chunk else ""
    return f"{span.step.kind.value}{span.step.microbatch}{chunk}"
