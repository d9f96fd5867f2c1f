"""Writes what PEFT makes of the LoRA of ../method's shared cases, beside this file.

Each case's base becomes a transformers model of its family and its LoRA a PEFT
adapter, without streams. peft.json holds the adapter_config.json that PEFT saves and
the names and shapes of its tensors, peft.safetensors the logits F32 [19, V] of tokens
0, 7, 14, ... (mod V). Another, newer transformers than that of ../families, so that
where a window begins with a layer (Qwen2's max_window_layers) is checked too.
"""

import json
import sys
import tempfile
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "method"))
import reference as ref  # noqa: E402

CASES = ("shared", "mistral-shared", "qwen2-shared", "phi3-shared", "opt-shared")


def relative(a, b):
    return ((a - b).norm() / b.norm()).item()


def modules(cfg, spec):
    """The adapted projections of every module of a layer, by module."""
    out = {}
    for t in ref.projection_shapes(cfg):
        if t in spec["lora_targets"]:
            out.setdefault(ref.names(cfg)[t], []).append(t)
    return out


def build(name, logits):
    doc = json.loads((HERE.parent / "method" / (name + ".json")).read_text())
    tensors = load_file(HERE.parent / "method" / (name + ".safetensors"))
    raw, spec = doc["config"], doc["spec"]
    cfg = ref.Config.from_json(raw)
    fields = {k: v for k, v in raw.items() if k not in ("model_type", "architectures")}
    if raw["model_type"] == "opt":
        fields["word_embed_proj_dim"] = raw["hidden_size"]
    config = AutoConfig.for_model(raw["model_type"], **fields, bos_token_id=None, pad_token_id=None)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    missing, surplus = model.load_state_dict({k: tensors[k] for k in ref.base_shapes(cfg)}, strict=False)
    if surplus or set(missing) - {"lm_head.weight"} or missing and not cfg.tie_word_embeddings:
        raise SystemExit("%s: %s missing, %s surplus" % (name, missing, surplus))
    ids = torch.arange(19)[None] * 7 % cfg.vocab_size
    with torch.no_grad():
        base = model.eval()(ids).logits[0]

    mods = modules(cfg, spec)
    leaf = lambda m: m.split(".")[-1]
    stacked = {leaf(m): len(ts) for m, ts in mods.items() if len(ts) > 1}
    r, alpha = spec["lora_rank"], spec["lora_alpha"]
    peft = get_peft_model(model, LoraConfig(
        r=r, lora_alpha=alpha, target_modules=[leaf(m) for m in mods], task_type="CAUSAL_LM",
        rank_pattern={m: n * r for m, n in stacked.items()}, alpha_pattern={m: n * alpha for m, n in stacked.items()})).eval()
    layers = dict(peft.named_modules())
    for l in range(cfg.num_hidden_layers):
        for m, ts in mods.items():
            lora = layers["base_model.model.%slayers.%d.%s" % (ref.names(cfg)["decoder"], l, m)]
            get = lambda half: [tensors["lora.%d.%s.%s" % (l, t, half)] for t in ts]
            lora.lora_A["default"].weight.data.copy_(torch.cat(get("A")))
            lora.lora_B["default"].weight.data.copy_(torch.block_diag(*get("B")))
    with torch.no_grad():
        logits[name] = peft(ids).logits[0].contiguous()

    # The dense reference, LoRA without streams, must agree.
    net = ref.Network(cfg, {k: tensors[k].double() for k in ref.base_shapes(cfg)},
                      ref.Spec(mode="shared", gamma=0, msa_layers=0, alpha_0=1, alpha_stream=0, prune_rank=0, lora_rank=r,
                               lora_alpha=alpha, lora_targets=spec["lora_targets"]),
                      {k: v.double() for k, v in tensors.items()})
    error = relative(logits[name], ref.base_logits(net, ids)[0])
    if error > 2e-6:
        raise SystemExit("%s: PEFT and the reference differ by %.1e" % (name, error))
    if relative(logits[name], base) < 1e-2:
        raise SystemExit("%s: the adapter does not show in the logits" % name)
    with tempfile.TemporaryDirectory() as d:
        peft.save_pretrained(d)
        saved = load_file(Path(d) / "adapter_model.safetensors")
        config = json.loads((Path(d) / "adapter_config.json").read_text())
    print("%-15s PEFT within %.1e of the float64 reference" % (name, error))
    keep = ("peft_type", "task_type", "r", "lora_alpha", "target_modules", "rank_pattern", "alpha_pattern", "bias", "use_dora", "use_rslora")
    config["target_modules"].sort()
    return {"config": {k: config[k] for k in keep}, "tensors": {k: list(v.shape) for k, v in sorted(saved.items())}}


def main():
    torch.set_num_threads(1)
    logits = {}
    doc = {name: build(name, logits) for name in CASES}
    save_file(logits, HERE / "peft.safetensors")
    text = json.dumps(doc, indent=1).replace("[\n    ", "[").replace(",\n    ", ", ").replace("\n   ]", "]")
    (HERE / "peft.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
