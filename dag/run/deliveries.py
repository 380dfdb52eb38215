"""Delivery of inputs to stages: each input once, as a value or as "will not come"."""

from __future__ import annotations

from dag.run.node_table import NodeRecord
from dag.run.runs import DeliverInput, StageRecord
from dag.run.state_writer import StateWriter
from dag.run.states import STAGE_ENDS
from mesh.core.ids import NodeId


class Deliveries:
    def __init__(self, writer: StateWriter) -> None:
        self._writer = writer

    def deliver(self, stage: StageRecord, node: NodeRecord) -> None:
        """Send a stored value to the stage, unless this input was already delivered or withheld."""
        if node.node in stage.delivered or node.stored is None:
            return
        stage.delivered = (*stage.delivered, node.node)
        self._writer.touch_stage(stage)
        self._writer.decide(DeliverInput(stage=stage.stage, node=node.node, value=node.stored))

    def withhold(self, stage: StageRecord, node: NodeId) -> None:
        """Report to the stage that the input will not come. The stage drops the nodes that need it, and can end."""
        if stage.state not in STAGE_ENDS and node not in stage.delivered:
            stage.delivered = (*stage.delivered, node)
            self._writer.touch_stage(stage)
            self._writer.decide(DeliverInput(stage=stage.stage, node=node, value=None))
