"""The child mesh: claims stages from its queue, pays for them from leases, runs them and reports their status. Ports are passed in.

    child_mesh     the state machine around all of these        child_session  the session, by the mesh's own clock
    child_state    state of the mesh under one session          deadlines     how long the last response of the ledger is valid
    lease_accounting  lease accounting: held and spent amounts     guard         handling of failed calls to a store
    lease_client   lease client: spends leases, asks for more   quota_demand  quota demand that the mesh sends to the ledger
    decision_queue  decision queue of admission                  claims        stages claimed from the queue
    preemption_planner  choice of victims within one tenant          stage_preemptor  preemption: stops victims, holds the freed room
    running_stage  a stage from its claim to its end, and its note  status_reporter  status reports on stages
    stage_recovery  recovery of an earlier process's work        sent_reports  recent reports, in case the store loses them
    heartbeat_jitter  when the next heartbeat is due            stage_plugins  plugins that choose nodes and victims
    output_reporter  what nodes print, on its way to the log of their run

Source: ADR 0019, 0024, 0025, 0028, 0030, 0046.
"""
