"""What a tenant's code meets on a worker beside its arguments, and what it leaves on the Ray cluster.

    interrupts   a cancelled call inside `time.sleep` is interrupted as well

What it creates in Ray goes with its stage:

    ownership    notes for each actor and placement group which stage has created it
    dependents   what belongs to stages that are over, told from what others own
    collector    removes that
    ray_tables   Ray's tables of actors and placement groups
    room         what holds the room that a stage waits for
"""
