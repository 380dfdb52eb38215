"""Costs and gains of ScheduleMesh, measured beside plain Ray on the same cluster: `python -m benchmarks`."""
