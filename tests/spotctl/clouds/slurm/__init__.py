"""Tests of Slurm, most of them on a real cluster."""
