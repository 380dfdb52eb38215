"""Values that every part of a mesh shares. Pure; imports nothing of `mesh` but its errors.

Quantities and capacity:

    resources       integers in one immutable value
    amounts         one counted quantity, in 1/10 000 of a unit
    nodes           a cluster as arrays: total, used, promised
    node_sizes      distinct sizes of a mesh's nodes
    seen_nodes      nodes as Ray lists them, and their use by others
    labels          labels of nodes, and label selectors
    pools           the quota ledger of a mesh, by holder
    shapes          shapes of groups, group settings of a pool
    instances       numbered instances: a GPU, or half of one
    instance_sets   all resources of a node by instance
    instance_pools  one resource of a node: free, held, backlog
    node_instances  instances of a node by holder


Work:

    task_spec    a task as it is submitted, and the states of a task
    values       where a task's bytes are, how to check them
    functions    kinds of functions; the function of outputs
    saved_state  state that is kept of a preempted task

Names, time, text:

    ids            names of things, each a type of its own
    clock          time, passed in
    random_stream  random numbers that a seed repeats
    reasons        named causes of waiting and refusal
    counting       `1 slot`, `2 slots`
    printable      characters that names may not hold; escaping
    near_names     suggestions for a wrong name
    wire           frozen values to JSON bytes and back, strictly
    json_codec     lossless codec between frozen values and JSON
"""
