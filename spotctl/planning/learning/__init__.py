"""Estimates for a job from its measured runs: machine throughput, and the time lost when machines change.

`estimate` combines many runs with prior assumptions, whose weight shrinks with the data. `inform` puts the estimates
into a plan's inputs. `spotctl.run.start` finds the runs and measures each.
"""
