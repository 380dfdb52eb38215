"""Ray clusters of one's own, and the system below them.

own_cluster    one or several nodes: started, watched, ended
cluster_spec   what it is made of
node_start     one node: its command, its environment, the wait until it is up
node_logs      the last word of a process that aborted
cluster_token  the token of a cluster, without which it runs nothing
run_as         another user for a cluster's processes
ports          free for those that take a while to open them
process        who cannot outlive whom; whom a number names
tcp_probe      whether anybody listens at an address
"""
