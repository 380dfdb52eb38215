"""Whether a gateway can answer at all."""

from __future__ import annotations

from typing import Literal

from serve_apps.schemas.view import View


class HealthView(View):
    """Whether requests can be answered."""

    status: Literal["ok"]
