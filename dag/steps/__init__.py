"""What a step of the run machine is made of: `dag.machine` hands each event to one of these, and all of them write through `Moves`."""
