"""Writes tiny Hugging Face folders of every family beside this file, with their golden logits.

Every folder is a model directory as transformers saves it, plus golden.safetensors:
input_ids I64 [2, 19] and logits F32 [2, 19, V] in float32, reloaded from the folder.
The dense float64 reference in ../method must agree, and what sets the family apart
(its window, its biases, its learned positions) must show, or nothing is written.
"""

import json
import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import (AutoModelForCausalLM, LlamaConfig, MistralConfig, OPTConfig, Phi3Config, Qwen2Config)

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "method"))
import reference  # noqa: E402

SHAPE = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=4, vocab_size=41, bos_token_id=1, eos_token_id=2)
GATED = dict(SHAPE, intermediate_size=24, num_key_value_heads=2, max_position_embeddings=64)
# name: (configuration, dtype on disk, shard size, fields left out of config.json)
FOLDERS = {
    "llama-biases": (LlamaConfig(**GATED, attention_bias=True, mlp_bias=True), torch.float32, "1GB", []),
    "mistral-window": (MistralConfig(**GATED, sliding_window=6), torch.float32, "1GB", ["head_dim"]),
    "mistral-default-window": (MistralConfig(**GATED), torch.float16, "1GB", ["sliding_window"]),
    "qwen2": (Qwen2Config(**GATED, rope_theta=1e6), torch.float32, "1GB", []),
    "qwen2-window-bf16-sharded": (Qwen2Config(**GATED, use_sliding_window=True, sliding_window=5, max_window_layers=0,
                                              tie_word_embeddings=True), torch.bfloat16, "5KB", []),
    "phi3": (Phi3Config(**GATED, pad_token_id=None), torch.float32, "1GB", []),
    "phi3-window-bf16-sharded": (Phi3Config(**GATED, pad_token_id=None, sliding_window=7), torch.bfloat16, "5KB", []),
    "opt": (OPTConfig(**SHAPE, ffn_dim=24, max_position_embeddings=20, word_embed_proj_dim=16), torch.float16, "1GB", ["tie_word_embeddings"]),
    "opt-untied-without-biases": (OPTConfig(**SHAPE, ffn_dim=24, max_position_embeddings=20, word_embed_proj_dim=16,
                                            tie_word_embeddings=False, enable_bias=False), torch.float32, "1GB", []),
}


def relative(a, b):
    return ((a - b).norm() / b.norm()).item()


def build(name, config, dtype, shard_size, left_out, seed):
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    with torch.no_grad():
        for key, p in model.named_parameters():
            if key.endswith(".bias"):
                p.copy_(0.3 * torch.randn_like(p))
            elif p.dim() == 1:
                p.copy_(1 + 0.25 * torch.randn_like(p))
            else:  # wide enough that attention is far from uniform and tokens far apart
                p.copy_((1.0 if "embed" in key or "lm_head" in key else 0.4) * torch.randn_like(p))
    out = HERE / name
    shutil.rmtree(out, ignore_errors=True)
    model.to(dtype).save_pretrained(out, safe_serialization=True, max_shard_size=shard_size)
    (out / "generation_config.json").unlink()
    raw = json.loads((out / "config.json").read_text())
    for f in left_out:
        raw.pop(f, None)
    (out / "config.json").write_text(json.dumps(raw, indent=2, sort_keys=True) + "\n")

    model = AutoModelForCausalLM.from_pretrained(out, torch_dtype=torch.float32, attn_implementation="eager")
    model.eval()
    ids = torch.randint(0, config.vocab_size, (2, 19))
    with torch.no_grad():
        logits = model(ids).logits

    files = sorted(out.glob("model*.safetensors"))
    if (len(files) > 1) != ("sharded" in name):
        raise SystemExit("%s: %d weight files" % (name, len(files)))
    weights = {k: v.to(torch.float64) for f in files for k, v in load_file(f).items()}
    cfg = reference.Config.from_json(raw)
    if "biases" not in name and set(weights) != set(reference.base_shapes(cfg)):
        raise SystemExit("%s: tensor names differ: %s" % (name, set(weights) ^ set(reference.base_shapes(cfg))))
    check = reference.base_logits(reference.Network(cfg, weights), ids)
    error = relative(logits, check)
    if error > 2e-6:
        raise SystemExit("%s: transformers and the reference differ by %.1e" % (name, error))
    others = {}
    if cfg.sliding_window:
        others["window"] = reference.Network(reference.Config(**{**cfg.__dict__, "sliding_window": None}), weights)
    if any(k.endswith("_proj.bias") for k in weights):
        others["biases"] = reference.Network(cfg, {k: v for k, v in weights.items() if not k.endswith("_proj.bias")})
    if cfg.family == "opt":
        rolled = {k: v.roll(1, 0) if "embed_positions" in k else v for k, v in weights.items()}
        others["positions"] = reference.Network(cfg, rolled)
    for what, other in others.items():
        if relative(reference.base_logits(other, ids), check) < 1e-2:
            raise SystemExit("%s: its %s do not show in the logits" % (name, what))
    save_file({"input_ids": ids, "logits": logits.contiguous()}, out / "golden.safetensors")
    print("%-26s %d weight file(s), logits within %.1e of the float64 reference; shown: %s" % (
        name, len(files), error, ", ".join(others) or "-"))


def main():
    torch.set_num_threads(1)
    for seed, (name, args) in enumerate(FOLDERS.items(), start=40):
        build(name, *args, seed)


if __name__ == "__main__":
    main()
