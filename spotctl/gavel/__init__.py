"""Files, simulations, analyses, views and plots of `spotctl gavel`."""
