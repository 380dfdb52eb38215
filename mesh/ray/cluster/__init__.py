"""Ray clusters that this project starts itself, and the operating system below them.

own_cluster     a cluster of one or several nodes: starts, watches and ends it
cluster_spec    the nodes and sizes of a cluster
node_start      one node: its command, its environment, the wait until it is up
node_logs       the reason that a process logged before it aborted
cluster_token   the token that a cluster requires before it runs code
node_resources  resources of nodes in this project's names
run_as          another user for a cluster's processes
ports           free ports, reserved until a slow process opens them
process         children bound to their parents; recognition of a process despite pid reuse
tcp_probe       check that a process listens at an address
"""
