"""The child mesh: takes stages from its queue, pays for them from leases, has them run, tells what became of them. Ports are passed in.

    child_mesh     the state machine around all of these        tenure        its session, by its own clock
    books          what it knows under one session              deadlines     until when what the ledger said may be acted on
    balance        what it holds, and what of it is spent       guard         what becomes of a call that is not answered as it should be
    purse          pays: from leases at hand, or asks for more  wanting       what it could use at once, told to the ledger
    docket         decided, and to be carried out               claims        stages taken out of its queue
    making_way     which running stages stop for an urgent one  right_of_way  who is asked to stop, and for whom room is kept
    running_stage  a stage between its claim and its end        tidings       what it has to tell of its stages
    adoption       going on with an earlier process's work      told_batches  what was told of late, should the store lose it
    cadence        when the next heartbeat is due

Source: `references/leases.md` §4, §5; ADR 0019, 0024, 0025, 0028, 0030.
"""
