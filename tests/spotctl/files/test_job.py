"""Job files that are right: what they mean, that nothing is lost on the way there and back, and what editors know."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bidbrain.strategies import names as strategies
from pricing_data.units import DAY, HOUR, MINUTE, NANOS_PER_DOLLAR, SECOND, parse_time, to_micros
from spotctl.files.job import spec
from spotctl.files.job.conversions import STRATEGIES
from spotctl.files.job.programs import Checkpoint, Command, Stop, Training
from spotctl.files.job.reader import load, loads, restored, written
from spotctl.files.job.resources import Needs, Reliable, Resources
from spotctl.files.job.schema import schema
from spotctl.files.job.spec import JobSpec, Range
from spotctl.files.job.values import Nodes
from spotctl.files.yaml_file import parse
from tests.spotctl.cli import spotctl
from tests.spotctl.files.test_job_refused import CASES, COMMAND, TRAINING

ROOT = Path(__file__).parents[3]
EVERYTHING = """\
name: nightly-recsys
kind: agileml                      # or: command
app: apps.recsys:Recsys
args: {rank: 64, start: null}
setup: pip install -r requirements.txt
workdir: code
env: {LOG_LEVEL: info, WORKERS: 4, DEBUG: True, SWITCH: no, AT: 06:00, SHARE: 1.0, MASK: 0x10, DAY: 2026-01-20}
secrets: [HF_TOKEN]
data: {ratings: s3://bucket/ratings/, more: more}
outputs: {model: s3://bucket/models/recsys/}
stop: {clocks: 2000, minutes: 2.01, loss: 0.15, converged: 0.02}
resources:
  clouds: [aws, azure]
  types: {vcpus: 8.., memory_gib: 7.5..64, accelerators: "V100:1.."}
  regions: [us-east-1, East US]
  machines: 4..64
  reliable: {machines: 2, type: c6i.large}
objective: min-cost-slo
deadline: 10h
budget: 25.50 USD
throughputs: {c6i.2xlarge: 410}
strategy: lookahead:12.5
notify: {webhook: https://example.com/hook}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "code").mkdir()
    return tmp_path


def test_a_file_with_everything_means_what_it_says(folder: Path) -> None:
    (folder / "job.yaml").write_text(EVERYTHING)
    assert load(folder / "job.yaml") == JobSpec(
        name="nightly-recsys",
        program=Training("apps.recsys:Recsys", Stop(2000, 120_600_000, 0.15, 0.02), {"rank": 64, "start": None}),
        resources=Resources(
            clouds=("aws", "azure"),
            machines=Range(4, 64),
            reliable=Reliable(2, "c6i.large"),
            needs=Needs(Range(8), Range(7.5, 64.0), spec.Accelerators("V100", Range(1))),
            regions=("us-east-1", "eastus"),
        ),
        workdir=folder / "code",
        setup="pip install -r requirements.txt",
        env={
            "LOG_LEVEL": "info",
            "WORKERS": "4",
            "DEBUG": "True",
            "SWITCH": "no",
            "AT": "06:00",
            "SHARE": "1.0",
            "MASK": "0x10",
            "DAY": "2026-01-20",
        },
        secrets=("HF_TOKEN",),
        data={"ratings": "s3://bucket/ratings/", "more": str(folder / "more")},
        outputs={"model": "s3://bucket/models/recsys/"},
        objective=spec.Objective.MIN_COST_SLO,
        deadline=spec.Within(10 * HOUR),
        budget=25_500_000_000,
        throughputs={"c6i.2xlarge": 410.0},
        strategy="lookahead:12.5",
        notify=spec.Notify("https://example.com/hook"),
    )


def test_what_a_command_leaves_out_is_filled_in(tmp_path: Path) -> None:
    found = loads(COMMAND, tmp_path / "job.yaml")
    assert found == JobSpec(
        name="nightly",
        program=Command("python train.py", Nodes(1, 1), None),
        resources=Resources(("aws",), Range(1, 1), Reliable(0)),
        workdir=tmp_path.resolve(),
    )
    assert (found.kind, found.is_local) == (spec.ProgramKind.COMMAND, False)


def test_a_gang_has_as_many_machines_as_nodes_and_a_checkpoint_relative_to_the_file(tmp_path: Path) -> None:
    more = "nodes: 3\ncheckpoint: {path: ckpt, every: 15m}\n"
    found = loads(COMMAND + more, tmp_path / "job.yaml")
    assert found.program == Command("python train.py", Nodes(3, 3), Checkpoint(str(tmp_path / "ckpt"), 15 * MINUTE))
    assert found.resources.machines == Range(3, 3)
    changing = loads(COMMAND + more.replace("3", "2..4"), tmp_path / "job.yaml")
    assert isinstance(changing.program, Command)
    assert (changing.program.nodes, changing.resources.machines) == (Nodes(2, 4), Range(2, 4))
    assert restored(written(changing), Path("log")) == changing
    assert (written(changing)["nodes"], written(found)["nodes"]) == ("2..4", 3)
    by_itself = loads(COMMAND + more.replace("15m", "auto"), tmp_path / "job.yaml").program
    assert isinstance(by_itself, Command)
    assert by_itself.checkpoint == Checkpoint(str(tmp_path / "ckpt"), None)


def test_a_local_place_may_be_a_file_url_and_work_be_given_in_hours(tmp_path: Path) -> None:
    more = "checkpoint: {path: 'file:///my%20disk/ckpt'}\noutputs: {model: out}\nhours: 90m\n"
    found = loads(COMMAND + more, tmp_path / "job.yaml")
    assert found.program == Command("python train.py", Nodes(1, 1), Checkpoint("/my disk/ckpt"))
    assert (found.outputs, found.hours) == ({"model": str(tmp_path / "out")}, 90 * MINUTE)


def test_keys_with_nothing_behind_them_are_as_if_left_out() -> None:
    empty = "env:\nsecrets:\nimage:\nidentity:\nlocal:\ndeadline:\nsetup:\n"
    assert loads(TRAINING + empty, Path("job.yaml")) == loads(TRAINING, Path("job.yaml"))


def test_anchors_and_merged_keys_are_read(tmp_path: Path) -> None:
    text = "env: &shared {A: 1, B: 2}\n" + TRAINING.replace("{clocks: 200}", "{clocks: 7}")
    assert loads(text, tmp_path / "job.yaml").env == {"A": "1", "B": "2"}
    merged = COMMAND + "env: {<<: {A: 1, B: 2}, B: 3}\n"
    assert loads(merged, tmp_path / "job.yaml").env == {"A": "1", "B": "3"}


@pytest.mark.parametrize(
    ("range_", "inside", "outside"),
    [(Range(4, 64), (4, 20, 64), (3, 65)), (Range(8), (8, 10**6), (7,)), (Range(2.5, 2.5), (2.5,), (2.4, 3))],
)
def test_a_range_holds_both_its_ends(
    range_: Range[int] | Range[float], inside: tuple[float, ...], outside: tuple[float, ...]
) -> None:
    assert all(value in range_ for value in inside)
    assert not any(value in range_ for value in outside)


BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("due", "zone", "now", "moment"),
    [
        (spec.Within(90 * MINUTE), UTC, "2026-01-20T23:00:00Z", "2026-01-21T00:30:00Z"),
        (spec.ByClock(6, 0), UTC, "2026-01-20T05:59:59Z", "2026-01-20T06:00:00Z"),
        # At the very moment it is too late for today.
        (spec.ByClock(6, 0), UTC, "2026-01-20T06:00:00Z", "2026-01-21T06:00:00Z"),
        (spec.ByClock(6, 0), timezone(timedelta(hours=9)), "2026-01-20T20:00:00Z", "2026-01-20T21:00:00Z"),
        # The night of a change of time has 23 or 25 hours.
        (spec.ByClock(6, 0), BERLIN, "2026-03-28T12:00:00Z", "2026-03-29T04:00:00Z"),
        (spec.ByClock(6, 0), BERLIN, "2026-10-24T12:00:00Z", "2026-10-25T05:00:00Z"),
    ],
)
def test_a_deadline_is_the_next_such_moment(
    due: spec.Within | spec.ByClock, zone: tzinfo, now: str, moment: str
) -> None:
    assert due.moment(parse_time(now), zone) == parse_time(moment)


def test_every_strategy_of_bidbrain_may_be_named_and_no_other() -> None:
    drawn = [name for name in STRATEGIES if name not in (spec.AUTO, strategies.REGIONS)]
    named = {name: "fixed-bid:0.001" if name == "fixed-bid" else name for name in drawn}
    assert all(strategies.known(name) for name in named.values())
    for name in named.values():
        assert loads(f"{TRAINING}strategy: {name}\n", Path("job.yaml")).strategy == name


# Every kind of value that a file can hold, drawn at random.
words = st.text(st.characters(categories=["L", "N", "P", "S"], max_codepoint=0xFFFF), min_size=1, max_size=12)
texts = st.text(st.characters(categories=["L", "N", "P", "S", "Zs"]), max_size=20)
lines = texts.filter(str.strip)
names = st.from_regex(r"[a-z]([-a-z0-9]{0,48}[a-z0-9])?", fullmatch=True)
types = st.from_regex(r"[A-Za-z0-9._+-]{1,12}", fullmatch=True)
part_names = st.from_regex(r"[A-Za-z][-A-Za-z0-9_]{0,9}", fullmatch=True)
variables = st.from_regex(r"[A-RT-Z_][A-Z0-9_]{0,9}", fullmatch=True)
locations = st.one_of(
    st.from_regex(r"(s3|gs|az)://[a-z]{3,9}(/[a-z]{0,4})?", fullmatch=True), st.sampled_from(["/data", "/data/of me"])
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
    return Range(low, draw(st.none() | tenths.map(lambda more: low + more).map(lambda high: round(high, 1))))


accelerators = st.builds(spec.Accelerators, st.from_regex(r"[A-Z][A-Z0-9-]{0,5}", fullmatch=True), whole_ranges(1))
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
trainings = st.builds(Training, st.just("mf"), stops, st.fixed_dictionaries({}, optional={"rank": st.integers(1, 9)}))
trainings |= st.builds(
    Training,
    st.just("installed_by.setup:Job"),
    stops,
    st.dictionaries(st.just("x") | st.just("y_2"), arguments),
)
commands = st.builds(
    Command,
    lines,
    st.integers(1, 10_000).map(lambda number: Nodes(number, number)),
    st.none() | st.builds(Checkpoint, locations, st.none() | spans),
)
REGIONS = {"aws": ("us-east-1", "eu-west-1"), "gcp": ("us-central1",), "azure": ("eastus", "westeurope")}


@st.composite
def resources(draw: st.DrawFn, program: Training | Command) -> Resources:
    clouds = draw(st.just(("local",)) | st.lists(st.sampled_from([*REGIONS]), min_size=1, unique=True).map(tuple))
    regions = ("sim-east",) if clouds == ("local",) else tuple(REGIONS[cloud][0] for cloud in clouds)
    named = draw(st.booleans())
    least = 1 if isinstance(program, Training) else 0
    needs = st.builds(Needs, st.none() | whole_ranges(1), st.none() | decimal_ranges(), st.none() | accelerators)
    nodes = program.nodes if isinstance(program, Command) else None
    return Resources(
        clouds=clouds,
        machines=draw(whole_ranges(0)) if nodes is None else Range(nodes.least, nodes.most),
        reliable=Reliable(draw(st.integers(least, 10_000)), draw(st.none() | types)),
        types=tuple(draw(st.lists(types, max_size=3, unique=True))) if named else (),
        needs=Needs() if named else draw(needs),
        regions=draw(st.just(()) | st.just(regions)),
    )


@st.composite
def jobs(draw: st.DrawFn) -> JobSpec:
    program = draw(trainings | commands)
    rented = draw(resources(program))
    objective = draw(st.sampled_from(spec.Objective))
    deadlines = st.builds(spec.Within, spans) | st.builds(spec.ByClock, st.integers(0, 23), st.integers(0, 59))
    budgets = st.integers(1, 10**9 * NANOS_PER_DOLLAR - 1)
    needs_due, needs_money = objective == "min-cost-slo", objective == "makespan-within-budget"
    return JobSpec(
        name=draw(names),
        program=program,
        resources=rented,
        workdir=Path.cwd(),
        setup=draw(lines),
        env=draw(st.dictionaries(variables.map("E_".__add__), texts, max_size=3)),
        secrets=tuple(draw(st.lists(variables.map("T_".__add__), max_size=3, unique=True))),
        data=draw(st.dictionaries(part_names.map(str.lower), locations, max_size=2).filter(_told_apart)),
        outputs=draw(
            st.dictionaries(st.just("model") if isinstance(program, Training) else part_names, locations, max_size=2)
        ),
        objective=objective,
        deadline=draw(deadlines if needs_due else st.none() | deadlines),
        hours=draw(st.none() | spans),
        budget=draw(budgets if needs_money else st.none() | budgets),
        throughputs={name: draw(st.floats(0, exclude_min=True, allow_infinity=False)) for name in rented.types},
        strategy=draw(st.sampled_from(["auto", "price-capacity:3", "fixed-bid:0.0001", "lookahead:0"])),
        notify=draw(
            st.builds(
                spec.Notify, st.none() | st.sampled_from(["https://example.com/hook?a=b", "http://127.0.0.1:8000/"])
            )
        ),
        local=draw(locals_) if rented.clouds == ("local",) else spec.LocalMarket(),
    )


locals_ = st.builds(
    spec.LocalMarket,
    speed=st.floats(1, 1e6),
    seed=st.integers(0, 2**32 - 1),
    start=st.none() | st.datetimes(datetime(2008, 1, 2), datetime(2099, 1, 1)).map(to_micros),  # noqa: DTZ001 - UTC
    warning=spans,
    unwarned=shares,
)


def _told_apart(data: dict[str, str]) -> bool:
    return len({spec.data_variable(name) for name in data}) == len(data)


EDITOR = jsonschema.Draft202012Validator(schema())


@settings(max_examples=60)
@given(jobs())
def test_every_job_is_read_from_what_it_is_written_as(job: JobSpec) -> None:
    """Through the event log, through a file, and editors find nothing wrong with it."""
    kept = json.dumps(written(job), ensure_ascii=False, allow_nan=False)
    assert restored(json.loads(kept), Path("log")) == job
    assert loads(kept, Path("job.yaml")) == job
    EDITOR.validate(json.loads(kept))


def test_a_restored_job_needs_no_code_any_more(folder: Path) -> None:
    job = loads(EVERYTHING, folder / "job.yaml")
    (folder / "code").rmdir()
    assert restored(written(job), Path("log")) == job


def test_the_schema_is_one_and_explains_every_key() -> None:
    found = spotctl("schema").json
    jsonschema.Draft202012Validator.check_schema(found)
    assert found == schema()
    parts = [found, *found["$defs"].values()]
    assert len(parts) == 11
    for part in parts:
        assert part["description"]
        assert part["additionalProperties"] is False
        for key, value in part["properties"].items():
            assert value["description"], key
            assert value["examples"], key
            for example in value["examples"]:
                jsonschema.Draft202012Validator({**value, "$defs": found["$defs"]}).validate(example)


# What no schema can say: that numbers are in order, that files are there, that names fit each other.
BEYOND_SCHEMAS = (
    "not finite",
    "ends below",
    "allows no machine",
    "begins below",
    "not a built-in",
    "there is no ",
    "mf has no",
    "rank is 0",
    "real clouds",
    "not a region of",
    "none of the regions",
    "or longer than",
    "not above 0",
    "is also in env",
    "as a-b does",
    "as env or secrets do",
    "matches none of",
    "is for clouds",
    "is not one of clouds",
    "is 0; expected at least 1",
    "contradicts nodes",
    "is never written",
    "needs a checkpoint, from which",
)


# A parser takes the last of two keys that are the same, so that no schema sees both.
PARSED = [
    case for case in CASES if "not YAML" not in case[1] and "duplicate key" not in case[1] and "aliases" not in case[1]
]


@pytest.mark.parametrize(("text", "message"), PARSED, ids=[message[:60] for _, message in PARSED])
def test_editors_refuse_what_is_refused_wherever_a_schema_can_say_it(text: str, message: str) -> None:
    refused = not EDITOR.is_valid(parse(text, Path("job.yaml")).content)
    assert refused is not any(words in message for words in BEYOND_SCHEMAS)


def documented() -> Iterator[tuple[str, str]]:
    """Job files of the documents and of the examples."""
    for page in (ROOT / "README.md", *ROOT.glob("docs/**/*.md")):
        for found in re.finditer(r"^```ya?ml\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
            yield f"{page.name}:{page.read_text().count(chr(10), 0, found.start()) + 1}", found[1]
    for file in ROOT.glob("examples/**/*.yaml"):
        yield file.name, file.read_text()
    yield "starter_job.yaml", (ROOT / "spotctl" / "files" / "job" / "starter_job.yaml").read_text()


def jobs_documented() -> Iterator[tuple[str, Any]]:
    for name, text in documented():
        content = parse(text, Path(name)).content
        if isinstance(content, dict) and "kind" in content:
            yield name, content


@pytest.mark.parametrize(("name", "content"), [pytest.param(*job, id=job[0]) for job in jobs_documented()])
def test_every_job_that_is_shown_is_right(name: str, content: Any) -> None:  # noqa: ANN401 - whatever YAML holds
    restored(content, Path(name))
    EDITOR.validate(content)


class TestInit:
    """`spotctl init`."""

    def test_it_writes_a_file_that_is_right_as_it_is(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        ended = spotctl("init")
        assert (ended.code, ended.out) == (0, "")
        assert ended.err == "wrote job.yaml; next: spotctl plan job.yaml, then spotctl launch job.yaml\n"
        assert load(tmp_path / "job.yaml").is_local
        assert [file.name for file in tmp_path.iterdir() if file.is_file()] == ["job.yaml"]

    def test_its_comments_are_right_too(self, tmp_path: Path) -> None:
        """Each commented key may be uncommented; those of a command take the place of a trainer's."""
        text = (ROOT / "spotctl" / "files" / "job" / "starter_job.yaml").read_text()
        told = re.sub(r"^( *)# (\w+: (?!job for).*)$", r"\1\2", text, flags=re.MULTILINE)
        told = re.sub(r"^  types: \[.*\n", "", told, flags=re.MULTILINE)
        told = told.replace("clouds: [local]", "clouds: [aws, gcp]").partition("\nlocal:")[0] + "\n"
        trainer = re.sub(r"^(run|nodes|checkpoint):.*\n", "", told, flags=re.MULTILINE)
        command = re.sub(r"^(app|args|stop):.*\n|^  machines:.*\n", "", told, flags=re.MULTILINE)
        command = command.replace("kind: agileml", "kind: command")
        assert loads(trainer, tmp_path / "job.yaml").setup == "pip install -r requirements.txt"
        assert loads(command, tmp_path / "job.yaml").resources.machines == Range(2, 2)

    def test_it_never_writes_over_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "job.yaml").write_text("mine")
        ended = spotctl("init", tmp_path / "job.yaml")
        assert (ended.code, ended.out) == (2, "")
        assert "job.yaml: already exists; name another file, or delete it first" in ended.error
        assert (tmp_path / "job.yaml").read_text() == "mine"
        assert [file.name for file in tmp_path.iterdir() if file.is_file()] == ["job.yaml"]

    @pytest.mark.parametrize(("where", "why"), [("none/job.yaml", "there is no folder"), (".", "is a folder")])
    def test_a_place_where_it_cannot_be_is_refused(self, tmp_path: Path, where: str, why: str) -> None:
        ended = spotctl("init", tmp_path / where)
        assert ended.code == 2
        assert why in ended.error

    def test_it_answers_in_json(self, tmp_path: Path) -> None:
        assert spotctl("init", tmp_path / "a.yaml", "--json").json == {"file": str(tmp_path / "a.yaml")}
