"""Eviction probability: estimated from price histories, lifetimes, availability traces and
published figures.
"""
