"""Seeds of worlds: fixed ones, and a fresh one on request."""

import pytest


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests marked `@pytest.mark.seeds(n)` for each `seed` below `n`, and by `make fresh` for the given seed."""
    marker = metafunc.definition.get_closest_marker("seeds")
    if marker is None:
        return
    (count,) = marker.args
    options = metafunc.config.option
    fresh = [int(options.hypothesis_seed)] if options.hypothesis_profile == "fresh" and options.hypothesis_seed else []
    metafunc.parametrize("seed", [*range(count), *fresh])
