"""Where machines come from: one module per cloud, one protocol, one failure contract."""
