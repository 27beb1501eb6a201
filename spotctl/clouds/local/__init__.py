"""Machines that are processes of this computer, on a market that replays a price history faster
than time.
"""
