"""The losslessness auditor: exact output laws on toy models, and perturbation of real decisions."""

from dspark.analysis.audit.cases import trace_cost
from dspark.analysis.audit.examine import Effort, examine
from dspark.analysis.audit.report import lines, policies_table, worlds_table
from dspark.analysis.audit.rules import EXACT_RULES, exact_rule
from dspark.analysis.audit.traces import TraceResult, perturb
from dspark.analysis.audit.verdict import Audit, WorldResult

__all__ = [
    "EXACT_RULES",
    "Audit",
    "Effort",
    "TraceResult",
    "WorldResult",
    "exact_rule",
    "examine",
    "lines",
    "perturb",
    "policies_table",
    "trace_cost",
    "worlds_table",
]
