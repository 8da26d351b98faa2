"""Everything that can be refused before a model loads is refused here, cheapest checks first."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from dspark.config import build, trained
from dspark.config.build import named
from dspark.config.schema import Component, DraftModelConfig
from dspark.drafters.shipped import local_source
from dspark.engine.checks import check_block, check_signals
from dspark.models.sources import check_source
from dspark.policies.check import check_policy
from dspark.verification import check_combination
from dspark.workload.prompts import check_prompts, encode_prompts, load_prompts
from dspark.workload.requests import build_requests

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from dspark.config.schema import Config
    from dspark.cost.base import CostModel
    from dspark.drafters.base import Drafter
    from dspark.policies.base import Policy
    from dspark.policies.check import SignalSource
    from dspark.types import Request
    from dspark.verification.base import Verification


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A checked command: everything but the weights."""

    config: Config
    policies: Mapping[str, Policy]  # by label
    verification: Verification
    cost: CostModel | None
    drafter: Drafter | None  # None also where the drafter is a model, which loads with the target
    target_folder: Path
    draft_folder: Path | None  # of a drafter with weights
    requests: tuple[Request, ...]


_FACTS = ("vocab_size", "max_position_embeddings", "hidden_size", "num_hidden_layers")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """What must be known of a model before it loads."""

    vocab_size: int
    max_context: int
    hidden_size: int
    num_layers: int


def prepare(config: Config, policies: Mapping[str, Component]) -> Prepared:
    """The checked command with its requests, tokenized.

    Args:
        config: the typed configuration.
        policies: each policy's component by label.

    Raises:
        ValueError: something in the configuration is impossible; one line says what to change.
    """
    built = {label: build.build_policy(node, _where(label, policies)) for label, node in policies.items()}
    verification, cost = build.build_verification(config.verification), build.build_cost(config.cost)
    build.build_clock(config.engine, cost)
    for policy in built.values():
        verification.check_depth(policy.max_depth)
    verification.check_params(config.sampling)
    named("workload", check_prompts, config.workload.prompts)
    signals = signal_source(config)
    for policy in built.values():
        _check_policy(policy, signals, verification, cost, config)
    folder, draft_folder = _folders(config)
    model = model_facts(folder, "target.source")
    drafter = _drafter(config, model, draft_folder)
    return Prepared(
        config=config,
        policies=built,
        verification=verification,
        cost=cost,
        drafter=drafter,
        target_folder=folder,
        draft_folder=draft_folder,
        requests=_requests(config, folder, model),
    )


def _folders(config: Config) -> tuple[Path, Path | None]:
    """The folders of target and drafter; all sources are looked at before one is fetched."""
    drafter, target = config.drafter, config.target
    if target.kind == "pretrained":
        named("target.source", check_source, target.source)
    if isinstance(drafter, Component):
        return build.target_folder(target), None
    if drafter.source is not None:
        named("drafter.source", check_source, local_source(drafter.source))
    return build.target_folder(target), build.draft_folder(drafter, target)


def signal_source(config: Config) -> SignalSource | None:
    """What stands for the drafter before it is built: one that knows no vocabulary, its class, or None.

    For a trained drafter it is what its files say, which come from the hub if they are there.
    """
    if isinstance(config.drafter, DraftModelConfig):
        from dspark.drafters.draft_model import DraftModelDrafter

        return cast("SignalSource", DraftModelDrafter)
    if isinstance(config.drafter, Component):
        return build.build_drafter(config.drafter, vocab_size=1)
    named("drafter.source", check_source, local_source(config.drafter.source))
    return trained.described(config.drafter, build.draft_folder(config.drafter, config.target))


def _drafter(config: Config, model: ModelFacts, draft_folder: Path | None) -> Drafter | None:
    """The drafter, if it needs no weights; in any case it shares the target's vocabulary."""
    if isinstance(config.drafter, DraftModelConfig):
        assert draft_folder is not None, "a draft model without a folder"
        _check_vocabulary(model_facts(draft_folder, "drafter.source").vocab_size, model.vocab_size)
        return None
    if not isinstance(config.drafter, Component):
        assert draft_folder is not None, "a trained drafter without a folder"
        trained.check_fits(config.drafter, draft_folder, model)
        return None
    drafter = build.build_drafter(config.drafter, vocab_size=model.vocab_size)
    _check_vocabulary(None if drafter is None else drafter.vocab_size, model.vocab_size)
    return drafter


def _check_vocabulary(drafter: int | None, target: int) -> None:
    if drafter not in (None, target):
        raise ValueError(
            f"drafter and target must share a vocabulary, got {drafter} and {target} entries; "
            "use a drafter of the target's family"
        )


def _check_policy(
    policy: Policy,
    drafter: SignalSource | None,
    verification: Verification,
    cost: CostModel | None,
    config: Config,
) -> None:
    """Raises where policy, drafter and verification cannot go together."""
    all_greedy = config.sampling.temperature == 0
    check_policy(policy, drafter, cost_available=cost is not None)
    check_combination(
        policy,
        verification,
        deterministic_drafter=drafter is None or drafter.deterministic,
        all_greedy=all_greedy,
    )
    if drafter is not None:
        check_signals(drafter, policy, verification)
        check_block(drafter, policy)


def _requests(config: Config, folder: Path, model: ModelFacts) -> tuple[Request, ...]:
    """The requests of the workload; none is too long for the target."""
    context = model.max_context
    limit = config.engine.max_tokens_per_row or context
    if not 2 <= limit <= context:
        raise ValueError(
            f"engine.max_tokens_per_row must be in [2, {context}], the target's context, got {limit}"
        )
    workload = config.workload
    prompts = load_prompts(workload.prompts)
    prompt_ids = named(
        "workload",
        encode_prompts,
        prompts,
        _tokenizer(folder),
        chat_template=workload.chat_template,
        max_context=context,
    )
    for prompt, ids in zip(prompts, prompt_ids, strict=True):
        if len(ids) >= limit:
            raise ValueError(
                f"workload: prompt {prompt.id!r} of {len(ids)} tokens leaves no room for an answer in "
                f"{limit} tokens: leave long prompts out with workload.max_prompt_chars"
            )
    arrivals = build.build_arrivals(workload, batch_size=config.engine.max_batch_size)
    return tuple(build_requests(prompts, prompt_ids, config.sampling, arrivals))


def model_facts(folder: Path, where: str) -> ModelFacts:
    """Sizes of the model in a folder.

    The file says them, unless they are its architecture's defaults; only then is the library asked,
    whose configuration classes take a second to import.
    """
    written = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    text = written.get("text_config") or written
    if all(key in text for key in _FACTS):
        vocab_size, max_context, hidden_size, num_layers = (text[key] for key in _FACTS)
    else:
        from transformers import AutoConfig

        config = _read(AutoConfig.from_pretrained, folder, where).get_text_config()
        vocab_size, max_context, hidden_size, num_layers = (getattr(config, key) for key in _FACTS)
    return ModelFacts(
        vocab_size=vocab_size, max_context=max_context, hidden_size=hidden_size, num_layers=num_layers
    )


def draft_context(prepared: Prepared, target: ModelFacts) -> int | None:
    """Positions of the drafter's context, if it has weights, beside a target of these sizes."""
    drafter, folder = prepared.config.drafter, prepared.draft_folder
    if isinstance(drafter, Component) or folder is None:
        return None
    if isinstance(drafter, DraftModelConfig):
        return model_facts(folder, "drafter.source").max_context
    return trained.drafter_spec(drafter, folder, target.num_layers).max_context


def _tokenizer(folder: Path) -> Any:
    """The folder's tokenizer, or None.

    Where the folder asks for the plain fast tokenizer, going to it directly is what the library
    does in the end, a second sooner.
    """
    settings = folder / "tokenizer_config.json"
    if not settings.exists() and not (folder / "tokenizer.json").exists():
        return None
    written = json.loads(settings.read_text(encoding="utf-8")) if settings.exists() else {}
    if written.get("tokenizer_class") in ("TokenizersBackend", "PreTrainedTokenizerFast"):
        from transformers import PreTrainedTokenizerFast as Tokenizer
    else:
        from transformers import AutoTokenizer as Tokenizer
    return _read(Tokenizer.from_pretrained, folder, "target.source")


def _read(read: Callable[[Path], Any], folder: Path, where: str) -> Any:
    """What the library reads from the folder; what it does not understand is the user's to mend."""
    try:
        return read(folder)
    except (ValueError, OSError, KeyError) as error:
        raise ValueError(f"{where}: cannot read {folder}: {str(error).strip().splitlines()[0]}") from error


def _where(label: str, policies: Mapping[str, Component]) -> str:
    return "policy" if len(policies) == 1 else f"policy {label!r}"
