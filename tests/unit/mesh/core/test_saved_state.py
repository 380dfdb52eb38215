"""State handlers as values and as decorators, and snapshots without their bytes."""

from __future__ import annotations

import pytest

from mesh.core.ids import TaskId
from mesh.core.saved_state import (
    Checkpoint,
    SavedState,
    SnapshotLevel,
    StateHandlerError,
    StateHandlers,
    StateSnapshot,
    handlers_of,
    plain_class,
    register_state_handlers,
)


def preserve(ctx):
    return SavedState(payload=ctx.actor_state)


def restore(ctx, saved):
    vars(ctx.actor_ref).update(saved.payload)


class RemoteClass:
    """Fake of the class that `@ray.remote` makes."""

    def __init__(self, modified_class):
        self.__ray_metadata__ = type("Metadata", (), {"modified_class": modified_class})


def test_s17_state_handlers_are_registered_as_a_value():
    handlers = register_state_handlers(preserver=preserve, restorer=restore)
    assert handlers == StateHandlers(preserve, restore)
    assert register_state_handlers() == StateHandlers()


def test_s17_state_handlers_are_registered_by_a_decorator():
    @register_state_handlers(preserver=preserve, restorer=restore)
    class Trainer:
        pass

    assert isinstance(Trainer, type)
    assert handlers_of(Trainer) == StateHandlers(preserve, restore)


def test_s17_the_decorator_stands_above_ray_remote_as_well():
    class Trainer:
        pass

    remote = register_state_handlers(preserver=preserve)(RemoteClass(Trainer))
    assert isinstance(remote, RemoteClass)
    assert plain_class(remote) is Trainer
    assert handlers_of(remote) == handlers_of(Trainer) == StateHandlers(preserve, None)


def test_a_class_without_handlers_has_none():
    assert handlers_of(int) == StateHandlers()


def test_what_cannot_be_called_is_refused_by_its_name():
    with pytest.raises(StateHandlerError, match="restorer is 'restore', which cannot be called; give a function"):
        register_state_handlers(restorer="restore")


def test_a_saved_state_needs_its_payload_alone():
    assert SavedState(payload=b"x").notes == {}


def test_a_snapshot_without_its_bytes_keeps_its_metadata():
    snapshot = StateSnapshot(
        task=TaskId("t"),
        attempt=3,
        at_ms=5,
        level=SnapshotLevel.CUSTOM,
        progress=0.5,
        checkpoint=Checkpoint(number=2, at_ms=4, size_bytes=3),
        checkpoint_bytes=b"abc",
        arguments=b"de",
        saved_bytes=b"f",
        why="first",
    )
    assert snapshot.size_bytes == 6
    left = snapshot.without_bytes("too large")
    assert (left.level, left.progress, left.size_bytes, left.why) == (SnapshotLevel.METADATA, 0.5, 0, "first; too large")
    assert left.checkpoint is None
