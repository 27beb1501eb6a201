"""Benchmarks: each figure next to a peer or limit of the same run.

`make bench` writes build/benchmarks.md.
"""
