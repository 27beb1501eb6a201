"""Benchmarks: each figure beside the named peer or limit, in one run. `make bench` writes docs/benchmarks.md."""
