"""`spotctl lab train`: a training on this computer, its table and plot."""
