"""The quota core: who may start what, who waits and why, who gives way to whom. Pure; time comes as `now_ms`.

    forest     limits of a tree of tenants, counted once         ledger      what is in use, and what that leaves
    shares     dominant shares, exact                            snapshot    running work over a ledger, with an undo log
    flavors    which flavor a workload gets                      preemption  which running work gives way to it
    cycle      one round over the heads of all queues            scheduler   the state machine around all of these

Source: `references/quota.md`; ADR 0018 says where the default rules leave Kueue's.
"""
