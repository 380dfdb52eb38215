"""Number of examples of a costly law: all of them by `make fresh`, a third by `make test`, which repeats the same ones each time."""

from hypothesis import settings


def examples(fresh: int) -> int:
    """Return the `max_examples` of a law that gets `fresh` of them by `make fresh`."""
    return fresh if settings.get_current_profile_name() == "fresh" else fresh // 3
