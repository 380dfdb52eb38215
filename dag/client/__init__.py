"""Writing of graphs: functions, nodes, options. Needs no Ray.

tasks      `task` wraps a function, `.bind` makes a node        compiling  nodes to a spec
writing    functions and arguments to forms and blobs           pickling   bytes that only the tenant's own workers read
from_ray   Ray's options and values in a user's program         control_flow  branches, cleanup, sleeps and signals
placeholders  parts of values and parameters; what a node refuses   params   values of a graph's parameters
graph_functions  functions that build a graph           ray_graphs  graphs written with `ray.dag`, as nodes
fingerprints  digests of functions and values, for cached nodes
arrays     map, starmap, reduce, gather                 array_source  the items of an array among the arguments of a node
continuations  nodes that a function returns             actors     actors, and calls of their methods as nodes
actor_groups  actor groups, and calls on all, one or each of their members as nodes
jobs       a leader and sets of workers as one node
json_graphs  graphs of importable functions as JSON, and back; graphs in networkx
from_ray   Ray's options and values in a user's program         programs   programs as nodes
"""
