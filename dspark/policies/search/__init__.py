"""Searches over the number of verified tokens: ranked positions, the curve of throughput, and rules."""

from dspark.policies.search.curve import cached_tokens, throughput
from dspark.policies.search.ranking import Ranking, rank
from dspark.policies.search.rules import arg_max, buckets, early_stop

__all__ = ["Ranking", "arg_max", "buckets", "cached_tokens", "early_stop", "rank", "throughput"]
