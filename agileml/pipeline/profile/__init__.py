"""Profiles: what a microbatch costs in each layer of a model, measured, read or computed by
formula.
"""
