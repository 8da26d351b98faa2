"""Folders of z-lab's DFlash (https://github.com/z-lab/dflash) and of SpecForge, which keeps its shape.

Everything special is in ``dflash_config``. Feature layers are outputs of decoder layers. There is no
embedding and no output head: the target's are used. In DFlash, slot k predicts the token at s + k, so
the anchor's slot is unused and a block of B slots gives B - 1 drafts. SpecForge's DSpark
(``projector_type: dspark``) was trained to predict s + 1 + k, from the anchor on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dspark.drafters.formats.decoder import decoder_fields, layer_windows, markov_fields, need
from dspark.drafters.spec import DraftSpec

if TYPE_CHECKING:
    from collections.abc import Mapping, Set

_ARCHITECTURES = {"DFlashDraftModel", "DSparkDraftModel"}
_NEUTRAL = {"output_multiplier": 1.0, "input_embedding_scale": 1.0}
_UNSUPPORTED = ("conv_kernel_size", "selector_rank", "final_logit_softcapping", *_NEUTRAL)
NAMES: Mapping[str, str] = {"logit_head.": ""}
"""Older SpecForge puts the heads under one more name."""


def recognises(config: Mapping[str, Any]) -> bool:
    """True for the configuration of a block drafter of this format."""
    if "speculators_model_type" in config:
        return False
    return "dflash_config" in config or bool(_ARCHITECTURES & set(config.get("architectures") or ()))


def read_spec(config: Mapping[str, Any], names: Set[str]) -> DraftSpec:
    """The spec that a configuration and the names of the stored tensors describe.

    Raises:
        ValueError: a key is missing, a variant that is not implemented, or sizes that make no drafter.
    """
    special = {**config, **(config.get("dflash_config") or {})}
    for key in _UNSUPPORTED:
        if special.get(key) not in (None, False, _NEUTRAL.get(key)):
            raise ValueError(
                f"DFlash drafters with {key} are not implemented, got {special[key]}; use another"
            )
    is_dspark = special.get("projector_type") == "dspark" or "DSparkDraftModel" in (
        config.get("architectures") or ()
    )
    slots = need(special, "block_size")
    fields = decoder_fields(config, names)
    windows = layer_windows(config)
    causal = special.get("is_causal")
    if causal is None:
        per_layer = tuple(window is not None for window in windows)
    else:
        per_layer = (bool(causal),) * fields["num_layers"]
    return DraftSpec(
        kind="dspark" if is_dspark else "dflash",
        block_size=slots if is_dspark else slots - 1,
        samples_from_anchor=is_dspark,
        feature_layers=tuple(need(special, "target_layer_ids", "dflash_config")),
        num_target_layers=need(config, "num_target_layers"),
        mask_token_id=need(special, "mask_token_id", "dflash_config"),
        draft_vocab_size=fields["vocab_size"],
        windows=windows,
        causal=per_layer if any(per_layer) else (),
        target_name=special.get("target_model_name_or_path"),
        **fields,
        **(markov_fields(special) if is_dspark else {}),
    )
