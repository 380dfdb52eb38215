"""What a step of the run machine is made of: `dag.machine` hands each event to one of these, and all of them write through `Moves`.

state_writer  the one way to write: checked, counted, noted  run_status  questions about a run; changes nothing
edges        who waits for whom, looked up from both ends   placing     routing's answer becomes stages, or a reason
stage_dispatch  which stages are sent now                      deliveries  what a stage is told of its inputs, once each
reports      what meshes tell of their stages               attempts    one failed or is lost: another, or the end
losses       what went with a runner, and is still needed   recalls     nodes taken out of their stages, to begin anew
withdrawals  stages taken back that no mesh has begun       completion  how nodes and the run end, and what is skipped
"""
