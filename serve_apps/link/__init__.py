"""The link: HTTP calls of child meshes without a key to the store. `federation.link` has the table of verbs.

routes  `/v1/link/…`: each verb is one call of one port, in its own threads and budgets
calls   strict parsing of a mesh's call
proofs  tokens that a mesh has seen, verified by the root's signatures
"""
