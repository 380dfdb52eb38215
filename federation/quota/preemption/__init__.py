"""Victims of a request for quota: candidates, and the strategies that choose among them. Pure.

choice            the victims of a request
candidates        possible victims, and their order
classical         by priority and nominal quota
fair              by shares, from the sibling that borrows most
eviction_order    no chain of evictions returns to its start
quota_reductions  evictions after a quota reduction
"""
