"""Tables, plots and live views: everything that prints or draws, except cost reports."""
