import pytest

from mesh.ray.user_code.ray_tables import may_use

EAST = {"zone": "east"}


@pytest.mark.parametrize(
    ("selectors", "expected"),
    [
        pytest.param((), True, id="none"),
        pytest.param(([("zone", True, ("east",))],), True, id="these nodes"),
        pytest.param(([("zone", True, ("north", "west"))],), False, id="others"),
        pytest.param(([("zone", False, ("east",))],), False, id="not these"),
        pytest.param(([("zone", False, ("west",))],), True, id="not others"),
        pytest.param(([("disk", True, ("ssd",))],), True, id="a label that some of these may have"),
        pytest.param(([("disk", True, ("ssd",)), ("zone", True, ("west",))],), False, id="one of two conditions"),
        pytest.param(([("zone", True, ("west",))], [("zone", True, ("east",))]), True, id="a second choice"),
    ],
)
def test_work_may_use_nodes_that_its_selectors_allow(selectors, expected):
    assert may_use(selectors, EAST) is expected
    assert may_use(selectors, {})
