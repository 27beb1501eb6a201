"""One turn of a run's loop: observe, decide, reconcile, execute; and its end."""
