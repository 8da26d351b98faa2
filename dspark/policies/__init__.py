"""Depth policies: one idea a file, the contract in ``base``."""

from dspark.policies.base import Policy
from dspark.policies.batch_table import BatchTable
from dspark.policies.check import check_policy
from dspark.policies.confidence import Confidence
from dspark.policies.fixed import Fixed

__all__ = ["BatchTable", "Confidence", "Fixed", "Policy", "check_policy"]
