"""Where market data comes from: one module per cloud, each the only door to its SDK, and files."""
