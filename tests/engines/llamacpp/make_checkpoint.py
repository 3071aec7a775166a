"""A drafter as transformers would publish it: run by the converter's Python, not by the tests'.

make_checkpoint.py FOLDER writes a small Gemma 4 assistant, tokenizer included, whose matrices lie
on a 4-bit grid in bf16, and the levels and steps of that grid as FOLDER/grid.npz.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, normalizers

SPECIAL = {"pad": "<pad>", "eos": "<eos>", "bos": "<bos>", "unk": "<unk>"}
TURNS = ["<|turn>", "<turn|>"]
SPACE = "\u2581"
VOCABULARY = 640
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|turn>{{ m.role }}\n{{ m.content }}<turn|>\n"
    "{% endfor %}"
)


def write_tokenizer(folder: Path) -> None:
    """Bytes, ASCII and a few merged words, with spaces written as U+2581."""
    tokens = [*SPECIAL.values(), *TURNS, *(f"<0x{byte:02X}>" for byte in range(256))]
    tokens += ["\n", SPACE, *map(chr, range(33, 127))]
    merges = [("o", "n"), ("on", "e"), (SPACE, "one"), ("t", "w"), ("tw", "o"), (SPACE, "two")]
    tokens += ["".join(pair) for pair in merges]
    tokens += [f"<unused{number}>" for number in range(VOCABULARY - len(tokens))]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    bpe = models.BPE(
        vocab=vocabulary, merges=merges, byte_fallback=True, unk_token="<unk>", fuse_unk=True
    )
    tokenizer = Tokenizer(bpe)
    tokenizer.normalizer = normalizers.Replace(" ", SPACE)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    tokenizer.add_special_tokens([*SPECIAL.values(), *TURNS])
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        chat_template=TEMPLATE,
        **{f"{name}_token": token for name, token in SPECIAL.items()},
    )
    fast.save_pretrained(folder)


def write_model(folder: Path) -> None:
    """Random levels and steps in every matrix; 4 layers that read the target's KV cache."""
    text = transformers.Gemma4TextConfig(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=4,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        global_head_dim=64,
        hidden_size_per_layer_input=0,
        vocab_size_per_layer_input=0,
        num_kv_shared_layers=4,
        layer_types=["sliding_attention"] * 3 + ["full_attention"],
        sliding_window=512,
        use_double_wide_mlp=False,
        enable_moe_block=False,
        max_position_embeddings=4096,
    )
    config = transformers.Gemma4AssistantConfig(text_config=text, backbone_hidden_size=256)
    model = transformers.Gemma4AssistantForCausalLM(config).to(torch.bfloat16)
    rng = np.random.default_rng(7)
    grid: dict[str, Any] = {}
    for name, weights in model.named_parameters():
        if weights.ndim != 2:
            continue
        groups = weights.numel() // 32
        levels = rng.integers(-7, 7, (groups, 32))
        # One level of -8 in each group: the largest level then names the step without doubt.
        levels[np.arange(groups), rng.integers(0, 32, groups)] = -8
        steps = rng.uniform(0.001, 0.01, (groups, 1)).astype(np.float16)
        values = torch.from_numpy(levels * steps.astype(np.float32)).reshape(weights.shape)
        with torch.no_grad():
            weights.copy_(values.to(torch.bfloat16))
        grid[f"{name} levels"] = levels.astype(np.int8)
        grid[f"{name} steps"] = steps[:, 0]
    model.save_pretrained(folder)
    np.savez(folder / "grid.npz", **grid)


if __name__ == "__main__":
    home = Path(sys.argv[1])
    home.mkdir(parents=True, exist_ok=True)
    write_tokenizer(home)
    write_model(home)
