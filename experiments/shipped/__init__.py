"""What experiments with the drafter that comes with the package share.

:mod:`~experiments.shipped.models` has the setting of the drafter and what a machine needs for it,
:mod:`~experiments.shipped.recordings` one trace and one profile for all of them,
:mod:`~experiments.shipped.machines` whose seconds count, and
:mod:`~experiments.shipped.commands` the commands that run on these.
"""
