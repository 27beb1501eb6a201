"""Decisions: how likely an eviction is, what work will cost, what to rent and when to give it
back."""
