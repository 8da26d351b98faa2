"""Experiments by name: the folders ``eNN_*`` that hold an ``experiment.py``."""

from __future__ import annotations

import difflib
import importlib
from typing import TYPE_CHECKING

from experiments.reproduce.experiment import REPO, Experiment, Setting

if TYPE_CHECKING:
    from collections.abc import Iterable


def names() -> list[str]:
    """All names in their order; nothing is imported."""
    return sorted(path.parent.name for path in (REPO / "experiments").glob("e[0-9][0-9]_*/experiment.py"))


def load(name: str) -> Experiment:
    """The experiment of a folder; its module is imported now.

    Raises:
        ValueError: the module's record has another name.
    """
    experiment = importlib.import_module(f"experiments.{name}.experiment").EXPERIMENT
    if experiment.name != name:
        raise ValueError(
            f"the experiment in {name} must have the name of its folder, got {experiment.name!r}"
        )
    return experiment


def chosen(words: Iterable[str]) -> list[Experiment]:
    """The experiments of these words, each once and in their own order: names or numbers like ``e03``.

    Raises:
        ValueError: a word that is neither.
    """
    known = names()
    found = set()
    for word in words:
        if word == "all":
            found.update(known)
            continue
        fitting = [name for name in known if word in (name, name[:3])]
        if not fitting:
            near = difflib.get_close_matches(word, [*known, "all", "list"], n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise ValueError(f"no experiment {word!r}: {hint}there are all, {', '.join(known)}")
        found.update(fitting)
    return [load(name) for name in known if name in found]


def settings_of(experiments: Iterable[Experiment]) -> dict[str, Setting]:
    """The settings that these experiments have, by name."""
    return {setting.name: setting for experiment in experiments for setting in experiment.settings}


def parse_settings(words: Iterable[str], experiments: Iterable[Experiment]) -> dict[str, str]:
    """Values by name of ``NAME=VALUE`` words.

    Raises:
        ValueError: a name that none of the experiments knows, or one that is given twice.
    """
    known = settings_of(experiments)
    values: dict[str, str] = {}
    for word in words:
        name, _, value = word.partition("=")
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            listed = ", ".join(known) or "none"
            raise ValueError(f"no setting {name!r}: {hint}the experiments asked for have {listed}")
        if name in values:
            raise ValueError(f"{name} must be set once, got {values[name]!r} and {value!r}")
        values[name] = value
    return values
