"""A simulated run as a picture: one HTML page, or a trace for the browser's own trace viewer."""

import json
from html import escape

from agileml.pipeline.schedule.schedules import Pass
from agileml.pipeline.schedule.simulator import PipelineRun, PipelineSpan

_COLORS = {Pass.FORWARD: "#4c78a8", Pass.BACKWARD: "#72b7b2", Pass.UPDATE: "#e45756"}
_ROW, _GAP, _LEFT, _WIDTH = 26, 6, 90, 1400
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
    rows = {key: i for i, key in enumerate(sorted({(span.stage, span.replica) for span in run.spans}))}
    scale = (_WIDTH - _LEFT) / run.seconds
    height = len(rows) * (_ROW + _GAP) + _GAP
    shapes = [
        f'<text x="4" y="{_GAP + row * (_ROW + _GAP) + 17}">{stage + 1}.{replica + 1}</text>'
        for (stage, replica), row in rows.items()
    ]
    shapes += [_box(span, rows[span.stage, span.replica], scale) for span in run.spans]
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title><style>'
        "body{font:14px sans-serif;margin:16px}text{font-size:12px}.label{fill:#fff;pointer-events:none}</style></head>"
        f"<body><h1>{escape(title)}</h1><p>{run.seconds:.4g} s, {run.idle:.1%} idle. Rows: stage.replica."
        " Blue: forward, green: backward, red: update. Numbers are microbatches, from 0.</p>"
        f'<svg width="{_WIDTH}" height="{height}" role="img">{"".join(shapes)}</svg></body></html>\n'
    )


def _label(span: PipelineSpan) -> str:
    chunk = f".{span.step.chunk}" if span.step.chunk else ""
    return f"{span.step.kind.value}{span.step.microbatch}{chunk}"


def _box(span: PipelineSpan, row: int, scale: float) -> str:
    x, width = _LEFT + span.start * scale, max((span.end - span.start) * scale, 0.5)
    y = _GAP + row * (_ROW + _GAP)
    label = f'<text class="label" x="{x + 2:.2f}" y="{y + 17}">{span.step.microbatch}</text>' if width > 16 else ""
    return (
        f'<rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="{_ROW}" fill="{_COLORS[span.step.kind]}"'
        f' stroke="#fff"><title>{_label(span)}: {span.start:.6g} to {span.end:.6g} s</title></rect>{label}'
    )
