"""What a tenant's code meets on a worker beside its arguments, and what it leaves on the Ray cluster.

    interrupts   a cancelled call inside `time.sleep` is interrupted as well

What it creates in Ray goes with its stage:

    ownership    notes for each actor and placement group which stage has created it
    dependents   what belongs to stages that are over, told from what others own
    sweep        one look at all of it, and its removal
    collector    when that is done: on a thread that may wait for Ray, until nothing is left
    ray_tables   Ray's tables of actors, placement groups and tasks
    room         what holds the room that a stage waits for
"""
