"""The synthetic price history that the wheel carries: its generator, and its comparison with
recorded markets.
"""
