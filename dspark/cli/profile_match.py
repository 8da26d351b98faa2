"""A warning where a run's costs were measured on another model than the one it runs."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from dspark.cost.profile_file import load_profile, profile_cost

if TYPE_CHECKING:
    from dspark.config.schema import Component
    from dspark.models.target import HFTarget

logger = logging.getLogger(__name__)

_MAKER = f"{profile_cost.__module__}.{profile_cost.__name__}"


def warn_of_other_profile(cost: Component, target: HFTarget) -> None:
    """Log a warning unless ``cost`` is the profile of ``target``, or no profile at all.

    It is no error: policies may be studied under another model's costs.
    """
    if cost.target != _MAKER:
        return
    path = cost.settings["path"]
    model = load_profile(Path(path)).model
    dtype = str(target.dtype).removeprefix("torch.")
    measured = f"{model.name}, {model.dtype}, numerics {model.numerics}"
    here = f"{target.name}, {dtype}, numerics {target.numerics}"
    if measured != here:
        logger.warning("cost: the profile %s is of target %s, and this run has %s", path, measured, here)
