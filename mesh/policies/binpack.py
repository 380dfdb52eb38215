"""Fill the nodes that are in use before a new one is begun: the fullest node that has room.

Source: TY-Arranger's BinPack (seed S37), which scores as Kubernetes' and Volcano's do: by the share of the requested resources.
"""

from __future__ import annotations

from mesh.policies.policy import Policy
from mesh.policies.shares import mean_share_after

#: The score is the mean share of the wanted resources with the demand placed, from 0 to 1.
BINPACK = Policy("binpack", mean_share_after, sees_common=False)
