"""Actor groups: agents with ranks and named dimensions; whom a call reaches, how arguments split, how results join. Pure.

dimensions  which rank stands where                      members      who is in a group, found by label
selection   whom a call goes to, by what each has to do  dispatching  how arguments are dealt out to the ranks
per_rank    another argument at each place               weighing     is one large enough to be stored once
pieces      arrays, sequences and dicts, cut and joined  resharding   from n parts to m, moving no more than need be
results     what each rank returned                      collecting   how these results become one value
errors      what can break when a group is called
"""
