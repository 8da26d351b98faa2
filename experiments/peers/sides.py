"""The sides that run in this process, and the families that sides are compared by."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from dspark.engine.engine import PLAIN
from dspark.policies import Fixed
from experiments.bench import contenders
from experiments.bench.policies import configured_policies

if TYPE_CHECKING:
    from pathlib import Path

    from dspark.models.target import HFTarget
    from experiments.bench.contenders import Contender

NUM_DRAFT, MAX_N = 4, 3
POLICIES = ("batch_table", "confidence")


class Family(StrEnum):
    """Whose side it is; the best side of a family stands for it."""

    DSPARK = "dspark"
    TRANSFORMERS = "transformers"
    VLLM_EAGER = "vLLM eager"
    VLLM_COMPILED = "vLLM compiled"


@dataclass(frozen=True, kw_only=True)
class Side:
    """A contender, whose it is, and the largest batch it can do (None: any)."""

    contender: Contender
    family: Family
    max_batch: int | None = None

    def can(self, batch_size: int) -> bool:
        """True if the side takes batches of this size."""
        return self.max_batch is None or batch_size <= self.max_batch


def dspark_sides(target: HFTarget, policy: str) -> list[Side]:
    """Plain decoding, a fixed depth, and a policy of the configuration with its settings there.

    Plain decoding comes first: its tokens are the ones the others are counted against.
    """
    named = [
        ("depth 0", PLAIN),
        (f"n-gram {NUM_DRAFT}", Fixed(depth=NUM_DRAFT)),
        (f"n-gram {policy}", dict(configured_policies())[policy]),
    ]
    return [
        Side(
            contender=contenders.engine(
                target, f"dspark {name}", with_drafter=rule is not PLAIN, policy=rule, max_n=MAX_N
            ),
            family=Family.DSPARK,
        )
        for name, rule in named
    ]


def transformers_sides(folder: Path, assistant: Path | None) -> list[Side]:
    """``generate`` plain, with prompt lookup, and with an assistant model where one is given.

    Both kinds of speculation take single prompts only ("assisted generate is only supported for
    batch_size = 1", transformers 5).
    """
    model = contenders.transformers_model(folder)
    lookup = {"prompt_lookup_num_tokens": NUM_DRAFT, "max_matching_ngram_size": MAX_N}
    speculative = {"transformers prompt lookup 4": lookup}
    if assistant is not None:
        drafter = contenders.transformers_model(assistant)
        speculative["transformers assisted"] = {"assistant_model": drafter}
    plain = Side(contender=contenders.transformers_generate(model), family=Family.TRANSFORMERS)
    return [plain] + [
        Side(
            contender=contenders.transformers_generate(model, name, **options),
            family=Family.TRANSFORMERS,
            max_batch=1,
        )
        for name, options in speculative.items()
    ]


def check_assistant(folder: Path, assistant: Path) -> None:
    """Refuse an assistant that cannot draft for the model, before either is loaded.

    Raises:
        ValueError: it has another vocabulary.
    """
    from transformers import AutoConfig

    sizes = [AutoConfig.from_pretrained(path).get_text_config().vocab_size for path in (folder, assistant)]
    if sizes[0] != sizes[1]:
        raise ValueError(
            f"--assistant must share the target's vocabulary of {sizes[0]} tokens, got one of {sizes[1]}; "
            "use a model of the same family"
        )
