"""Pack: use the fullest node that fits, before an empty one.

Source: TY-Arranger's BinPack; like Kubernetes' and Volcano's it scores by the share of the requested resources.
"""

from __future__ import annotations

from mesh.policies.policy import Policy
from mesh.policies.shares import mean_share_after

#: Mean share of the requested resources with the demand placed, from 0 to 1.
BINPACK = Policy("binpack", mean_share_after, sees_common=False)
