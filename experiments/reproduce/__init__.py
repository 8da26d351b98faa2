"""Papers reproduced: experiments by name, a number of ours beside each number of theirs, one report.

`dspark reproduce` is the command; :mod:`~experiments.reproduce.claims` has the rule of the statuses. An
experiment is a folder ``experiments/eNN_name/`` with an empty ``__init__.py``, a ``README.md`` and an
``experiment.py`` like this one, and nothing has to be registered::

    from experiments.reproduce import Claim, Context, Experiment, Outcome, Shape

    FASTER = Claim(what="speed-up of a depth of 3 at acceptance 0.7", paper=2.53, tolerance=0.005)
    DEEPER = Claim(what="depth 9 over depth 3 at acceptance 0.7", shape=Shape(above=1.0))

    def run(context: Context) -> Outcome:
        from dspark.policies.leviathan_law import speedup  # slow to import, so not at the top

        three, nine = speedup(0.7, 3, 0.0), speedup(0.7, 9, 0.0)
        return Outcome(
            claims=(FASTER.measured(three), DEEPER.measured(nine / three)),
            notes=("The closed form, where drafts cost nothing.",),
        )

    EXPERIMENT = Experiment(
        name="e99_example",
        title="An example",
        question="Is the closed form the paper's?",
        source="Leviathan et al., arXiv 2211.17192, table 1",
        minutes=0.1,
        run=run,
        claims=(FASTER, DEEPER),
    )

- A claim has the paper's number with a ``tolerance``, or a ``shape`` for what the paper only says, or both.
  ``claim.measured(number, note)`` and ``claim.left_out(why)`` complete it; statuses follow by themselves.
- ``context.folder`` is for files; a :class:`Figure` names a PNG or SVG in it, with an alt text. If a run is
  stopped, the next one finds the folder as it was left: whatever can resume should.
- ``context.quick`` asks for a run of seconds on something tiny: tests run every experiment so.
- :class:`Need` says what a machine may lack: then nothing is run, and the claims are shown with the reason.
- :class:`Setting` makes ``NAME=VALUE`` on the command line ``context.settings[NAME]``.
- :func:`~experiments.reproduce.commands.dspark` runs a command of the package into a folder.
- ``minutes`` of all experiments together must stay within 45 on 2 cores.
"""

from experiments.reproduce.claims import Claim, Shape, Status
from experiments.reproduce.experiment import (
    REPO,
    Context,
    Experiment,
    Figure,
    Need,
    Outcome,
    ResultTable,
    Setting,
)

__all__ = [
    "REPO",
    "Claim",
    "Context",
    "Experiment",
    "Figure",
    "Need",
    "Outcome",
    "ResultTable",
    "Setting",
    "Shape",
    "Status",
]
