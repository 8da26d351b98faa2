"""Which models the kernels know: by exact class, since a subclass may compute something else."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

MAX_HEAD_SIZE = 1024  # of the kernels' buffers
_FIXED_ROTARY = {"default", "linear", "llama3", "yarn"}  # turns of a position that no other token changes


@cache
def _parts() -> dict[type, tuple[type, type, type, type]]:
    """By model: the classes of its layers, their attention, their MLP and all norms.

    The classes are imported when a model is asked about: that takes seconds, which a command that only
    checks its settings must not take.
    """
    from transformers import LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM
    from transformers.models.llama import modeling_llama as llama
    from transformers.models.mistral import modeling_mistral as mistral
    from transformers.models.qwen2 import modeling_qwen2 as qwen2
    from transformers.models.qwen3 import modeling_qwen3 as qwen3

    return {
        LlamaForCausalLM: (llama.LlamaDecoderLayer, llama.LlamaAttention, llama.LlamaMLP, llama.LlamaRMSNorm),
        MistralForCausalLM: (
            mistral.MistralDecoderLayer,
            mistral.MistralAttention,
            mistral.MistralMLP,
            mistral.MistralRMSNorm,
        ),
        Qwen2ForCausalLM: (qwen2.Qwen2DecoderLayer, qwen2.Qwen2Attention, qwen2.Qwen2MLP, qwen2.Qwen2RMSNorm),
        Qwen3ForCausalLM: (qwen3.Qwen3DecoderLayer, qwen3.Qwen3Attention, qwen3.Qwen3MLP, qwen3.Qwen3RMSNorm),
    }


def refusal(model: Any) -> str | None:
    """Why the kernels cannot run this model, in one line; None if they can."""
    name, config = type(model).__name__, model.config
    parts = _parts()
    if type(model) not in parts:
        known = ", ".join(sorted(cls.__name__ for cls in parts))
        return f"the CPU kernels know {known}, got {name}"
    if model.device.type != "cpu" or model.dtype != torch.float32:
        dtype = str(model.dtype).removeprefix("torch.")
        return f"the CPU kernels run float32 on a CPU, got {dtype} on {model.device.type}"
    if config.hidden_act != "silu":
        return f"the CPU kernels know the silu gate, got hidden_act={config.hidden_act}"
    rotary = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    if rotary not in _FIXED_ROTARY:
        return f"the CPU kernels know rotary positions {', '.join(sorted(_FIXED_ROTARY))}, got {rotary}"
    return _odd_part(model)


def window_of(attention: Any) -> int:
    """Tokens that a query of this layer sees, itself included; 0 for all earlier ones."""
    from transformers.models.mistral.modeling_mistral import MistralAttention

    if type(attention) is MistralAttention:  # one window for all layers, in the configuration
        return attention.config.sliding_window or 0
    return getattr(attention, "sliding_window", None) or 0


def _odd_part(model: Any) -> str | None:
    """A module of another class than the family's, or of another make."""
    layer_class, attention_class, mlp_class, norm_class = _parts()[type(model)]
    body, config = model.model, model.config
    classes = [
        (body.embed_tokens, torch.nn.Embedding),
        (body.norm, norm_class),
        (model.lm_head, torch.nn.Linear),
    ]
    norms = [body.norm]
    for layer in body.layers:
        attention, mlp = layer.self_attn, layer.mlp
        classes += [(layer, layer_class), (attention, attention_class), (mlp, mlp_class)]
        linears = [getattr(attention, f"{name}_proj") for name in "qkvo"]
        linears += [mlp.gate_proj, mlp.up_proj, mlp.down_proj]
        classes += [(linear, torch.nn.Linear) for linear in linears]
        own = (layer.input_layernorm, layer.post_attention_layernorm)
        norms += [
            *own,
            *(n for n in (getattr(attention, "q_norm", None), getattr(attention, "k_norm", None)) if n),
        ]
        if attention.head_dim % 2 or attention.head_dim > MAX_HEAD_SIZE:
            return f"the CPU kernels know even head sizes up to {MAX_HEAD_SIZE}, got {attention.head_dim}"
    classes += [(norm, norm_class) for norm in norms]
    for module, wanted in classes:
        if type(module) is not wanted:
            return f"the CPU kernels know {wanted.__name__}, got {type(module).__name__}"
    mlps = (layer.mlp for layer in body.layers)
    unbiased = [model.lm_head, *(linear for m in mlps for linear in (m.gate_proj, m.up_proj, m.down_proj))]
    if any(linear.bias is not None for linear in unbiased):
        return "the CPU kernels know an MLP and an output layer without bias"
    if any(norm.variance_epsilon != config.rms_norm_eps for norm in norms):
        return "the CPU kernels know one epsilon for all norms"
    return None
