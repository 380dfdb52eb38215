"""The link: what a child mesh asks over HTTP that has no key to the store; `federation.link` has the table of verbs.

routes  `/v1/link/…`: each verb one call of one port, in threads and budgets of its own
calls   a call, read strictly before anything of it is believed
proofs  tokens that a mesh says it has seen, believed as far as the root has signed them
"""
