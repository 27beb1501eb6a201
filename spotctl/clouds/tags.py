"""Tags on everything that spotctl rents, by which spotctl finds its machines again."""

INSTALLATION_TAG, RUN_TAG, INTENT_TAG = "spotctl-installation", "spotctl-run", "spotctl-intent"
"""The installation (`spotctl.clouds.installation`) and the run that rented a machine, and the number of the intent
in that run's log."""
