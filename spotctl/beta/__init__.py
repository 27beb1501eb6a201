"""What `spotctl beta` asks, and how the answers are shown."""
