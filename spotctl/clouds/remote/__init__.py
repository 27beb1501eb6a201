"""Shared by all clouds: machines that boot with a start-up script and are reached over ssh."""

from spotctl.agent import layout as layout
