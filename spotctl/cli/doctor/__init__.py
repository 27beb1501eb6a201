"""`spotctl doctor`: checks this computer, the runs and the configured clouds; each problem comes with a cure."""
