"""Any Hugging Face causal decoder as a target: one flattened pass against our own paged cache.

The model is loaded with a registered attention function (:mod:`dspark.models.attention`) and
called with ``[1, N]`` ids and positions, ``use_cache=False`` and the pass's layout; everything else
of its forward stays its own code. A probe pass at load proves that every layer came through.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any, Literal

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from dspark.models import attention_choice, attention_exact
from dspark.models.attention_choice import VARLEN_NAMES, AttentionKind, choose_attention, head_dim_of
from dspark.models.base import PassRow, Target
from dspark.models.features import check_feature_layers, tapped
from dspark.models.fused import install_fused_projections
from dspark.models.graph_buckets import MAX_ROW_TOKENS
from dspark.models.graph_probe import install_graphs
from dspark.models.kv_cache import CacheShape, KVCache
from dspark.models.layout import PassLayout, build_layout
from dspark.models.layout_varlen import VarlenLayout, build_varlen_layout
from dspark.models.linear import (
    DEFAULT_THRESHOLDS,
    RowThresholds,
    install_row_linears,
    install_rowwise_activations,
    invariant_multiple,
)
from dspark.models.native.choice import KernelKind, choose_kernels, kernels_beside
from dspark.models.probe import probe

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from torch import Tensor

    from dspark.models.cuda_graphs import GraphRunner
    from dspark.models.native.decoder import NativeDecoder

Numerics = Literal["invariant", "fast"]
_log = logging.getLogger(__name__)
_CROPPABLE_LAYERS = {"full_attention", "sliding_attention"}


class HFTarget(Target):
    """A loaded decoder. Build with :func:`load_target`.

    Attributes:
        numerics: ``invariant``: a row's logits are bitwise the same in any pass. ``fast``: they are
            equal up to rounding.
        attention: registered name of the attention function.
        native: the CPU kernels' view of the model, or None where torch's operations run the passes.
        graphs: runs passes as replays of captured graphs (CUDA), or None.
        tokenizer: of the same folder, or None.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        name: str,
        numerics: Numerics,
        thresholds: RowThresholds = DEFAULT_THRESHOLDS,
        cuda_graphs: bool | None = None,
        kernels: KernelKind = "auto",
    ) -> None:
        config = model.config.get_text_config()
        refuse_uncroppable(config)
        self.model, self.tokenizer, self.name, self.numerics = model, tokenizer, name, numerics
        self.vocab_size: int = config.vocab_size
        self.max_context: int = config.max_position_embeddings
        self.eos_token_ids = _eos_token_ids(model)
        self.device, self.dtype = model.device, model.dtype
        self.num_parameters = sum(p.numel() for p in model.parameters())
        self.weight_bytes = sum(p.numel() * p.element_size() for p in model.parameters())
        self.attention: str = model.config._attn_implementation
        self.graphs: GraphRunner | None = None  # not before the probe has passed without
        head_dim = head_dim_of(config)
        self.cache_shape = CacheShape(
            num_layers=config.num_hidden_layers,
            num_kv_heads=getattr(config, "num_key_value_heads", None) or config.num_attention_heads,
            head_dim=head_dim,
            value_dim=head_dim,
        )
        self.kernels: KernelKind = kernels
        self.native: NativeDecoder | None = choose_kernels(kernels, model)
        self._row_multiple = 1
        if self.native is not None:
            self._try_kernels()
        if self.native is None:
            self._install_torch_layers(thresholds)
            probe(self)
        self.graphs = install_graphs(self, cuda_graphs)

    def _try_kernels(self) -> None:
        """Keep the kernels if they pass the probe; the model's own layers stay as they are, its reference."""
        try:
            probe(self)
        except ValueError as error:
            if self.kernels == "native":
                raise
            _log.warning("the CPU kernels are left out: %s", error)
            self.native = None

    def _install_torch_layers(self, thresholds: RowThresholds) -> None:
        linears = [m for m in self.model.modules() if type(m) is torch.nn.Linear]
        if self.numerics == "invariant":
            _refuse_variant(self.device, self.dtype)
            self.max_context = min(self.max_context, attention_exact.MAX_KEYS)
            self._row_multiple = invariant_multiple({(m.out_features, m.in_features) for m in linears})
            install_rowwise_activations(self.model)
        elif self.device.type == "cpu" and self.dtype == torch.float32:
            install_fused_projections(self.model, thresholds)
            install_row_linears(self.model, thresholds)

    def new_cache(self, num_slots: int, max_tokens: int, *, page_size: int | None = None) -> KVCache:
        """An empty cache; one page a row unless ``page_size`` is given or the attention wants small ones.

        Raises:
            ValueError: rows longer than the context, or pages that the attention cannot read.
        """
        if max_tokens > self.max_context:
            raise ValueError(
                f"rows of {max_tokens} tokens do not fit the context of {self.name}, "
                f"which is {self.max_context}; ask for fewer tokens"
            )
        return KVCache(
            self.cache_shape,
            num_slots=num_slots,
            max_tokens=max_tokens,
            dtype=self.dtype,
            device=self.device,
            page_size=attention_choice.check_page_size(self.attention, page_size),
            scratch_tokens=0 if self.graphs is None else MAX_ROW_TOKENS,
        )

    @torch.inference_mode()
    def forward(self, rows: list[PassRow], cache: KVCache) -> Tensor:
        """Float32 logits [M, V]; see :meth:`Target.forward`."""
        if self.native is not None:
            return self.native.forward(rows, cache)
        return self.run_pass(rows, cache)[0]

    @torch.inference_mode()
    def forward_with_features(
        self, rows: list[PassRow], cache: KVCache, layers: tuple[int, ...]
    ) -> tuple[Tensor, Tensor]:
        """Logits [M, V] and float32 features [N, len(layers) * hidden]; see the contract.

        Raises:
            ValueError: the model has no such layer.
        """
        check_feature_layers(layers, self.cache_shape.num_layers, self.name)
        if self.native is not None:
            return self.native.forward_with_features(rows, cache, layers)
        num_tokens = sum(len(row.token_ids) for row in rows)
        with tapped(self.model, layers) as taps:
            logits, _ = self._run_eagerly(rows, cache)
        return logits, torch.cat([taps[layer][0, :num_tokens].float() for layer in layers], dim=-1)

    def run_pass(self, rows: list[PassRow], cache: KVCache) -> tuple[Tensor, PassLayout | VarlenLayout]:
        """The logits of :meth:`forward`, and the layout that the pass ran with."""
        replayed = None if self.graphs is None else self.graphs.run(rows, cache)
        return self._run_eagerly(rows, cache) if replayed is None else replayed

    def _run_eagerly(self, rows: list[PassRow], cache: KVCache) -> tuple[Tensor, PassLayout | VarlenLayout]:
        num_logits = sum(row.num_logits for row in rows)
        if self.attention in VARLEN_NAMES:
            layout = build_varlen_layout(rows, cache)
        else:
            pad = -sum(len(row.token_ids) for row in rows) % self._row_multiple
            pad_logits = -num_logits % self._row_multiple if num_logits else 1
            layout = build_layout(rows, cache, pad_tokens=pad, pad_logits=pad_logits)
        return self.logits_of(layout)[:num_logits].float(), layout

    def logits_of(self, layout: PassLayout | VarlenLayout) -> Tensor:
        """The model's own logits [M, V] at the layout's indices, padding included."""
        out = self.model(
            input_ids=layout.token_ids,
            position_ids=layout.positions,
            use_cache=False,
            logits_to_keep=layout.logits_index,
            dspark_layout=layout,
        )
        return out.logits[0]

    @torch.inference_mode()
    def eager_logits(self, token_ids: Tensor) -> Tensor:
        """Float32 logits [B, V] after the last of ``token_ids`` [B, L] by the model's own eager forward."""
        ours = self.model.config._attn_implementation
        self.model.set_attn_implementation("eager")
        try:
            return self.model(input_ids=token_ids, use_cache=False, logits_to_keep=1).logits[:, -1].float()
        finally:
            self.model.set_attn_implementation(ours)


def load_target(
    path: Path,
    *,
    dtype: str = "float32",
    device: str = "auto",
    numerics: Numerics = "fast",
    name: str | None = None,
    thresholds: RowThresholds = DEFAULT_THRESHOLDS,
    attention: AttentionKind = "auto",
    cuda_graphs: bool | None = None,
    kernels: KernelKind = "auto",
) -> HFTarget:
    """A target from a local folder in Hugging Face format.

    Args:
        path: the folder.
        dtype: ``float32`` or ``bfloat16``.
        device: ``cpu``, ``cuda`` or ``auto`` (cuda where there is one and the numerics run there).
        numerics: see :class:`HFTarget`.
        name: for messages and tables; the folder's name by default.
        thresholds: row counts for the CPU product.
        attention: see :func:`~dspark.models.attention_choice.choose_attention`.
        cuda_graphs: replay small passes as CUDA graphs; None: where the attention allows it.
        kernels: see :func:`~dspark.models.native.choice.choose_kernels`.

    Raises:
        ValueError: unsupported numerics, architecture, cache, attention or device.
    """
    kernels = kernels_beside(kernels, attention=attention, cuda_graphs=cuda_graphs)
    where = resolve_device("cpu" if device == "auto" and numerics == "invariant" else device)
    config = AutoConfig.from_pretrained(path)
    refuse_uncroppable(config.get_text_config())
    attention_choice.register()
    implementation = choose_attention(
        attention,
        numerics=numerics,
        device=where,
        dtype=getattr(torch, dtype),
        config=config.get_text_config(),
    )
    with _no_progress_bars():
        try:
            model = AutoModelForCausalLM.from_pretrained(
                path, config=config, dtype=getattr(torch, dtype), attn_implementation=implementation
            )
        except KeyError as error:  # models that keep a table of attention classes of their own
            raise ValueError(
                f"a {config.model_type} target does not use registered attention functions ({error}); "
                "use another target"
            ) from error
    model.eval().requires_grad_(False)
    torch.nn.Module.to(model, where)
    has_tokenizer = any((path / file).exists() for file in ("tokenizer.json", "tokenizer_config.json"))
    tokenizer = AutoTokenizer.from_pretrained(path) if has_tokenizer else None
    return HFTarget(
        model,
        tokenizer,
        name=name or path.name,
        numerics=numerics,
        thresholds=thresholds,
        cuda_graphs=cuda_graphs,
        kernels=kernels,
    )


@contextlib.contextmanager
def _no_progress_bars() -> Iterator[None]:
    """Loading draws bars on stderr, whatever the verbosity is."""
    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            transformers_logging.enable_progress_bar()


def resolve_device(device: str) -> torch.device:
    """The device that ``auto``, ``cpu`` or ``cuda`` means here.

    Raises:
        ValueError: cuda is asked for and there is none.
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError("device=cuda needs a CUDA device, and torch sees none here; use device=cpu or auto")
    return torch.device(device)


def refuse_uncroppable(config: Any) -> None:
    """Raise ValueError for models whose state cannot be rewound to an earlier token."""
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    scalings = [rope, *(value for value in rope.values() if isinstance(value, dict))]
    if any("longrope" in (scaling.get("rope_type"), scaling.get("type")) for scaling in scalings):
        raise ValueError(
            f"a {config.model_type} target with longrope positions turns all its keys by the length of the "
            "longest row of a pass, so rows would depend on their neighbours; use another target"
        )
    kinds = set(getattr(config, "layer_types", None) or ()) - _CROPPABLE_LAYERS
    recurrent = [
        key for key in ("ssm_state_size", "mamba_d_state", "linear_num_key_heads") if hasattr(config, key)
    ]
    if kinds or recurrent or getattr(config, "is_encoder_decoder", False):
        what = ", ".join(sorted(kinds) or recurrent or ["encoder-decoder"])
        raise ValueError(
            f"a {config.model_type} target keeps state that cannot be rewound after a rejection ({what}); "
            "use a decoder with full or sliding attention"
        )


def _refuse_variant(device: torch.device, dtype: torch.dtype) -> None:
    if device.type != "cpu" or dtype != torch.float32:
        raise ValueError(
            "numerics=invariant is proven for float32 on a CPU only, "
            f"got {str(dtype).removeprefix('torch.')} on {device.type}; use numerics=fast"
        )


def _eos_token_ids(model: Any) -> tuple[int, ...]:
    ids = model.generation_config.eos_token_id
    if ids is None:
        ids = model.config.get_text_config().eos_token_id
    return () if ids is None else tuple(ids) if isinstance(ids, (list, tuple)) else (int(ids),)
