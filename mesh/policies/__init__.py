"""How a node is chosen, by name: one file per policy, all with the signature of `mesh.policies.policy`."""
