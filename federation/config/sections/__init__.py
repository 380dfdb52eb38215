"""Models of the parts of a federation file, one class per section.

section  base class of sections                  values   times, sizes, amounts, weights, words
meshes   clusters and nodes, flavors, pools      tenants  a tree by name, or a list that names parents
mesh_settings  settings of a mesh that `apply` changes
quota    quotas, preemption and fair sharing     root     the root, its stores, and settings of the federation
"""
