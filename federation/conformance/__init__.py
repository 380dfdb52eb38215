"""Cases that others made, run against the quota core: `python -m federation.conformance quota FILE.json`."""
