#!/usr/bin/env bash
# A tour of the market data: show a market, export its history, import it again, query it in SQL, plot it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

step() { printf '\n$ %s\n' "$*"; "$@"; }

step spotctl prices show local/sim-east/sim-east-b/r3.2xlarge
step spotctl lab prices ls --stats 'local/*/*/m4.*' --last 7d
step spotctl lab prices export 'local/sim-west' --out "$folder/history.csv.gz"
step spotctl prices import "$folder/history.csv.gz"
step spotctl prices import "$folder/history.csv.gz" # imports are idempotent
step spotctl lab prices sql "select instance_type, round(avg(usd_per_hour), 4) as mean from prices group by 1 order by 2"
step spotctl lab prices ls --gaps local
step spotctl lab prices plot 'local/sim-east/*/m4.*' --last 7d --out "$folder/prices.html"
