"""Slow workers and slow servers in virtual time: the tables of the papers in small."""
