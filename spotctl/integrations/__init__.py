"""Hooks for training loops of other libraries: they save before an eviction, and resume where they
stopped.

A machine that is rented for a command has this package and `spotctl.agent`, whatever the program
installs.
"""
