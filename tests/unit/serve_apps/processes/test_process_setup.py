"""Process-wide settings of the stack's processes."""

import gc

import pytest

from serve_apps.processes.process import collect_seldom


@pytest.fixture
def usual_collection():
    before = gc.get_threshold()
    yield before
    gc.set_threshold(*before)
    gc.unfreeze()


def test_existing_objects_are_frozen_and_collection_is_rare(usual_collection):
    collect_seldom()
    assert gc.get_freeze_count() > 0
    assert gc.get_threshold()[0] > 10 * usual_collection[0]
    assert gc.get_threshold()[1:] == usual_collection[1:]
