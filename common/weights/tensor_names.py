"""Tensor names of Gemma 4: what a checkpoint calls them and what llama.cpp calls them.

Written from llama.cpp's converter at release b11434 (conversion/gemma.py and
gguf-py/gguf/tensor_mapping.py): for `gemma4` and `gemma4-assistant` it renames tensors and changes
nothing else. It adds no 1 to norms (Gemma 3 does), swaps no rows and merges nothing.
"""

import re

ARCHITECTURES = ("gemma4", "gemma4-assistant")

_WHOLE = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
    "model.embed_tokens_per_layer.weight": "per_layer_token_embd.weight",
    "model.per_layer_model_projection.weight": "per_layer_model_proj.weight",
    "model.per_layer_projection_norm.weight": "per_layer_proj_norm.weight",
    "pre_projection.weight": "nextn.pre_projection.weight",
    "post_projection.weight": "nextn.post_projection.weight",
}
_LAYER = {
    "input_layernorm.weight": "attn_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "self_attn.q_norm.weight": "attn_q_norm.weight",
    "self_attn.k_norm.weight": "attn_k_norm.weight",
    "post_attention_layernorm.weight": "post_attention_norm.weight",
    "layer_scalar": "layer_output_scale.weight",
    "pre_feedforward_layernorm.weight": "ffn_norm.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
    "post_feedforward_layernorm.weight": "post_ffw_norm.weight",
    "per_layer_input_gate.weight": "inp_gate.weight",
    "per_layer_projection.weight": "proj.weight",
    "post_per_layer_input_norm.weight": "post_norm.weight",
    # mixture of experts (26B-A4B)
    "router.proj.weight": "ffn_gate_inp.weight",
    "router.scale": "ffn_gate_inp.scale",
    "router.per_expert_scale": "ffn_down_exps.scale",
    "experts.gate_up_proj": "ffn_gate_up_exps.weight",
    "experts.down_proj": "ffn_down_exps.weight",
    "pre_feedforward_layernorm_2.weight": "pre_ffw_norm_2.weight",
    "post_feedforward_layernorm_1.weight": "post_ffw_norm_1.weight",
    "post_feedforward_layernorm_2.weight": "post_ffw_norm_2.weight",
}
_LAYER_NAME = re.compile(r"model\.layers\.(\d+)\.(.+)")
# Pictures and sound go to a file of their own; the drafter's masked embedding has no use yet.
_LEFT_OUT = re.compile(r"vision_|audio_|(^|\.)embed_(vision|audio)\.|masked_embedding|rotary_emb")

COMPUTED = frozenset({"rope_freqs.weight"})
"""Tensors that the converter computes from the configuration; a checkpoint has none of them."""


def is_left_out(name: str) -> bool:
    """Whether the converter leaves this checkpoint tensor out of the text model."""
    return _LEFT_OUT.search(name) is not None


def gguf_name(name: str) -> str | None:
    """llama.cpp's name for a checkpoint tensor; None for a name Gemma 4 does not have."""
    name = name.replace("language_model.", "")
    layer = _LAYER_NAME.fullmatch(name)
    if layer is None:
        return _WHOLE.get(name)
    end = _LAYER.get(layer[2])
    return f"blk.{layer[1]}.{end}" if end else None


def checkpoint_name(name: str) -> str | None:
    """A checkpoint's name for llama.cpp's `name`; None for one a checkpoint does not hold."""
    layer = re.fullmatch(r"blk\.(\d+)\.(.+)", name)
    table = _LAYER if layer else _WHOLE
    end = layer[2] if layer else name
    found = next((ours for ours, theirs in table.items() if theirs == end), None)
    if found is None or layer is None:
        return found
    return f"model.layers.{layer[1]}.{found}"
