"""How a node is chosen, by name: one file per policy, all with the signature of `mesh.policies.policy`.

    policy             a score for each node, and a pick among them     catalogue     every policy by its name, users' own too
    shares             how full each node is, which most policies ask   testing       views and demands, for tests of one's own too

Close together:

    binpack            the fullest node that has room                   min_fragment  full, with CPU and memory in step
    weighted           room, fragments, data, contention, each weighed  census        which shapes `weighted` keeps room for
    fragmentation      how much free room no wanted shape fits into

Far apart:

    spread             as many tasks on one node as on the next         least_busy    least taken of what is wanted
    power_of_two       the less busy one of two drawn by chance         random_node   any that has room, by chance alone
    hybrid             Ray's DEFAULT: full to a threshold, then apart

By what it is, or where its things are:

    node_affinity      the node that the request names                  locality      where most bytes of the arguments lie
    priority           urgent work apart, all other close together      job_affinity  near a job's other members
    job_anti_affinity  away from a job's other members                  leader_first  leaders on empty GPU nodes, workers elsewhere
    gang               a place for each member, or for none
"""
