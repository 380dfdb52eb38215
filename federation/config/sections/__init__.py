"""What may stand in a federation file, key by key: a section for each key, a file for each kind of thing that sections describe.

section  what every section is                             values   times, sizes, amounts, weights, words
meshes   clusters and nodes, flavors, pools                tenants  a tree by name, or a list that names parents
quota    what is whose own, who gives way, by which rules  root     the root, its stores, and what holds for all
"""
