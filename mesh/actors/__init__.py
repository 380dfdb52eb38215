"""Actor groups: agents with ranks and named dimensions; selection, dispatch of arguments, collection of results. Pure.

dimensions  coordinates of ranks                         members      members of a group, found by label
selection   strategies that choose a member              dispatching  distribution of arguments to ranks
per_rank    arguments that differ by rank                weighing     estimate of an argument's size
pieces      split and join arrays, sequences and dicts   resharding   from n parts to m with least movement
results     results of the ranks                         collecting   combination of results into one value
errors      errors of group calls
"""
