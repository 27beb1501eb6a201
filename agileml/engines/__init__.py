"""Where roles run: `sim` in virtual time, `local` in processes of this machine."""
