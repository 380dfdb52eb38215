"""The stores in memory, for tests, simulations, and a federation in one process. The contract suite of the Redis stores runs on them, too.

store         ledger, stage queue and blobs in one process
ledger        use of every node, and the rest
ledger_state  clock, tokens, epochs, and session checks
sessions      tenants and sessions
demands       recorded demands
rows          rows of sessions and leases
registry      the registry of meshes
policies      preemption policies and rules of a queue
key_ring      keys of clients and meshes
durability    durability without a disk
run_log       logs of runs
usage         rows of use by day
change_log    changes that people made
"""
