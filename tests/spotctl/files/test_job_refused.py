"""Wrong job files, each with the one line that it gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from spotctl.errors import BadRequest
from spotctl.files.job.reader import load, loads

TRAINING = """\
name: nightly
kind: agileml
app: mf
stop: {clocks: 200}
resources:
  clouds: [aws, gcp]
  types: [c6i.2xlarge, n2-standard-8]
  regions: [us-east-1, us-central1]
  machines: 4..64
"""
COMMAND = """\
name: nightly
kind: command
run: python train.py
resources:
  clouds: [aws]
"""
RANGE = "allowed is a number or a range such as 8, 4..64, 4.. or ..64"
DUE = "allowed is a span with its unit such as 90m, 10h or 2d, or a time of day from 00:00 to 23:59"
AMOUNT = "allowed is an amount above 0 such as 25 USD or 0.50 USD"

REPLACED = [
    # Keys.
    (
        "machines: 4..64",
        "machine: 4..64",
        "9: resources.machine: is no key there (did you mean machines?);"
        " allowed are clouds, types, regions, machines, reliable",
    ),
    # What is missing stands there misspelt.
    (
        "clouds: [aws, gcp]",
        "clods: [aws, gcp]",
        "6: resources.clods: is no key there (did you mean clouds?); allowed are",
    ),
    ("kind: agileml\n", "", "1: kind: is missing; write kind: agileml"),
    ("  machines: 4..64\n", "", "5: resources.machines: is missing; write machines: 4..64"),
    ("stop: {clocks: 200}\n", "", "1: stop: is missing; write stop: {clocks: 2000}"),
    # Types of values.
    (
        "clouds: [aws, gcp]",
        "clouds: aws",
        "6: resources.clouds: 'aws' is not a list; write clouds: [local]",
    ),
    ("stop: {clocks: 200}", "stop: 200", "4: stop: 200 is not a mapping; write stop: {clocks: 2000}"),
    (
        "clocks: 200",
        "clocks: '200'",
        "4: stop.clocks: '200' is not a whole number (it stands in quotes);"
        " allowed is a whole number from 1 to 1000000000",
    ),
    ("clocks: 200", "loss: .nan", "4: stop.loss: nan is not finite; allowed is a number"),
    ("clocks: 200", "minutes: 90m", "4: stop.minutes: '90m' is not a number; allowed is a number from 0.01"),
    # Ranges.
    ("4..64", "64..4", f"9: resources.machines: '64..4' ends below its beginning; {RANGE}"),
    ("4..64", "4-64", f"9: resources.machines: '4-64' is no number or range; {RANGE}"),
    ("4..64", "-4", f"9: resources.machines: -4 is below 0; {RANGE}"),
    ("4..64", "4.5", f"9: resources.machines: 4.5 is no number or range; {RANGE}"),
    ("4..64", "0", "9: resources.machines: 0 is none at all; allowed is a range such as 4..64"),
    (
        "[c6i.2xlarge, n2-standard-8]",
        "{memory_gib: 16GB..}",
        "7: resources.types.memory_gib: '16GB..' has a unit; allowed is a number or a range of GiB",
    ),
    (
        "[c6i.2xlarge, n2-standard-8]",
        "{vcpus: 0..8}",
        "7: resources.types.vcpus: '0..8' begins below 1; allowed is a number or a range such as 8, 4..16",
    ),
    (
        "[c6i.2xlarge, n2-standard-8]",
        "{accelerators: 4xV100}",
        "7: resources.types.accelerators: '4xV100' is no model with a number; allowed is a model, and how many: V100,",
    ),
    ("clocks: 200", "converged: 2", "4: stop.converged: 2 is outside; allowed is a share from 0 to below 1"),
    # Names.
    ("nightly", "Nightly Job", "1: name: 'Nightly Job' does not fit; allowed is up to 50 of a-z, 0-9 and -"),
    ("agileml", "agilml", "2: kind: 'agilml' is none of them (did you mean agileml?); allowed is agileml, command"),
    ("app: mf", "app: mff", "3: app: 'mff' is no built-in app (did you mean mf?); allowed are mf, mlr, "),
    (
        "[aws, gcp]",
        "[aws, ggp]",
        "6: resources.clouds.1: 'ggp' is none of them (did you mean gcp?); allowed is aws, gcp, azure, local",
    ),
    # What does not fit together.
    (
        "[aws, gcp]",
        "[aws, local]",
        "6: resources.clouds: local stands beside real clouds; allowed are [local], or any of aws, gcp, azure",
    ),
    ("us-central1", "mars", "8: resources.regions.1: 'mars' is no region of aws or gcp; allowed are their own"),
    (
        ", us-central1",
        "",
        "6: resources.clouds.1: gcp has none of the regions; allowed are clouds with a region there",
    ),
    (
        "[c6i.2xlarge, n2-standard-8]",
        "[c6i.2xlarge, c6i.2xlarge]",
        "7: resources.types.1: 'c6i.2xlarge' stands there 2 times; allowed is once",
    ),
    ("app: mf\n", "app: mf\nrun: ls\n", "4: run: does not go with kind: agileml; leave it out, or change kind"),
    ("{clocks: 200}", "{}", "4: stop: says nothing; allowed are clocks, minutes, loss, converged, or several of them"),
    # Code.
    ("app: mf", "app: nowhere_at_all:Job", "3: app: 'nowhere_at_all:Job': there is no module nowhere_at_all in "),
    ("app: mf", "app: trainer.py", "3: app: there is no file 'trainer.py' in "),
    ("app: mf", "app: mf\nargs: {rnk: 3}", "4: args: mf has no argument 'rnk'; it has rank, users, items,"),
    ("app: mf", "app: mf\nargs: {rank: 0}", "4: args: mf: rank is 0; it must be a whole number of at least 1"),
    # YAML.
    ("clouds: [aws, gcp]", "clouds: [aws, gcp", "7: is not YAML: while parsing a flow sequence, expected ',' or ']'"),
    (
        "app: mf",
        "app: mf\n\tx: 1",
        "4: is not YAML: while scanning for the next token, found character '\\t' that cannot start any token;"
        " indent with spaces",
    ),
]

ADDED = [
    ("name: again", "10: name: duplicate key, first on line 1; keep one"),
    ("deadlin: 10h", "10: deadlin: is no key (did you mean deadline?); spotctl schema lists all that are allowed"),
    ("regions: [x]", "10: regions: is no key at the top level; allowed is resources.regions"),
    (
        "  budget: 1 USD",
        "10: resources.budget: is no key there (it belongs at the top level); allowed are clouds, types,",
    ),
    ("deadline: 10", f"10: deadline: 10 has no unit; {DUE}"),
    ("deadline: 10 hours", f"10: deadline: '10 hours' has the unknown unit hours; {DUE}"),
    ("deadline: 0h", f"10: deadline: '0h' is 0, or longer than a hundred years; {DUE}"),
    ("deadline: 25:00", f"10: deadline: '25:00' is no time of day; {DUE}"),
    ("budget: 25", f"10: budget: 25 has no currency; {AMOUNT}"),
    ("budget: 25 EUR", f"10: budget: '25 EUR' is not in USD; {AMOUNT}"),
    ("budget: -1 USD", f"10: budget: '-1 USD' is no amount; {AMOUNT}"),
    ("budget: 0.0 USD", f"10: budget: '0.0 USD' is not above 0; {AMOUNT}"),
    (
        "objective: min-cost-slo",
        "10: objective: min-cost-slo without a deadline; write deadline: 10h, or objective: min-cost",
    ),
    (
        "objective: makespan-within-budget",
        "10: objective: makespan-within-budget without a budget; write budget: 25 USD, or objective: max-throughput",
    ),
    ("objective: cheap", "10: objective: 'cheap' is none of them; allowed is min-cost, max-throughput, min-cost-slo,"),
    ("strategy: proteous", "10: strategy: 'proteous' is none of them (did you mean proteus?); allowed is auto,"),
    ("strategy: fixed-bid", "10: strategy: 'fixed-bid' lacks its argument; allowed is auto, on-demand,"),
    ("strategy: lookahead:soon", "10: strategy: 'lookahead:soon' has an argument that does not fit; allowed is auto,"),
    ("strategy: bound", "10: strategy: 'bound' is none of them; allowed is auto, on-demand,"),
    ("env: [A]", "10: env: a list is not a mapping; write env: {LOG_LEVEL: info}"),
    ("env: {A: }", "10: env.A: is empty; allowed is a text (put numbers with a point in quotes),"),
    ("env: {A: 0.10}", "10: env.A: 0.1 may arrive written otherwise; allowed is a text (put numbers with a point in"),
    ("env: {2A: x}", "10: env.2A: '2A' does not fit; allowed is the name of an environment variable"),
    ("env: {SPOTCTL_RANK: x}", "10: env.SPOTCTL_RANK: 'SPOTCTL_RANK' begins with SPOTCTL_, which spotctl sets itself;"),
    ("secrets: [A, A]", "10: secrets.1: 'A' stands there 2 times; allowed is once"),
    ("env: {A: b}\nsecrets: [A]", "11: secrets.0: A stands in env, too; allowed is one of them"),
    ("data: {r: ftp://x/y}", "10: data.r: 'ftp://x/y' does not fit; allowed is a path, file:///PATH, s3://BUCKET/..."),
    ("data: {a-b: /x, a_b: /y}", "10: data.a_b: is $DATA_A_B like a-b; allowed is another name"),
    ("data: {a: /x}\nenv: {DATA_A: /y}", "10: data.a: is $DATA_A, which env or secrets set; allowed is another name"),
    ("image: {disk_gib: 2}", "10: image.disk_gib: 2 is too small; allowed is a whole number from 8 to 65536"),
    ("image: {ami: ubuntu}", "10: image.ami: 'ubuntu' does not fit; allowed is auto or an image's id such as ami-"),
    ("identity: {azure: me}", "10: identity.azure: is none of resources.clouds; allowed are aws, gcp"),
    ("notify: {webhook: 'http://example.com'}", "10: notify.webhook: 'http://example.com' does not fit; allowed is an"),
    ("local: {speed: 60}", "10: local: goes with clouds: [local], not [aws, gcp]; leave it out"),
    ("throughputs: {c5.large: 3}", "10: throughputs.c5.large: is none of resources.types; allowed are c6i.2xlarge, n2"),
    ("throughputs: {c6i.2xlarge: 0}", "10: throughputs.c6i.2xlarge: 0 is outside; allowed is a number above 0"),
    ("workdir: nowhere", "10: workdir: there is no folder "),
    ("1: x", "10: 1: is no key at the top level; allowed are name, kind, app,"),
    ("  reliable: {machines: 0}", "10: resources.reliable.machines: 0 are none; allowed is a number from 1, because"),
    ("args: &all {x: *all}", "10: refers to itself through aliases; write it out without them"),
    ("deadlin: 10h\nbudget: 1", "10: deadlin: is no key (did you mean deadline?); spotctl schema lists all that are"),
]

OF_COMMANDS = [
    ("run: python train.py\n", "", "1: run: is missing; write run: torchrun train.py --resume"),
    ("kind: command", "kind: command\nstop: {clocks: 3}", "3: stop: does not go with kind: command; leave it out, or"),
    ("kind: command", "kind: command\nnodes: 0", "3: nodes: 0 is too small; allowed is a whole number from 1 to 10000"),
    ("[aws]", "[aws]\n  machines: 4..64", "6: resources.machines: 4..64 is not its nodes; allowed is 1, or leave it"),
    ("kind: command", "kind: command\ncheckpoint: {every: 15m}", "3: checkpoint.path: is missing; write path: 's3://"),
    (
        "kind: command",
        "kind: command\ncheckpoint: {path: ckpt, every: often}",
        "3: checkpoint.every: 'often' is no span of time; allowed is auto, or a number with a unit: 90s, 15m, 10h",
    ),
    ("kind: command", "kind: command\nhours: 8", "3: hours: 8 has no unit; allowed is a number with a unit: 90s, 15m,"),
    ("kind: command", "kind: command\nhours: 0h", "3: hours: '0h' is 0, or longer than a hundred years; allowed is a"),
    (
        "kind: command",
        "kind: command\ncheckpoint: {path: file://host/ckpt}",
        "3: checkpoint.path: 'file://host/ckpt' does not fit; allowed is a path, file:///PATH, s3://BUCKET/..., gs://",
    ),
    (
        "kind: command",
        "kind: command\noutputs: {a-b: /x, a_b: /y}",
        "3: outputs.a_b: is $OUTPUT_A_B like a-b; allowed is another name",
    ),
    (
        "kind: command",
        "kind: command\noutputs: {a: /x}\nsecrets: [OUTPUT_A]",
        "3: outputs.a: is $OUTPUT_A, which env or secrets set; allowed is another name",
    ),
]

WHOLE = [
    ("", "1: the file is empty; write a job (spotctl init makes a file to begin with)"),
    ("# nothing\n", "1: the file is empty; write a job"),
    ("- a\n- b\n", "1: the file: a list is no job; write keys with values (spotctl init makes"),
    ("name: a\n---\nname: b\n", "2: is not YAML: expected a single document in the stream, but found another"),
    ("a: !!python/object:os.system x\n", "1: is not YAML: could not determine a constructor for the tag"),
    ("a: \x07", "1: is not YAML: the character '\\x07'; delete it"),
]

CASES = [
    *((TRAINING.replace(old, new, 1), message) for old, new, message in REPLACED),
    *((f"{TRAINING}{line}\n", message) for line, message in ADDED),
    *((COMMAND.replace(old, new, 1), message) for old, new, message in OF_COMMANDS),
    *WHOLE,
]


@pytest.mark.parametrize(("text", "message"), CASES, ids=[message[:60] for _, message in CASES])
def test_a_wrong_file_is_refused_in_one_line_with_its_place_and_cure(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(text)
    with pytest.raises(BadRequest) as refused:
        load(tmp_path / "job.yaml")
    said = str(refused.value)
    assert said.startswith(f"{tmp_path / 'job.yaml'}:{message}")
    assert "\n" not in said
    assert "; " in said or "is not YAML" in said


def test_the_files_that_are_broken_are_whole_before() -> None:
    for text in (TRAINING, COMMAND):
        loads(text, Path("job.yaml"))


def test_further_mistakes_are_counted() -> None:
    with pytest.raises(BadRequest, match=r"^job.yaml:1: name: .* \(and 2 more\)$"):
        loads(TRAINING.replace("nightly", "N").replace("4..64", "64..4").replace("200", "0"), Path("job.yaml"))


def test_what_stands_in_the_place_of_a_secrets_name_is_never_shown() -> None:
    for written in (
        "HF_TOKEN=hunter2",
        "{HF_TOKEN: hunter2}",
        "[HF_TOKEN=hunter2]",
        "[{HF_TOKEN: hunter2}]",
        "[12345]",
    ):
        with pytest.raises(BadRequest, match="secrets") as refused:
            loads(f"{TRAINING}secrets: {written}\n", Path("job.yaml"))
        assert "hunter2" not in str(refused.value)
        assert "12345" not in str(refused.value)


def test_a_file_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="cannot be read: No such file or directory"):
        load(tmp_path / "none.yaml")
    with pytest.raises(BadRequest, match="cannot be read: Is a directory"):
        load(tmp_path)
    (tmp_path / "latin.yaml").write_bytes("name: café".encode("latin-1"))
    with pytest.raises(BadRequest, match="is not UTF-8 text"):
        load(tmp_path / "latin.yaml")
    (tmp_path / "deep.yaml").write_text("[" * 5000)
    with pytest.raises(BadRequest, match="is nested deeper than 50 levels"):
        load(tmp_path / "deep.yaml")


class TestApps:
    """An app is looked for without running a line of it."""

    @staticmethod
    def loaded(folder: Path, app: str, more: str = "") -> str:
        try:
            loads(TRAINING.replace("app: mf", f"app: {app}") + more, folder / "job.yaml")
        except BadRequest as refused:
            return str(refused).partition(": app: ")[2]
        return ""

    def test_a_module_of_the_workdir_is_read_but_not_run(self, tmp_path: Path) -> None:
        (tmp_path / "apps").mkdir()
        code = "raise SystemExit('was run')\nclass Recsys: ...\nif True:\n    from x import Other as Named\nmade = 1\n"
        (tmp_path / "apps" / "recsys.py").write_text(code)
        for name in ("Recsys", "Named", "made"):
            assert self.loaded(tmp_path, f"apps.recsys:{name}") == ""
        where = tmp_path / "apps" / "recsys.py"
        assert self.loaded(tmp_path, "apps.recsys:Recys") == (
            f"{where} defines no Recys (did you mean Recsys?); allowed is a class or function of that file"
        )

    def test_a_package_may_define_it_and_a_star_may_bring_anything(self, tmp_path: Path) -> None:
        (tmp_path / "apps").mkdir()
        (tmp_path / "apps" / "__init__.py").write_text("from .more import *\n")
        assert self.loaded(tmp_path, "apps:Anything") == ""

    def test_code_that_is_not_python_is_named_with_its_line(self, tmp_path: Path) -> None:
        (tmp_path / "recsys.py").write_text("\nclass Recsys(:\n")
        assert self.loaded(tmp_path, "recsys:Recsys").startswith(f"{tmp_path / 'recsys.py'}, line 2 is not Python: ")

    def test_what_is_installed_or_will_be_by_setup_is_left_to_the_run(self, tmp_path: Path) -> None:
        assert self.loaded(tmp_path, "numpy.nowhere:Thing") == ""
        assert self.loaded(tmp_path, "not_yet_there:Thing", "setup: pip install not-yet-there\n") == ""
        assert self.loaded(tmp_path, "not_yet_there:Thing").startswith("'not_yet_there:Thing': there is no module")

    def test_it_is_looked_for_in_workdir(self, tmp_path: Path) -> None:
        (tmp_path / "src").mkdir()
        (tmp_path / "src" / "trainer.py").write_text("class T: ...\n")
        assert self.loaded(tmp_path, "trainer.py", "workdir: src\n") == ""
        assert self.loaded(tmp_path, "trainer:T", "workdir: src\n") == ""
        assert self.loaded(tmp_path, "trainer.py") != ""
