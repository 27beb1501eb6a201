"""Goodput of elastic training systems next to each other, while machines are lost: `python -m
bench.goodput`.
"""
