"""Benchmarks: each figure next to a peer or limit of the same run. `make bench` writes docs/internals/benchmarks.md."""
