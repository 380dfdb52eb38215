"""The quota core: who may start what, who waits and why, who gives way to whom. Pure; time comes as `now_ms`.

The tree, and what is in use of it:

    forest       limits of a tree of tenants, counted once        ledger        what is in use, and what that leaves
    shares       dominant shares, exact                           share_ranks   the same order in whole numbers, for thousands
    past_use     what queues used before, fading by half-lives    snapshot      running work over a ledger, with an undo log
    from_config  a federation file to forest, settings and rules  policies      what a queue may do to others, and by which rules

What waits:

    workloads    what asks for quota, and what holds it           pending       what waits at a queue, in order or parked
    limits       how many may run, and when, beside quota         starts        how many more a tenant and a user may start now

One round:

    scheduler    the state machine around all of these            cycle         one round over the heads of all queues
    nomination   what one head would get, and at whose cost       flavors       which flavor a workload gets
    order        whose turn it is among the nominated             reservations  a date for a big one, and small ones beside it
    decisions    what a round says of a workload                  explain       why one waits, in numbers

Who gives way:

    preemption   which running work gives way to a request        candidates    who may be asked, and in which order
    classical    by priority and by what is a queue's own         fair          by shares, from the sibling that borrows most
    precedence   no chain of evictions comes back to its start    cuts          what stops after a quota was cut

    testing      small worlds for tests, in few words

Source: `references/quota.md`; ADR 0018 says where the default rules leave Kueue's.
"""
