"""Between Hydra and the typed configuration: plain values, policy entries, errors in one line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from dspark.config.typed import did_you_mean

_LAUNCHERS = {
    "hydra/launcher/joblib": "joblib",
    "hydra/launcher/ray": "ray",
    "hydra/launcher/submitit_local": "slurm",
    "hydra/launcher/submitit_slurm": "slurm",
}
"""Options that packages bring, and the extra that installs them."""

_OPENING, _CLOSING = "[{(", "]})"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyEntry:
    """One entry of ``compare.policies``, such as ``fixed 4`` or ``confidence depth=8``."""

    option: str  # of the group policy
    value: str | None  # for the first of its settings
    overrides: tuple[str, ...]  # key=value


def to_plain(node: DictConfig) -> dict[str, Any]:
    """The node as plain values, interpolations resolved.

    Raises:
        ValueError: a mandatory value is missing, or an interpolation points nowhere.
    """
    try:
        plain = OmegaConf.to_container(node, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise ValueError(one_line(error)) from error
    assert isinstance(plain, dict), "a configuration is a mapping"
    return {str(key): value for key, value in plain.items()}


def parse_entry(text: str) -> PolicyEntry:
    """The entry that ``NAME [VALUE] [key=value ...]`` stands for; brackets keep their spaces.

    Raises:
        ValueError: it has no name, or a second value without a key.
    """
    words = _words(text)
    if not words or "=" in words[0]:
        raise ValueError(f"an entry of compare.policies is 'NAME [VALUE] [key=value ...]', got {text!r}")
    values = [word for word in words[1:] if not re.match(r"[\w.]+=", word)]
    if len(values) > 1 or (values and values[0] != words[1]):
        raise ValueError(
            f"an entry of compare.policies is 'NAME [VALUE] [key=value ...]', got {text!r}: "
            "only the first setting goes without its name"
        )
    return PolicyEntry(
        option=words[0],
        value=values[0] if values else None,
        overrides=tuple(word for word in words[1:] if word not in values),
    )


def compose_policy(entry: PolicyEntry, search_path: Sequence[str] = ()) -> tuple[str, dict[str, Any]]:
    """The label and the plain node of an entry, out of Hydra's present search path.

    Args:
        entry: option and overrides.
        search_path: Hydra overrides that extend the search path.

    Raises:
        ValueError: no such option or setting.
    """
    choice = [*search_path, f"policy={entry.option}"]
    defaults = _compose(choice)
    overrides = [f"policy.{override}" for override in entry.overrides]
    if entry.value is not None:
        settings = setting_names(defaults)
        if not settings:
            raise ValueError(f"policy {entry.option} has no settings, so {entry.value!r} sets nothing")
        overrides.insert(0, f"policy.{settings[0]}={entry.value}")
    node = _compose([*choice, *overrides]) if overrides else defaults
    return policy_label(entry.option, node, defaults), node


def setting_names(node: Mapping[str, Any]) -> list[str]:
    """The settings of a policy's node in order; a value without a name is that of the first."""
    return [key for key in node if key != "_target_"]


def given_settings(entry: PolicyEntry, node: Mapping[str, Any]) -> set[str]:
    """The settings that an entry sets itself; the others are as the option's YAML has them."""
    named = {override.partition("=")[0] for override in entry.overrides}
    return named if entry.value is None else named | {setting_names(node)[0]}


def policy_options(search_path: Sequence[str] = ()) -> list[str]:
    """The options of the group policy, out of Hydra's present search path.

    Args:
        search_path: Hydra overrides that extend the search path.
    """
    loader = GlobalHydra.instance().config_loader()
    return sorted(loader.get_group_options("policy", config_name="run", overrides=list(search_path)))


def policy_label(option: str, node: Mapping[str, Any], defaults: Mapping[str, Any]) -> str:
    """The name of a policy in tables: its option, and what differs from the option's YAML.

    The first setting goes without its name; a policy's only setting is always shown: ``fixed 4``.
    """
    settings = setting_names(node)
    words = [option]
    for i, key in enumerate(settings):
        if len(settings) == 1 or node[key] != defaults.get(key):
            shown = str(node[key]).replace(" ", "")
            words.append(shown if i == 0 else f"{key}={shown}")
    return " ".join(words)


def one_line(error: Exception) -> str:
    """What went wrong while composing, in one line that says what to do."""
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        return _no_option(str(error.missing_cfg_file), [str(option) for option in error.options or ()])
    if isinstance(error, MissingMandatoryValue):
        key = str(error.full_key or str(error).split(": ")[-1])
        return f"{key} is missing: pass {key}=VALUE"
    if isinstance(error, OverrideParseException):
        return _unreadable(error)
    cause = error.__cause__ if isinstance(error, HydraException) else error
    parent = getattr(cause, "parent_node", None)
    if "is not in struct" in str(cause) and isinstance(parent, DictConfig):
        return _no_key(str(cause.full_key), [str(key) for key in parent])  # type: ignore[union-attr]
    group = re.match(r"Could not override '([\w/]+)'\. No match in the defaults list", str(error))
    if group:
        return _no_key(group[1], [])
    ambiguous = re.match(r"Ambiguous value for argument '(.+)'", str(error))
    if ambiguous:
        return f"{ambiguous[1]} is several values: --multirun sweeps over them, KEY=[a,b] is a list"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return "; ".join(line for line in lines if not line.startswith(("full_key:", "object_type=")))


def _unreadable(error: OverrideParseException) -> str:
    """Hydra's grammar speaks of tokens; people typed settings."""
    override = error.override
    if "=" not in override:
        return f"cannot read {override!r}: settings are KEY=VALUE"
    if override.startswith("compare.policies="):
        return f"cannot read {override!r}: entries with '=' need quotes of their own, as in ['fixed depth=4']"
    return f"cannot read {override!r}: {error.message.splitlines()[0]}; special characters need quotes"


def _no_option(name: str, options: list[str]) -> str:
    group, _, option = name.rpartition("/")
    if not group:
        return f"no primary config {option!r}" + did_you_mean(option, options)
    if name in _LAUNCHERS:
        return f"{group}={option} is not installed: run pip install 'dspark[{_LAUNCHERS[name]}]'"
    hint = did_you_mean(option, options) or ";"
    return f"{group}={option}: no such {group}{hint} choices: {', '.join(options)}"


def _no_key(full_key: str, known: list[str]) -> str:
    where, _, key = full_key.rpartition(".")
    if where:
        known = [name for name in known if name != "_target_"]
        return f"{where} has no setting {key!r}: it has {', '.join(known)}{did_you_mean(key, known)}"
    known = [name for name in known if name != "hydra"]
    if key == "policy":
        return "no policy=NAME here: `compare` takes policies as compare.policies=[...]"
    hint = did_you_mean(key, known) or ": --help lists groups and settings"
    return f"the configuration has no {key!r}{hint}"


def _compose(overrides: list[str]) -> dict[str, Any]:
    try:
        node = hydra.compose("run", overrides=overrides).policy  # the command that has the group
    except HydraException as error:
        raise ValueError(one_line(error)) from error
    if not isinstance(node, DictConfig):
        raise ValueError(f"the option {overrides[-1]!r} holds no policy")
    return to_plain(node)


def _words(text: str) -> list[str]:
    """The text cut at spaces outside brackets."""
    words, depth = [""], 0
    for letter in text.strip():
        depth += (letter in _OPENING) - (letter in _CLOSING)
        if letter == " " and depth == 0:
            words.append("")
        else:
            words[-1] += letter
    return [word for word in words if word]
