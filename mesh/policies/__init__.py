"""Node policies by name: one file per policy, all with the interface of `mesh.policies.policy`.

    policy             interface: score of each node, and pick          catalogue     all policies by name, including users' own
    shares             shares of nodes in use, for most policies        policy_fixtures  views and demands, for tests of policies

Packing:

    binpack            the fullest node that fits                       min_fragment  binpack with CPU and memory in balance
    weighted           weighted sum of the four node scores             census        most requested shapes, for `weighted`
    fragmentation      share of free capacity that no shape can use

Spreading:

    spread             equal number of tasks per node                   least_busy    lowest share of the requested resources in use
    power_of_two       the less busy of two random nodes                random_node   any node that fits, at random
    hybrid             Ray's DEFAULT: pack to a threshold, then spread

Affinity:

    node_affinity      the node that the request names                  locality      the node with most bytes of the arguments
    priority           urgent tasks spread, all others packed           job_affinity  near a job's other members
    job_anti_affinity  away from a job's other members                  leader_first  leaders on empty GPU nodes, workers elsewhere
    gang               a node for each member, or for none
"""
