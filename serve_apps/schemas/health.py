"""Health of a gateway."""

from __future__ import annotations

from typing import Literal

from serve_apps.schemas.view import View


class HealthView(View):
    """Whether the gateway can answer requests."""

    status: Literal["ok"]
