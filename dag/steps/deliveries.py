"""What a stage is told of its inputs, once each: here is the value, or it will not come."""

from __future__ import annotations

from dag.runs import DeliverInput, NodeRecord, StageRecord
from dag.states import STAGE_ENDS
from dag.steps.state_writer import StateWriter
from mesh.ids import NodeId


class Deliveries:
    """Inputs on their way to stages that were sent."""

    def __init__(self, writer: StateWriter) -> None:
        self._writer = writer

    def deliver(self, stage: StageRecord, node: NodeRecord) -> None:
        """Hand over a stored value, unless the stage has heard of this input."""
        if node.node in stage.delivered or node.stored is None:
            return
        stage.delivered = (*stage.delivered, node.node)
        self._writer.touch_stage(stage)
        self._writer.decide(DeliverInput(stage=stage.stage, node=node.node, value=node.stored))

    def withhold(self, stage: StageRecord, node: NodeId) -> None:
        """Tell a stage that still waits for it that the input will not come: it drops what needs it, and can end."""
        if stage.state not in STAGE_ENDS and node not in stage.delivered:
            stage.delivered = (*stage.delivered, node)
            self._writer.touch_stage(stage)
            self._writer.decide(DeliverInput(stage=stage.stage, node=node, value=None))
