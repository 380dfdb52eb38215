"""Seeds of worlds: fixed ones, and a fresh one on request."""

import pytest


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests marked `@pytest.mark.seeds(n)` for each `seed` below `n`, and by `make fresh` for the given seed.

    `make test` runs the first third of the seeds, `make faults` the rest, `make fresh` all of them.
    """
    marker = metafunc.definition.get_closest_marker("seeds")
    if marker is None:
        return
    (count,) = marker.args
    options = metafunc.config.option
    fresh = [int(options.hypothesis_seed)] if options.hypothesis_profile == "fresh" and options.hypothesis_seed else []
    first = -(-count // 3)
    rest = [pytest.param(seed, marks=[pytest.mark.faults, pytest.mark.slow]) for seed in range(first, count)]
    metafunc.parametrize("seed", [*range(first), *rest, *fresh])
