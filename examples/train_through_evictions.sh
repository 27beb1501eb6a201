#!/usr/bin/env bash
# Training through evictions: half of the machines are evicted with a warning, one is killed without, two join.
# The plot stays if you name a folder for it: examples/train_through_evictions.sh plots
set -euo pipefail
folder=${1:-$(mktemp -d)}
mkdir -p "$folder"
[ $# -gt 0 ] || trap 'rm -rf "$folder"' EXIT

step() { printf '\n$ %s\n' "$*"; "$@"; }

chaos="at clock 10 evict half warn 5s; at clock 20 kill 1; at clock 30 join 2"

# Each machine is a process on this computer; `kill` sends SIGKILL.
step spotctl lab train mf --nodes 1+3 --clocks 40 --deterministic --chaos "$chaos" --log "$folder/run.jsonl" \
  --plot "$folder/run.png"

printf '\nLoss and events by clock:\n'
python3 - "$folder/run.jsonl" <<'PYTHON'
import json
import sys

with open(sys.argv[1]) as log:
    for clock in map(json.loads, log):
        if "clock" in clock and (clock["events"] or clock["clock"] % 5 == 0):
            nodes = "{reliable}+{transient}".format(**clock["nodes"])
            loss = "-" if clock["loss"] is None else format(clock["loss"], ".4f")
            print(f"{clock['clock']:5}  {nodes}  {loss:>7}  {'; '.join(clock['events'])}".rstrip())
PYTHON

printf '\nThe same training without faults gives the same model, bit for bit.\n'
step spotctl lab train mf --nodes 1+3 --clocks 40 --deterministic --log "$folder/calm.jsonl"
python3 - "$folder/run.jsonl" "$folder/calm.jsonl" <<'PYTHON'
import json
import sys
from pathlib import Path

models = {json.loads(Path(log).read_text().splitlines()[-1])["model_sha256"] for log in sys.argv[1:]}
sys.exit(len(models) != 1)
PYTHON
