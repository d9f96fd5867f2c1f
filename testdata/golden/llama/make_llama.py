"""Writes the tiny Hugging Face Llama folders beside this file, with their golden logits.

Every folder is a model directory as transformers saves it (config.json and
safetensors) plus golden.safetensors: input_ids I64 [2, 19] and logits F32
[2, 19, V] from transformers' LlamaForCausalLM in float32, reloaded from the
folder. The dense float64 reference in ../method must agree, or nothing is written.
"""

import json
import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "method"))
import reference  # noqa: E402

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 256}
# name: (settings, dtype on disk, shard size, fields left out of config.json)
FOLDERS = {
    "mha-untied": (dict(num_key_value_heads=4, tie_word_embeddings=False, rope_theta=10000.0, rms_norm_eps=1e-5),
                   torch.float32, "1GB", ["head_dim", "rope_scaling"]),
    "mha-tied": (dict(num_key_value_heads=4, tie_word_embeddings=True, rope_theta=500000.0, rms_norm_eps=1e-6),
                 torch.float32, "1GB", []),
    "gqa-untied": (dict(num_key_value_heads=2, tie_word_embeddings=False, rope_theta=10000.0, rms_norm_eps=1e-6,
                        head_dim=12), torch.float32, "1GB", []),
    "gqa-tied": (dict(num_key_value_heads=2, tie_word_embeddings=True, rope_theta=500000.0, rms_norm_eps=1e-5,
                      rope_scaling=LLAMA3), torch.float32, "1GB", []),
    "gqa-untied-bf16-sharded": (dict(num_key_value_heads=2, tie_word_embeddings=False, rope_theta=500000.0,
                                     rms_norm_eps=1e-5), torch.bfloat16, "40KB", []),
}


def build(name, settings, dtype, shard_size, left_out, seed):
    torch.manual_seed(seed)
    config = LlamaConfig(hidden_size=32, intermediate_size=56, num_hidden_layers=3, num_attention_heads=4,
                         vocab_size=67, max_position_embeddings=512, bos_token_id=1, eos_token_id=2, **settings)
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for key, p in model.named_parameters():
            if p.dim() == 1:
                p.copy_(1 + 0.25 * torch.randn_like(p))
            else:  # wide enough that attention is far from uniform and tokens far apart
                p.copy_((0.3 if "_proj" in key else 1.0) * torch.randn_like(p))
    out = HERE / name
    shutil.rmtree(out, ignore_errors=True)
    model.to(dtype).save_pretrained(out, safe_serialization=True, max_shard_size=shard_size)
    (out / "generation_config.json").unlink()
    raw = json.loads((out / "config.json").read_text())
    for f in left_out:
        raw.pop(f, None)
    (out / "config.json").write_text(json.dumps(raw, indent=2, sort_keys=True) + "\n")

    model = LlamaForCausalLM.from_pretrained(out, torch_dtype=torch.float32, attn_implementation="eager")
    ids = torch.randint(0, config.vocab_size, (2, 19))
    with torch.no_grad():
        logits = model(ids).logits

    files = sorted(out.glob("model*.safetensors"))
    expected = 2 if "sharded" in name else 1
    if len(files) != expected:
        raise SystemExit("%s: %d weight files, want %d" % (name, len(files), expected))
    weights = {k: v.to(torch.float64) for f in files for k, v in load_file(f).items()}
    cfg = reference.Config.from_json(raw)
    if set(weights) != set(reference.base_shapes(cfg)):
        raise SystemExit("%s: tensor names differ: %s" % (name, set(weights) ^ set(reference.base_shapes(cfg))))
    check = reference.base_logits(reference.Network(cfg, weights), ids)
    error = ((check - logits).norm() / check.norm()).item()
    if error > 2e-6:
        raise SystemExit("%s: transformers and the reference differ by %.1e" % (name, error))
    if cfg.rope_scaling:  # the scaling must show, or it is not tested
        plain = reference.Config(**{**cfg.__dict__, "rope_scaling": None})
        other = reference.base_logits(reference.Network(plain, weights), ids)
        if ((check - other).norm() / check.norm()).item() < 1e-2:
            raise SystemExit("%s: rope_scaling does not show in the logits" % name)
    save_file({"input_ids": ids, "logits": logits.contiguous()}, out / "golden.safetensors")
    print("%-26s %d weight file(s), logits within %.1e of the float64 reference" % (name, len(files), error))


def main():
    torch.set_num_threads(1)
    for seed, (name, args) in enumerate(FOLDERS.items(), start=20):
        build(name, *args, seed)


if __name__ == "__main__":
    main()
