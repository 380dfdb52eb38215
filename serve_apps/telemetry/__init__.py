"""Telemetry of the root.

metrics  gauges from the stores at a scrape, and this replica's requests
traces   ended runs as spans
"""
