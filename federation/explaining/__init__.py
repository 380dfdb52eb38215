"""Explaining: what can be said about a stage that waits, or would: its place, why, what would have to change, when, at whose cost.

outlook       all of it, on one snapshot          queue_places  places among those that can be in each other's way
foreseeing    whom its mesh would stop for it
"""
