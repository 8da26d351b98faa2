"""Which prompts a run continues: the specification, and the prompts and token ids it stands for."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dspark.workload.records import Message, Prompt, num_unused_turns, prompt_of
from dspark.workload.sources import DOMAINS, builtin_records, dataset_records, jsonl_path, jsonl_records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from transformers import PreTrainedTokenizerBase

    from dspark.workload.records import Record

__all__ = ["Message", "Prompt", "PromptSpec", "check_prompts", "encode_prompts", "load_prompts"]

logger = logging.getLogger(__name__)

ORDERS = ("first", "shuffle")


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSpec:
    """Where prompts come from and which of them are run.

    Raises:
        ValueError: a field is outside its range.
    """

    path: str | None = None  # JSONL file, folder with a data set, or hub id; None: the built-in prompts
    domains: tuple[str, ...] | None = None  # of the built-in prompts; None: all, interleaved
    config: str | None = None  # configuration of a data set that has several
    split: str | None = None  # of a data set; None: its only one
    column: str | None = None  # field that holds the prompt; None: turns, prompt or messages
    skip: int = 0  # records at the source's beginning that are left out
    num_requests: int | None = None  # None: all
    order: str = "first"  # or "shuffle", by seed
    seed: int = 0
    system: str | None = None  # a system message in front of every prompt
    max_prompt_chars: int | None = None  # longer prompts are left out before any is counted

    def __post_init__(self) -> None:
        for name in ("num_requests", "max_prompt_chars"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be >= 1, or null for no limit, got {value!r}")
        if self.skip < 0:
            raise ValueError(f"skip must be >= 0, got {self.skip!r}")
        if self.path == "":
            raise ValueError("path must name a file or a data set, or be null for the built-in prompts")
        if self.order not in ORDERS:
            raise ValueError(f"order must be one of {', '.join(ORDERS)}, got {self.order!r}")
        for domain in self.domains or ():
            if domain not in DOMAINS:
                raise ValueError(f"domains must be from {', '.join(DOMAINS)}, got {domain!r}")
        if self.domains is not None and (not self.domains or len(set(self.domains)) < len(self.domains)):
            raise ValueError(f"domains must name each domain once, got {list(self.domains)!r}")


def check_prompts(spec: PromptSpec) -> int | None:
    """How many prompts the run will have, or None for a data set, which is not loaded here.

    Takes milliseconds and imports nothing heavy, so a run can be refused before its model loads.

    Raises:
        ValueError: as ``load_prompts``.
    """
    if spec.path is not None and jsonl_path(spec.path) is None:
        _refuse_without_effect(spec, ("domains",), "a data set")
        return None
    return len(_select(_read(spec), spec))


def load_prompts(spec: PromptSpec) -> list[Prompt]:
    """The prompts to run, in order; their ids do not depend on the order or the number chosen.

    Raises:
        ValueError: no such source, a malformed or empty one, a record without a prompt, two
            records of one id, or fewer prompts than asked for.
    """
    records = _read(spec)
    chosen = _select(records, spec)
    source = spec.path or "the built-in prompts"
    num_cut = sum(num_unused_turns(record, spec.column) > 0 for record in records)
    if num_cut:
        logger.warning(
            "%d of %d records of %s have later turns: only first turns run", num_cut, len(records), source
        )
    logger.info("%d prompts of %d records of %s", len(chosen), len(records), source)
    return chosen


def encode_prompts(
    prompts: Sequence[Prompt],
    tokenizer: PreTrainedTokenizerBase | None,
    *,
    chat_template: bool = True,
    max_context: int | None = None,
) -> list[tuple[int, ...]]:
    """Token ids, one tuple a prompt.

    Args:
        prompts: the prompts.
        tokenizer: the target's.
        chat_template: apply the tokenizer's chat template and open the assistant's turn. Without
            it, or where the tokenizer has none, a prompt is the text of its messages with a blank
            line between two.
        max_context: the target's context, in tokens.

    Raises:
        ValueError: no tokenizer, a prompt that fills the context, one that encodes to nothing, or
            one that the template refuses; the prompt is named by its id.
    """
    if tokenizer is None:
        raise ValueError(
            "the target has no tokenizer to encode prompts with: use a target folder that has one"
        )
    if chat_template and not tokenizer.chat_template:
        logger.info("the tokenizer has no chat template: prompts are plain text")
        chat_template = False
    encoded = []
    for prompt in prompts:
        ids = _chat_ids(prompt, tokenizer) if chat_template else _text_ids(prompt, tokenizer)
        if not ids:
            raise ValueError(f"prompt {prompt.id!r} encodes to no token: remove it")
        if max_context is not None and len(ids) >= max_context:
            raise ValueError(
                f"prompt {prompt.id!r} has {len(ids)} tokens and leaves no room in the target's context of "
                f"{max_context}: leave long prompts out with max_prompt_chars, or use another target"
            )
        encoded.append(tuple(ids))
    return encoded


def _read(spec: PromptSpec) -> list[Record]:
    """All records of the source."""
    if spec.path is None:
        _refuse_without_effect(spec, ("config", "split", "column"), "the built-in prompts")
        return builtin_records(spec.domains or DOMAINS)
    file = jsonl_path(spec.path)
    if file is not None:
        _refuse_without_effect(spec, ("domains", "config", "split"), "a JSONL file")
        return jsonl_records(file)
    _refuse_without_effect(spec, ("domains",), "a data set")
    return dataset_records(spec.path, spec.config, spec.split)


def _refuse_without_effect(spec: PromptSpec, names: tuple[str, ...], kind: str) -> None:
    """Raises for a field that this kind of source would ignore."""
    for name in names:
        if getattr(spec, name) is not None:
            raise ValueError(f"{name}={getattr(spec, name)!r} has no effect on {kind}: leave it unset")


def _select(records: list[Record], spec: PromptSpec) -> list[Prompt]:
    """The prompts of the records that the specification chooses."""
    prompts: dict[str, Prompt] = {}
    for record in records:
        prompt = prompt_of(record, column=spec.column, system=spec.system)
        if prompt.id in prompts:
            raise ValueError(
                f"{record.where}: the id {prompt.id!r} was used by an earlier record: make ids unique"
            )
        prompts[prompt.id] = prompt
    chosen = list(prompts.values())[spec.skip :]
    if spec.max_prompt_chars is not None:
        chosen = [prompt for prompt in chosen if prompt.num_chars <= spec.max_prompt_chars]
    wanted = len(chosen) if spec.num_requests is None else spec.num_requests
    if not chosen or wanted > len(chosen):
        limit = f" of at most {spec.max_prompt_chars} characters" if spec.max_prompt_chars else ""
        limit += f" behind the first {spec.skip}" if spec.skip else ""
        raise ValueError(
            f"{max(wanted, 1)} prompts are wanted, but {spec.path or 'the built-in set'} holds "
            f"{len(chosen)}{limit}: lower num_requests or skip, raise max_prompt_chars or use another source"
        )
    if spec.order == "shuffle":
        # by hash, so that the order is the same with every library version and machine
        chosen.sort(key=lambda prompt: hashlib.sha256(f"{spec.seed}/{prompt.id}".encode()).digest())
    return chosen[:wanted]


def _chat_ids(prompt: Prompt, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Ids of the chat with the assistant's turn opened."""
    from jinja2.exceptions import TemplateError

    messages = [{"role": message.role, "content": message.content} for message in prompt.messages]
    try:
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    except TemplateError as error:
        raise ValueError(f"the chat template refuses prompt {prompt.id!r}: {error}") from error
    # the template writes the special tokens itself
    return tokenizer(str(text), add_special_tokens=False)["input_ids"]


def _text_ids(prompt: Prompt, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Ids of the messages as plain text."""
    return tokenizer("\n\n".join(message.content for message in prompt.messages))["input_ids"]
