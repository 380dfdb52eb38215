"""Duplicates across shards of documents, found by an actor."""
