#!/usr/bin/env bash
# The backtest behind the default strategy for today's clouds, and how robust its lead is.
set -euo pipefail
if [ ! -d ../shared/data/availability ]; then
  echo "skipped: no records of real prices and availability in ../shared/data"
  exit 0
fi

step() { printf '\n$ %s\n' "$*"; "$@"; }

step spotctl lab backtest run examples/backtest_today.yaml
step spotctl lab backtest run examples/backtest_today.yaml --against proteus --schemes price-capacity --cuts 2 \
  --starts 20
