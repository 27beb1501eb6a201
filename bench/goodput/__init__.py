"""Goodput of elastic training systems next to each other, through the same losses of machines: `python -m bench.goodput`."""
