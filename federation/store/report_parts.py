"""Numbers of the parts of a batch, equal for all links, because a mesh may change its link."""

from collections.abc import Iterator
from typing import TypeVar

from mesh.core.wire import encode
from mesh.stages.messages import NodeOutput, StageMessage

M = TypeVar("M", bound=StageMessage | NodeOutput)

#: Most parts of one batch: numbers of parts lie between those of the batch and of the next.
PARTS_MAX = 4_096
#: Most messages, and approximate bytes, per call.
PART_MESSAGES, PART_BYTES = 500, 512 << 10


def parts_of(batch: int, messages: tuple[M, ...]) -> Iterator[tuple[int, tuple[M, ...]]]:
    """Return the messages in order, in parts that fit into a call, each with its number. Without messages there is one empty part.

    Args:
        batch: Counts up from 1 per claim.
    """
    number = batch * PARTS_MAX
    part: list[M] = []
    part_bytes = 0
    for message in messages:
        size_bytes = len(encode(message))
        if part and (len(part) == PART_MESSAGES or part_bytes + size_bytes > PART_BYTES):
            yield number, tuple(part)
            number, part, part_bytes = number + 1, [], 0
        part.append(message)
        part_bytes += size_bytes
    yield number, tuple(part)
