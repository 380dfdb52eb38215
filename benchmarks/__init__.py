"""What ScheduleMesh costs and gains, measured beside plain Ray on the same cluster: `python -m benchmarks`."""
