"""Golden runs: what two commits of the project print for the same commands, compared. `make golden
BASE=commit`.
"""
