"""Jobs: a leader and worker sets, admitted, started, restarted and cleaned as one.

spec        a job as its user describes it                 form       the same as strangers write it: YAML or JSON
members     who they are, and the task that each becomes   states     jobs and members, and a table of moves for each

controller  the life of each job                           records    what the controller keeps of one
events      what it is told                                decisions  what it wants done
invariants  what must hold of every job after every event  views      a job as people and other processes see it

scheduler   one round: places for members that have none   snapshots  what a round sees of jobs, and its answers
ordering    whose turn it is                               room       nodes and pools, copied to try things out on
packing     would a leader and its workers fit at all
"""
