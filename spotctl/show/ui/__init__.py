"""The pages of `spotctl ui`."""
