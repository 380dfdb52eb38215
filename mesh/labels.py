"""Labels and what work says about them."""

from collections.abc import Mapping


def mismatch(wanted: Mapping[str, str], labels: Mapping[str, str]) -> str | None:
    """The first demand of `wanted` that `labels` does not meet, in words; None when all are met.

    A value of `!x` shuns: the label must be absent or differ from `x`; `!` alone asks that the label be absent.
    """
    for key, value in sorted(wanted.items()):
        has = labels.get(key)
        if value.startswith("!"):
            shunned = value[1:]
            if has is not None and shunned in ("", has):
                return f"{key}={has} is shunned"
        elif has != value:
            return (
                f"{key}={value} is asked, the mesh has {key}={has}" if has is not None else f"{key}={value} is asked, the mesh has no {key}"
            )
    return None
