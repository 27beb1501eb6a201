"""Random job files: nothing is lost on the way there and back, and editors find nothing wrong."""

from __future__ import annotations

import json
import shlex
from datetime import datetime
from pathlib import Path

from hypothesis import given, settings, strategies as st

from pricing_data.units import DAY, NANOS_PER_DOLLAR, SECOND, to_micros
from spotctl.files.job import spec
from spotctl.files.job.data_places import overlap_problems
from spotctl.files.job.programs import Checkpoint, Command, Stop, Training
from spotctl.files.job.reader import loads, restored, written
from spotctl.files.job.resources import Needs, Reliable, Resources
from spotctl.files.job.spec import JobSpec, Range
from spotctl.files.job.values import Nodes, WorkTime
from tests.spotctl.files.job.test_forms_schema import EDITOR

# Every kind of value that a file can hold, drawn at random.
words = st.text(
    st.characters(categories=["L", "N", "P", "S"], max_codepoint=0xFFFF), min_size=1, max_size=12
)
texts = st.text(st.characters(categories=["L", "N", "P", "S", "Zs"]), max_size=20)
shell_lines = texts.filter(str.strip).map(shlex.quote)
names = st.from_regex(r"[a-z]([-a-z0-9]{0,48}[a-z0-9])?", fullmatch=True)
types = st.from_regex(r"[A-Za-z0-9._+-]{1,12}", fullmatch=True)
part_names = st.from_regex(r"[A-Za-z][-A-Za-z0-9_]{0,9}", fullmatch=True)
variables = st.from_regex(r"[A-RT-Z_][A-Z0-9_]{0,9}", fullmatch=True)
locations = st.one_of(
    st.from_regex(r"(s3|gs|az)://[a-z]{3,9}(/[a-z]{0,4})?", fullmatch=True),
    st.sampled_from(["/data", "/data/of me"]),
)
spans = st.integers(1, 10**9 - 1).map(lambda count: count * SECOND) | st.integers(1, 10**9)
shares = st.floats(0, 1, exclude_max=True)


@st.composite
def whole_ranges(draw: st.DrawFn, least: int) -> Range[int]:
    low = draw(st.integers(least, 10**6))
    return Range(low, draw(st.none() | st.integers(max(low, 1), 10**7)))


@st.composite
def decimal_ranges(draw: st.DrawFn) -> Range[float]:
    tenths = st.integers(0, 10**6).map(lambda count: count / 10)
    low = draw(tenths)
    return Range(
        low, draw(st.none() | tenths.map(lambda more: low + more).map(lambda high: round(high, 1)))
    )


models = st.from_regex(r"[A-Z][A-Z0-9-]{0,5}", fullmatch=True)
accelerators = st.lists(
    st.builds(spec.Accelerators, models, whole_ranges(1))
    | st.builds(spec.Accelerators, models | st.just(""), whole_ranges(1), decimal_ranges()),
    min_size=1,
    max_size=3,
    unique=True,
).map(tuple)
arguments = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**17), 10**17)
    | texts
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
stops = st.builds(
    Stop,
    clocks=st.none() | st.integers(1, 10**9),
    span=st.none() | st.integers(SECOND, 36_500 * DAY),
    loss=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    converged=st.none() | shares,
).filter(lambda stop: stop != Stop())
trainings = st.builds(
    Training, st.just("mf"), stops, st.fixed_dictionaries({}, optional={"rank": st.integers(1, 9)})
)
trainings |= st.builds(
    Training,
    st.just("installed_by.setup:Job"),
    stops,
    st.dictionaries(st.just("x") | st.just("y_2"), arguments),
)
commands = st.builds(
    Command,
    shell_lines,
    st.integers(1, 10_000).map(lambda number: Nodes(number, number)),
    st.none() | st.builds(Checkpoint, locations, st.none() | spans),
)
REGIONS = {
    "aws": ("us-east-1", "eu-west-1"),
    "gcp": ("us-central1",),
    "azure": ("eastus", "westeurope"),
}


@st.composite
def resources(draw: st.DrawFn, program: Training | Command) -> Resources:
    clouds = draw(
        st.just(("local",))
        | st.lists(st.sampled_from([*REGIONS]), min_size=1, unique=True).map(tuple)
    )
    regions = (
        ("sim-east",) if clouds == ("local",) else tuple(REGIONS[cloud][0] for cloud in clouds)
    )
    named = draw(st.booleans())
    counts: st.SearchStrategy[int | None] = st.integers(0, 10_000)
    if isinstance(program, Training) and clouds == ("local",):
        # Elsewhere, the number that is left out is another one.
        counts = st.none() | counts
    needs = st.builds(
        Needs, st.none() | whole_ranges(1), st.none() | decimal_ranges(), st.just(()) | accelerators
    )
    nodes = program.nodes if isinstance(program, Command) else None
    return Resources(
        clouds=clouds,
        machines=draw(whole_ranges(0)) if nodes is None else Range(nodes.least, nodes.most),
        reliable=Reliable(draw(counts), draw(st.none() | types)),
        types=tuple(draw(st.lists(types, max_size=3, unique=True))) if named else (),
        needs=Needs() if named else draw(needs),
        regions=draw(st.just(()) | st.just(regions)),
    )


@st.composite
def jobs(draw: st.DrawFn) -> JobSpec:
    program = draw(trainings | commands)
    rented = draw(resources(program))
    objective = draw(st.sampled_from(spec.Objective))
    deadlines = st.builds(spec.Within, spans) | st.builds(
        spec.ByClock, st.integers(0, 23), st.integers(0, 59)
    )
    budgets = st.integers(1, 10**9 * NANOS_PER_DOLLAR - 1)
    needs_due, needs_money = objective == "min-cost-slo", objective == "makespan-within-budget"
    return JobSpec(
        name=draw(names),
        program=program,
        resources=rented,
        workdir=Path.cwd(),
        setup=draw(shell_lines),
        env=draw(st.dictionaries(variables.map("E_".__add__), texts, max_size=3)),
        secrets=tuple(draw(st.lists(variables.map("T_".__add__), max_size=3, unique=True))),
        data=draw(
            st.dictionaries(part_names.map(str.lower), locations, max_size=2).filter(_told_apart)
        ),
        outputs=draw(
            st.dictionaries(
                st.just("model") if isinstance(program, Training) else part_names,
                locations,
                max_size=2,
            )
        ),
        objective=objective,
        deadline=draw(deadlines if needs_due else st.none() | deadlines),
        hours=draw(st.none() | st.builds(WorkTime, spans, st.none() | types)),
        budget=draw(budgets if needs_money else st.none() | budgets),
        throughputs={name: draw(st.floats(1e-6, 1e12)) for name in rented.types},
        strategy=draw(
            st.sampled_from(["auto", "price-capacity:3", "lookahead:0.0001", "lookahead:0"])
        ),
        notify=draw(
            st.builds(
                spec.Notify,
                st.none()
                | st.sampled_from(["https://example.com/hook?a=b", "http://127.0.0.1:8000/"]),
            )
        ),
        track=draw(
            st.sampled_from(
                [
                    {},
                    {"mlflow": ""},
                    {"mlflow": "http://127.0.0.1:5000", "wandb": ""},
                    {"wandb": "team/project"},
                ]
            )
        ),
        local=draw(locals_) if rented.clouds == ("local",) else spec.LocalMarket(),
    )


locals_ = st.builds(
    spec.LocalMarket,
    speed=st.floats(1, 1e6),
    seed=st.integers(0, 2**32 - 1),
    # UTC.
    start=st.none() | st.datetimes(datetime(2008, 1, 2), datetime(2099, 1, 1)).map(to_micros),  # noqa: DTZ001
    warning=spans,
    unwarned=shares,
)


def _told_apart(data: dict[str, str]) -> bool:
    return len({spec.data_variable(name) for name in data}) == len(data)


@settings(max_examples=60)
@given(jobs().filter(lambda job: not any(overlap_problems(job, None))))
def test_every_job_is_read_from_what_it_is_written_as(job: JobSpec) -> None:
    """Through the event log, through a file, and editors find nothing wrong with it."""
    kept = json.dumps(written(job), ensure_ascii=False, allow_nan=False)
    assert restored(json.loads(kept), Path("log")) == job
    assert loads(kept, Path("job.yaml")) == job
    EDITOR.validate(json.loads(kept))
