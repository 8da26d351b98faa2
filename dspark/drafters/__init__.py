"""Drafters: what proposes tokens, the contract in ``base``."""

from dspark.drafters.base import DraftBatch, Drafter, DraftSampler, Proceed
from dspark.drafters.ngram import NgramDrafter
from dspark.drafters.synthetic import SyntheticDrafter

__all__ = ["DraftBatch", "DraftSampler", "Drafter", "NgramDrafter", "Proceed", "SyntheticDrafter"]
