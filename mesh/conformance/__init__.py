"""Cases that others made, run against the core: `python -m mesh.conformance FILE.json`."""
