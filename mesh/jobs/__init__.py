"""Jobs: a leader and worker sets, admitted, started, restarted and cleaned up together.

spec        validated description of a job             form       the same in YAML or JSON, as users write it
gang_form   jobs that are one gang, as nodes of graphs
members     members, and the task of each              states     states of jobs and members, with their transitions
controller  life cycle of each job                     records    records of the controller
events      inputs of the controller                   decisions  outputs of the controller
invariants  conditions that hold after every event     views      job as users and other processes see it
scheduler   one round: places for unplaced members     snapshots  input and output of a round
ordering    queue order of jobs                        room       working copy of nodes and pools
packing     search and bounds for a joint placement
"""
