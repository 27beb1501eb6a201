"""Runs jobs: `sim` in virtual time, `local` on processes of this computer, `attached` on others'
machines.
"""
