"""Checkpoint formats of drafters: found out by their files, and turned into one spec and one module."""

from dspark.drafters.formats.detect import DrafterFolder, describe
from dspark.drafters.formats.load import load_drafter_folder
from dspark.drafters.formats.save import save_drafter_folder
from dspark.drafters.formats.target_facts import TargetFacts, check_target

__all__ = [
    "DrafterFolder",
    "TargetFacts",
    "check_target",
    "describe",
    "load_drafter_folder",
    "save_drafter_folder",
]
