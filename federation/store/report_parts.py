"""How the messages of a batch are numbered on their way to the store: the same by every way, since a mesh may change its way."""

from collections.abc import Iterator

from mesh.messages import StageMessage
from mesh.wire import encode

#: A batch of the mesh is so many batches of the store at most: parts of one are numbered between it and the next.
PARTS_MAX = 4_096
#: Messages, and about so many bytes of them, that are reported in one call.
PART_MESSAGES, PART_BYTES = 500, 512 << 10


def parts_of(batch: int, messages: tuple[StageMessage, ...]) -> Iterator[tuple[int, tuple[StageMessage, ...]]]:
    """The messages in order, in parts that a call can carry, each with its number; one empty part when there are none.

    Args:
        batch: Counts up from 1 per claim.
    """
    number = batch * PARTS_MAX
    part: list[StageMessage] = []
    part_bytes = 0
    for message in messages:
        size_bytes = len(encode(message))
        if part and (len(part) == PART_MESSAGES or part_bytes + size_bytes > PART_BYTES):
            yield number, tuple(part)
            number, part, part_bytes = number + 1, [], 0
        part.append(message)
        part_bytes += size_bytes
    yield number, tuple(part)
