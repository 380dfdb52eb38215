"""Numbers of the parts of a batch, equal for all links, because a mesh may change its link."""

from collections.abc import Iterator
from itertools import chain

from mesh.core.wire import encode
from mesh.stages.messages import NodesSucceeded, StageMessage

#: Most parts of one batch: numbers of parts lie between those of the batch and of the next.
PARTS_MAX = 4_096
#: Most messages, and approximate bytes, per call.
PART_MESSAGES, PART_BYTES = 500, 512 << 10
#: Most tasks of one `NodesSucceeded`, since the link bounds lists; a longer one is split.
PART_TASKS = 1_000


def parts_of(batch: int, messages: tuple[StageMessage, ...]) -> Iterator[tuple[int, tuple[StageMessage, ...]]]:
    """Return the messages in order, in parts that fit into a call, each with its number. Without messages there is one empty part.

    Args:
        batch: Counts up from 1 per claim.
    """
    number = batch * PARTS_MAX
    part: list[StageMessage] = []
    part_bytes = 0
    for message in chain.from_iterable(map(_bounded, messages)):
        size_bytes = len(encode(message))
        if part and (len(part) == PART_MESSAGES or part_bytes + size_bytes > PART_BYTES):
            yield number, tuple(part)
            number, part, part_bytes = number + 1, [], 0
        part.append(message)
        part_bytes += size_bytes
    yield number, tuple(part)


def _bounded(message: StageMessage) -> Iterator[StageMessage]:
    """Yield the message, or parts of it that each fit into a call."""
    if not isinstance(message, NodesSucceeded):
        yield message
        return
    for part in message.parts(PART_TASKS):
        if len(part.tasks) > 1 and len(encode(part)) > PART_BYTES:
            yield from chain.from_iterable(map(_bounded, part.parts(-(-len(part.tasks) // 2))))
        else:
            yield part
