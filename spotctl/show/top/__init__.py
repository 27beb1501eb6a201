"""`spotctl top`: `timeline`, `snapshot` and `views` are pure; `watcher` reads the event log, `app` is the live view."""
