"""Snapshots of the federation that concurrent requests share.

snapshots    the ledger's snapshot and the registry's data of each mesh
waits        why queued work waits
single_flight  one read for all concurrent requests
"""
