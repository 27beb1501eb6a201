"""Where market data comes from: one package per cloud, and files."""
