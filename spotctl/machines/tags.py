"""Tags on everything that spotctl rents, by which machines are found again."""

RUN_TAG, INTENT_TAG = "spotctl-run", "spotctl-intent"
"""The run that rented a machine, and the number of the intent in that run's log."""
