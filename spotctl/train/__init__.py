"""What `spotctl train` is made of, and how it is shown."""
