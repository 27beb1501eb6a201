"""Wrong job files, each with the line that it gets."""

from __future__ import annotations

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

REPLACED = [
    *(
        (
            "app: mf",
            f"app: mf\nstragglers: {{backup_workers: {written}}}",
            f"4: stragglers.backup_workers: {shown} is no choice any more; write auto: clocks end "
            "without",
        )
        for written, shown in (("true", "True"), ("2", "2"), ("0", "0"))
    ),
    (
        "machines: 4..64",
        "machine: 4..64",
        "9: resources.machine: unknown key (did you mean machines?); expected one of clouds, "
        "machines, reliab",
    ),
    (
        "clouds: [aws, gcp]",
        "clods: [aws, gcp]",
        "6: resources.clods: unknown key (did you mean clouds?); expected one of clouds, machines, "
        "reliable, ",
    ),
    (
        "machines: 4..64",
        "machines: 4..64\n  accelerators: V100:8",
        "10: resources.accelerators: is another spelling of resources.types.accelerators, and "
        "resources.types is",
    ),
    (
        "types: [c6i.2xlarge, n2-standard-8]",
        "gpu: V100:8\n  accelerators: V100:8",
        "7: resources.gpu: is another spelling of resources.types.accelerators, and "
        "resources.accelerators is",
    ),
    (
        "types: [c6i.2xlarge, n2-standard-8]",
        "gpu: 'V100:'",
        "7: resources.gpu: 'V100:' names no model or memory; expected a model or a "
        "memory, and how many: V100, ",
    ),
    (
        "machines: 4..64",
        "machines: 4..64\nnum_nodes: 2",
        "10: num_nodes: is not allowed with kind: agileml",
    ),
    (
        "machines: 4..64",
        "machines: 4..64\n  vcpus: 8..",
        "10: resources.vcpus: unknown key (it belongs below types, as in types: {vcpus: ...}); "
        "expe",
    ),
    ("kind: agileml\napp: mf\n", "", "1: kind: is missing; write kind: agileml"),
    ("kind: agileml\n", "run: python train.py\n", "1: kind: is missing; write kind: agileml"),
    (
        "kind: agileml\napp: mf\nstop: {clocks: 200}\n",
        "run: echo\n",
        "7: resources.machines: 4..64 contradicts nodes: 1",
    ),
    ("kind: agileml\n", "retries: {setup: 2}\n", "2: retries: is not allowed with kind: agileml"),
    ("  machines: 4..64\n", "", "5: resources.machines: is missing; write machines: 4..64"),
    ("stop: {clocks: 200}\n", "", "1: stop: is missing; write stop: {clocks: 2000}"),
    (
        "clouds: [aws, gcp]",
        "clouds: aws",
        "6: resources.clouds: expected a list, found 'aws'; write clouds: [local]",
    ),
    (
        "stop: {clocks: 200}",
        "stop: 200",
        "4: stop: expected a mapping, found 200; write stop: {clocks: 2000}",
    ),
    (
        "clocks: 200",
        "clocks: '200'",
        "4: stop.clocks: '200' is not a whole number (remove the quotes); expected a whole number "
        "from 1 to 1",
    ),
    ("clocks: 200", "loss: .nan", "4: stop.loss: nan is not finite; expected a number"),
    (
        "clocks: 200",
        "minutes: 90m",
        "4: stop.minutes: '90m' is not a number; expected a number from 0.01 to 1000000000",
    ),
    (
        "4..64",
        "64..4",
        "9: resources.machines: '64..4' ends below its beginning; expected a number or a range "
        "such as 8, 4..",
    ),
    (
        "4..64",
        "4-64",
        "9: resources.machines: '4-64' is not a number or range; expected a number or a range such "
        "as 8, 4..6",
    ),
    (
        "4..64",
        "-4",
        "9: resources.machines: -4 is below 0; expected a number or a range such as 8, 4..64, 4.. "
        "or ..64",
    ),
    (
        "4..64",
        "4.5",
        "9: resources.machines: 4.5 is not a number or range; expected a number or a range such as "
        "8, 4..64, ",
    ),
    ("4..64", "0", "9: resources.machines: 0 allows no machine; expected a range such as 4..64"),
    (
        "[c6i.2xlarge, n2-standard-8]",
        "{memory_gib: 16GB..}",
        "7: resources.types.memory_gib: '16GB..' has a unit; expected a number or a range of GiB "
        "such as 16, ",
    ),
    (
        "machines: 4..64",
        "machines: 4..64\n  memory: 4",
        "10: resources.memory: 4 has no unit; expected an amount of memory with its unit: 4 GiB, "
        "7.5 GiB or 512 MiB",
    ),
    (
        "machines: 4..64",
        "machines: 4..64\n  memory: 4 GB",
        "10: resources.memory: '4 GB' is not an amount of memory; expected an amount of memory "
        "with its unit: 4 GiB",
    ),
    (
        "machines: 4..64",
        "machines: 4..64\n  arch: arm",
        "10: resources.arch: unknown value 'arm' (did you mean arm64?); expected one of x86_64, "
        "arm64, any",
    ),
    (
        "machines: 4..64",
        "machines: 4..64\n  burstable: maybe",
        "10: resources.burstable: 'maybe' is neither true nor false; expected true or false",
    ),
    (
        "[c6i.2xlarge, n2-standard-8]",
        "{vcpus: 0..8}",
        "7: resources.types.vcpus: '0..8' begins below 1; expected a number or a range such as 8, "
        "4..16, 8.. ",
    ),
    (
        "[c6i.2xlarge, n2-standard-8]",
        "{accelerators: 4xV100}",
        "7: resources.types.accelerators: '4xV100' names no model or memory; expected a "
        "model or a memory, and how man",
    ),
    (
        "clocks: 200",
        "converged: 2",
        "4: stop.converged: 2 is out of range; expected a share from 0 to below 1, such as 0.02",
    ),
    (
        "nightly",
        "Nightly Job",
        "1: name: 'Nightly Job' does not fit; expected up to 50 of a-z, 0-9 and -, beginning with "
        "a letter an",
    ),
    (
        "agileml",
        "agilml",
        "2: kind: unknown value 'agilml' (did you mean agileml?); expected one of agileml, command",
    ),
    (
        "app: mf",
        "app: mff",
        "3: app: 'mff' is not a built-in app (did you mean mf?); expected mf, mlr, lda, "
        "module:Class or FILE.py:NAME",
    ),
    (
        "[aws, gcp]",
        "[aws, ggp]",
        "6: resources.clouds.1: unknown value 'ggp' (did you mean gcp?); expected one of aws, gcp, "
        "azure, slu",
    ),
    (
        "[aws, gcp]",
        "[aws, local]",
        "6: resources.clouds: local cannot be combined with real clouds; expected [local], or any "
        "of aws, gcp",
    ),
    (
        "us-central1",
        "us-central",
        "8: resources.regions.1: 'us-central' is not a region of aws or gcp; did you mean "
        "us-central1 or ",
    ),
    (
        "us-central1",
        "mars",
        "8: resources.regions.1: 'mars' is not a region of aws or gcp; expected one of theirs",
    ),
    (
        ", us-central1",
        "",
        "6: resources.clouds.1: gcp has none of the regions; remove it, or add one of its",
    ),
    (
        "[c6i.2xlarge, n2-standard-8]",
        "[c6i.2xlarge, c6i.2xlarge]",
        "7: resources.types.1: 'c6i.2xlarge' is listed 2 times; keep one",
    ),
    (
        "app: mf\n",
        "app: mf\nrun: ls\n",
        "4: run: is not allowed with kind: agileml; remove it, or change kind",
    ),
    (
        "app: mf\n",
        "app: mf\nretries: {setup: 1}\n",
        "4: retries: is not allowed with kind: agileml; remove it: a train",
    ),
    (
        "{clocks: 200}",
        "{}",
        "4: stop: is empty; expected clocks, minutes, loss, converged, or several of them",
    ),
    (
        "app: mf",
        "app: nowhere_at_all:Job",
        "3: app: 'nowhere_at_all:Job': there is no module nowhere_at_all in ",
    ),
    ("app: mf", "app: trainer.py", "3: app: there is no file 'trainer.py' in "),
    (
        "app: mf",
        "app: mf\nargs: {rnk: 3}",
        "4: args: mf has no argument 'rnk'; it takes rank",
    ),
    (
        "app: mf",
        "app: mf\nargs: {rank: 0}",
        "4: args: mf: rank is 0; it must be a whole number of at least 1",
    ),
    (
        "clouds: [aws, gcp]",
        "clouds: [aws, gcp",
        "7: is not YAML: while parsing a flow sequence, expected ',' or ']', but got ':' (begun on "
        "line 6)",
    ),
    (
        "app: mf",
        "app: mf\n\tx: 1",
        "4: is not YAML: while scanning for the next token, found character '\\t' that cannot "
        "start any token;",
    ),
]

ADDED = [
    ("name: again", "10: name: duplicate key, first on line 1; keep one"),
    (
        "deadlin: 10h",
        "10: deadlin: unknown key (did you mean deadline?); spotctl schema lists all keys",
    ),
    ("regions: [x]", "10: regions: unknown key at the top level; expected resources.regions"),
    (
        "  budget: 1 USD",
        "10: resources.budget: unknown key (it belongs at the top level); expected one of clouds, "
        "machines, r",
    ),
    (
        "deadline: 10",
        "10: deadline: 10 has no unit; expected a duration with its unit such as 90m, 10h or 2d, "
        "or a time of",
    ),
    (
        "deadline: 10 hours",
        "10: deadline: '10 hours' has the unknown unit hours; expected a duration with its unit "
        "such as 90m, ",
    ),
    (
        "deadline: 0h",
        "10: deadline: '0h' is 0, or longer than a hundred years; expected a duration with its "
        "unit such as 9",
    ),
    (
        "deadline: 25:00",
        "10: deadline: '25:00' is not a time of day; expected a duration with its unit such as "
        "90m, 10h or 2d",
    ),
    (
        "budget: 25",
        "10: budget: 25 has no currency; expected an amount above 0 such as 25 USD or 0.50 USD",
    ),
    (
        "budget: 25 EUR",
        "10: budget: '25 EUR' is not in USD; expected an amount above 0 such as 25 USD or 0.50 USD",
    ),
    (
        "budget: -1 USD",
        "10: budget: '-1 USD' is not an amount; expected an amount above 0 such as 25 USD or 0.50 "
        "USD",
    ),
    (
        "budget: 0.0 USD",
        "10: budget: '0.0 USD' is not above 0; expected an amount above 0 such as 25 USD or 0.50 "
        "USD",
    ),
    (
        "objective: min-cost-slo",
        "10: objective: min-cost-slo without a deadline; write deadline: 10h, or objective: "
        "min-cost",
    ),
    (
        "objective: makespan-within-budget",
        "10: objective: makespan-within-budget without a budget; write budget: 25 USD, or "
        "objective: max-thro",
    ),
    (
        "objective: cheap",
        "10: objective: unknown value 'cheap'; expected one of min-cost, max-throughput, "
        "min-cost-slo, makesp",
    ),
    (
        "strategy: proteous",
        "10: strategy: unknown value 'proteous' (did you mean proteus?); expected one of auto, "
        "on-demand, tie",
    ),
    (
        "strategy: fixed-bid",
        "10: strategy: fixed-bid is no choice for a job any more: others cost less; write "
        "strategy: proteus",
    ),
    (
        "strategy: standard+agileml",
        "10: strategy: standard+agileml is no choice for a job any more: others cost less; write "
        "strategy: auto",
    ),
    (
        "strategy: lookahead-present:2",
        "10: strategy: lookahead-present is no choice for a job any more: others cost less; write "
        "strategy: lookahead",
    ),
    (
        "strategy: lookahead:soon",
        "10: strategy: 'lookahead:soon' has an argument that does not fit; expected one of auto, "
        "on-demand, t",
    ),
    (
        "strategy: bound",
        "10: strategy: unknown value 'bound'; expected one of auto, on-demand, tierml, proteus, "
        "price-capacit",
    ),
    ("env: [A]", "10: env: expected a mapping, found a list; write env: {LOG_LEVEL: info}"),
    (
        "strategy: deadline",
        "10: strategy: deadline needs a deadline; write deadline: 10h, or strategy: auto",
    ),
    ("env: {A: }", "10: env.A: is empty; expected text"),
    ("env: {A: [x]}", "10: env.A: a list is not text; expected text"),
    ("env: {2A: x}", "10: env.2A: '2A' does not fit; expected the name of an environment variable"),
    (
        "env: {SPOTCTL_RANK: x}",
        "10: env.SPOTCTL_RANK: 'SPOTCTL_RANK' begins with SPOTCTL_, which is reserved for spotctl; "
        "expected t",
    ),
    ("secrets: [A, A]", "10: secrets.1: 'A' is listed 2 times; keep one"),
    ("env: {A: b}\nsecrets: [A]", "11: secrets.0: A is also in env; keep one of them"),
    (
        "data: {r: ftp://x/y}",
        "10: data.r: 'ftp://x/y' does not fit; expected a path, file:///PATH, s3://BUCKET/..., "
        "gs://BUCKET/..",
    ),
    ("data: {a-b: /x, a_b: /y}", "10: data.a_b: sets $DATA_A_B, as a-b does; choose another name"),
    (
        "data: {a: /x}\nenv: {DATA_A: /y}",
        "10: data.a: sets $DATA_A, as env or secrets do; choose another name",
    ),
    (
        "image: {disk_gib: 2}",
        "10: image.disk_gib: 2 is too small; expected a whole number from 8 to 65536",
    ),
    (
        "image: {container: 'app --privileged'}",
        "10: image.container: 'app --privileged' does not fit; expected a container image such as "
        "ghcr.io/me/train:1",
    ),
    ("identity: {azure: me}", "10: identity.azure: is not one of clouds: [aws, gcp]; remove it"),
    (
        "notify: {webhook: 'http://example.com'}",
        "10: notify.webhook: 'http://example.com' does not fit; expected https://HOST/..., http:// "
        "on this co",
    ),
    (
        "track: mflow",
        "10: track: unknown tracker 'mflow' (did you mean mlflow?); expected mlflow, wandb, or a "
        "mapp",
    ),
    (
        "track: {mlflow: 'http://me:word@host:5000'}",
        "10: track: a mapping has a place for mlflow that does not fit; expected mlflow, wandb, or "
        "a mapping with",
    ),
    (
        "track: {}",
        "10: track: a mapping is empty; expected mlflow, wandb, or a mapping with a place: "
        "{mlflow: htt",
    ),
    ("local: {speed: 60}", "10: local: is for clouds: [local], not [aws, gcp]; remove it"),
    (
        "throughputs: {c5.large: 3}",
        "10: throughputs.c5.large: matches none of resources.types: c6i.2xlarge, n2-standard-8; "
        "correct one",
    ),
    (
        "throughputs: {c6i.2xlarge: 0}",
        "10: throughputs.c6i.2xlarge: 0 is out of range; expected a number from 1e-6 to 1e12",
    ),
    (
        "throughputs: {c6i.2xlarge: 1.0e-300}",
        "10: throughputs.c6i.2xlarge: 1e-300 is out of range; expected a number from 1e-6 to 1e12",
    ),
    ("workdir: nowhere", "10: workdir: there is no folder "),
    (
        "1: x",
        "10: 1: unknown key at the top level; expected one of name, kind, app, stop, args, "
        "stragglers, wire, engine, address",
    ),
    ("args: &all {x: *all}", "10: refers to itself through aliases; write it out without them"),
    (
        "deadlin: 10h\nbudget: 1",
        "10: deadlin: unknown key (did you mean deadline?); spotctl schema lists all keys",
    ),
    (
        "outputs: {logs: out}",
        "10: outputs.logs: is never written: an agileml job writes model only; remove it",
    ),
]

OF_COMMANDS = [
    (
        "clouds: [aws]",
        "clouds: [aws]\n  placement: close",
        "6: resources.placement: is for a command with several nodes; remove it, or write nodes: "
        "2, for exa",
    ),
    (
        "run: python train.py\nresources:\n  clouds: [aws]",
        "run: python train.py\nnodes: 2\nresources:\n  clouds: [local]\n  placement: close",
        "7: resources.placement: applies to cloud machines, not to the local market; remove it",
    ),
    (
        "python train.py",
        "'echo \"a'",
        "3: run: is no command that a shell can read (unterminated quoted string); correct it, and "
        "try it w",
    ),
    (
        "python train.py",
        '"echo \\0"',
        "3: run: contains a NUL byte, which no command can; remove it",
    ),
    (
        "resources:",
        "setup: if true\nresources:",
        '4: setup: is no command that a shell can read (end of file unexpected (expecting "then")); correct',
    ),
    (
        "resources:",
        'env: {A: "x\\0"}\nresources:',
        "4: env.A: contains a NUL byte, which no environment variable can; remove it",
    ),
    (
        "resources:",
        "secrets: [TOKEN, PATH]\nresources:",
        "4: secrets.1: PATH is set by each machine; remove it, or choose another name",
    ),
    ("run: python train.py\n", "", "1: run: is missing; write run: torchrun train.py --resume"),
    (
        "kind: command",
        "kind: command\nstop: {clocks: 3}",
        "3: stop: is not allowed with kind: command; remove it, or change kind",
    ),
    (
        "kind: command",
        "kind: command\nnodes: 0",
        "3: nodes: 0 is too small; expected a whole number from 1 to 10000, or a range such as "
        "2..4",
    ),
    (
        "kind: command",
        "kind: command\nnodes: 4..2\ncheckpoint: {path: ckpt}",
        "3: nodes: '4..2' ends below its beginning; expected a whole number from 1 to 10000, or a "
        "range such as 2..4",
    ),
    (
        "kind: command",
        "kind: command\nnodes: 2..4",
        "3: nodes: 2..4 needs a checkpoint, from which the command starts again when the number "
        "changes; add one, or write 4",
    ),
    (
        "[aws]",
        "[aws, vast]\nnodes: 2",
        "5: resources.clouds.1: machines of vast reach each other at one port, and the nodes of a "
        "command use others",
    ),
    (
        "[aws]",
        "[vast]\n  reliable: {machines: 1}",
        "5: resources.clouds.0: machines of vast cannot rent others, as the runner on a reliable "
        "machine does; rem",
    ),
    (
        "[aws]",
        "[aws]\n  machines: 4..64",
        "6: resources.machines: 4..64 contradicts nodes: 1; write 1, or leave it out",
    ),
    (
        "kind: command",
        "kind: command\ncheckpoint: {every: 15m}",
        "3: checkpoint.path: is missing; write path: 's3://bucket/ckpt/'",
    ),
    (
        "kind: command",
        "kind: command\ncheckpoint: {path: ckpt, every: often}",
        "3: checkpoint.every: 'often' is not a duration; expected auto, or a number with a unit: "
        "90s, 15m, 10",
    ),
    (
        "kind: command",
        "kind: command\nhours: 8",
        "3: hours: 8 has no unit; expected a number with a unit, and maybe the type of machine that "
        "takes it: 8h, or 8h on c6i.2xlarge",
    ),
    (
        "kind: command",
        "kind: command\nhours: 0h",
        "3: hours: '0h' is 0, or longer than a hundred years; expected a number with a unit, and "
        "maybe the type",
    ),
    (
        "kind: command",
        "kind: command\ncheckpoint: {path: file://host/ckpt}",
        "3: checkpoint.path: 'file://host/ckpt' does not fit; expected a path, file:///PATH, "
        "s3://BUCKET/...,",
    ),
    (
        "kind: command",
        'kind: command\nworkdir: "a\\0b"',
        "3: workdir: 'a\\x00b' does not fit; expected a folder",
    ),
    (
        "kind: command",
        'kind: command\ndata: {in: "a\\0"}',
        "3: data.in: 'a\\x00' does not fit; expected a path,",
    ),
    (
        "kind: command",
        "kind: command\ncheckpoint: {path: file:///a%00}",
        "3: checkpoint.path: 'file:///a%00' does not fit; expected a path,",
    ),
    (
        "kind: command",
        'kind: command\ntrack: {mlflow: "a\\0"}',
        "3: track: a mapping has a place for mlflow that does not fit",
    ),
    (
        "kind: command",
        "kind: command\noutputs: {a-b: /x, a_b: /y}",
        "3: outputs.a_b: sets $OUTPUT_A_B, as a-b does; choose another name",
    ),
    (
        "kind: command",
        "kind: command\noutputs: {a: /x}\nsecrets: [OUTPUT_A]",
        "3: outputs.a: sets $OUTPUT_A, as env or secrets do; choose another name",
    ),
]

WHOLE = [
    ("", "1: the file is empty; write a job (spotctl init writes a starter file)"),
    ("# nothing\n", "1: the file is empty; write a job (spotctl init writes a starter file)"),
    (
        "- a\n- b\n",
        "1: the file: expected a mapping, found a list; write keys with values (spotctl init "
        "writes a starter",
    ),
    (
        "name: a\n---\nname: b\n",
        "2: another document begins; keep one, without a line ---",
    ),
    (
        "a: !!python/object:os.system x\n",
        "1: is not YAML: could not determine a constructor for the tag "
        "'tag:yaml.org,2002:python/object:os.sy",
    ),
    (
        "name: !!int nightly\n",
        "1: 'nightly' does not fit its tag !!int; correct it, or remove the tag",
    ),
    ("a: \x07", "1: is not YAML: the character '\\x07'; delete it"),
]

CASES = [
    *((TRAINING.replace(old, new, 1), message) for old, new, message in REPLACED),
    *((f"{TRAINING}{line}\n", message) for line, message in ADDED),
    *((COMMAND.replace(old, new, 1), message) for old, new, message in OF_COMMANDS),
    *WHOLE,
]
