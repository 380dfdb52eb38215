"""Telemetry: what others are told of how it goes.

metrics  the truth of the stores at a scrape, and what this replica has answered
traces   runs that ended, as spans
"""
