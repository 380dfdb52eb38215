"""The choice of victims: candidates, their scores, the cheapest set that is enough. Pure.

rules             which running tasks are candidates, and their scores
victims           cheapest victims for one demand
stage_preemption  victims for a tenant's more urgent stage
"""
