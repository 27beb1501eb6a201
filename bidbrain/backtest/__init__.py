"""What strategies would have paid: a market's past replayed, jobs at random moments, results and bounds."""
