"""Where the prompts of training come from: the built-in ones, hub data sets, or files of one local folder."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dspark.training.held_out import refuse_held_out_name, split_held_out
from dspark.workload.prompts import PromptSpec, check_prompts, load_prompts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dspark.workload.records import Prompt

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSource:
    """One source of prompts.

    Raises:
        ValueError: a name that cannot be part of an id, a source that is held out, or a number below 1.
    """

    name: str  # part of every answer's id
    path: str | None  # JSONL file, folder with a data set, or hub id; None: the built-in prompts
    file: str | None = None  # file of prompts.folder that stands for `path` where a folder is given
    config: str | None = None  # of a data set that has several
    split: str | None = None
    column: str | None = None  # field that holds the prompt; None: turns, prompt or messages
    num_records: int | None = None  # the first so many; None: all
    max_prompt_chars: int | None = None  # longer prompts are left out
    prefix: str = ""  # put in front of a prompt that lacks it
    suffix: str = ""  # put behind a prompt that lacks it

    def __post_init__(self) -> None:
        if not self.name or any(letter in self.name for letter in "/#"):
            raise ValueError(f"name must be a word without / and #, got {self.name!r}")
        if self.num_records is not None and self.num_records < 1:
            raise ValueError(f"num_records must be >= 1, or null for all, got {self.num_records}")
        for path in (self.path, self.file):
            if path is not None:
                refuse_held_out_name(path)
        self.spec(None)  # refuses what no specification of prompts can have

    def spec(self, folder: Path | None) -> PromptSpec:
        """What ``workload`` reads: the file of the folder if there is one, else the path."""
        if folder is not None and self.file is not None:
            return PromptSpec(path=str(folder / self.file))
        return PromptSpec(path=self.path, config=self.config, split=self.split, column=self.column)


def check_sources(sources: Sequence[PromptSource], folder: Path | None) -> None:
    """Nothing, if the sources are there as far as that can be seen without a network.

    Raises:
        ValueError: no source, a name twice, no such folder, or a file that is missing or malformed.
    """
    names = [source.name for source in sources]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"prompts.sources must name at least one source, each once, got {names}")
    if folder is not None and not folder.is_dir():
        raise ValueError(f"prompts.folder {str(folder)!r} does not exist: give a folder, or null for the hub")
    for source in sources:
        try:
            check_prompts(source.spec(folder))
        except ValueError as error:
            raise ValueError(f"prompts.sources: {source.name}: {error}") from error


def training_prompts(sources: Sequence[PromptSource], folder: Path | None) -> dict[str, Prompt]:
    """The prompts by their key ``source/id``, without those that are held out for evaluation.

    Raises:
        ValueError: a source cannot be read, or holds nothing that may be trained on.
    """
    found: dict[str, Prompt] = {}
    for source in sources:
        prompts = load_prompts(source.spec(folder))[: source.num_records]
        allowed, num_held_out = split_held_out(prompts)
        if num_held_out:
            _LOG.info("%s: %d prompts are held out for evaluation", source.name, num_held_out)
        limit = source.max_prompt_chars
        kept = [prompt for prompt in allowed if limit is None or prompt.num_chars <= limit]
        if not kept:
            raise ValueError(
                f"prompts.sources: {source.name}: none of its {len(prompts)} prompts can be trained on: "
                f"{num_held_out} are held out for evaluation, the rest is longer than "
                f"max_prompt_chars={limit}"
            )
        found.update((f"{source.name}/{prompt.id}", _wrapped(prompt, source)) for prompt in kept)
    return found


def mixed(keys: Sequence[str], seed: int) -> list[str]:
    """The keys in an order that a hash gives, so that any beginning of it holds every source."""
    return sorted(keys, key=lambda key: hashlib.sha256(f"{seed}/{key}".encode()).digest())


def _wrapped(prompt: Prompt, source: PromptSource) -> Prompt:
    """The prompt with the source's prefix and suffix around its last message."""
    last = prompt.messages[-1]
    prefix = "" if last.content.startswith(source.prefix) else source.prefix
    suffix = "" if last.content.rstrip().endswith(source.suffix.strip()) else source.suffix
    content = prefix + last.content + suffix
    return replace(prompt, messages=(*prompt.messages[:-1], replace(last, content=content)))
