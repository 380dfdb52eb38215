"""Looks: what is seen of the federation at one moment, and shared by all who ask at about the same time.

snapshots    the ledger's snapshot, with what is remembered of each mesh
waits        why what stands in queues waits, told alike wherever it is shown
shared_look  one look for all who ask meanwhile
"""
