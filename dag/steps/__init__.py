"""Steps of the run machine: `dag.machine` hands each event to one of these modules, and all of them write through `StateWriter`.

state_writer    checks, counts and records every transition   run_status   questions about a run; changes nothing
edges           dependencies of nodes, in both directions     placing       makes stages of the answers of routing
stage_dispatch  chooses the stages to send now                deliveries   sends each input to a stage once
reports         handles the messages of meshes                attempts     retries a failed or lost node, or fails it
losses          recomputes needed values after a lost runner  recalls      takes nodes out of their stages
withdrawals     takes back stages that no mesh has begun      completion   ends nodes and the run, skips dependents
"""
