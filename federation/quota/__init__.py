"""The quota core: which workload may start, why one waits, and which one is preempted. Pure; time comes as `now_ms`.

The tree and its use:

    forest       limits of a tree of tenants, counted once        ledger        use of every node, and the rest
    shares       dominant shares, exact                           share_ranks   the same order in whole numbers, for thousands
    past_use     past use of queues, fading by half-lives         snapshot      running work over a ledger, with an undo log
    share_rows   children of nodes, ordered by share
    policies     preemption policies and rules of a queue         tenant_policies  settings and stops of tenants, beside their limits

Waiting work:

    workloads    workloads, waiting and running                   pending       waiting workloads of a queue, in order or parked
    limits       limits on running work, and time windows         starts        how many more a tenant and a user may start now

One round:

    scheduler    the state machine around all of these            cycle         one pass over the heads of all queues
    nomination   flavors and victims for one head                 flavors       which flavor a workload gets
    order        order among the nominated heads                  decisions     the decisions of a round
    explain      why a workload waits, in numbers

Preemption:

    preemption   victims of a request: candidates, strategies, limits (a folder)

    quota_fixtures  small worlds for tests, in few words

Source: Kueue; ADR 0018 lists the differences of the default rules.
"""
