"""Writes the golden vectors of the training method beside this file.

Case names as arguments restrict it to those cases. For each case: <case>.safetensors (base weights, adapter, batch; losses,
gradients, logits) and <case>.json (config, spec, batch, what each tensor is).
mutations.json says how far loss and gradients move when one term of the method
is broken. Every gradient is checked against central finite differences first.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import reference as ref  # noqa: E402

SHAPE = dict(hidden_size=24, intermediate_size=40, num_hidden_layers=5, num_attention_heads=4,
             num_key_value_heads=2, vocab_size=53, rms_norm_eps=1e-5, rope_theta=10000.0)
LOSSLESS = dict(mode="lossless", msa_layers=3, stream_rank=4, prune_rank=3, alpha_0=0.0, alpha_stream=1.0)
SHARED = dict(mode="shared", msa_layers=3, lora_rank=4, lora_alpha=8.0, lora_targets=ref.LORA_TARGETS,
              prune_rank=3, alpha_0=1.0, alpha_stream=0.1)
LOWRANK = dict(stream_init="lowrank", stream_init_rank=5)

# The other families, smaller. Windows and sequences are such that most rows see less than all before them.
TINY = dict(hidden_size=16, intermediate_size=20, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, vocab_size=31)
FAMILIES = {
    "mistral": dict(TINY, family="mistral", sliding_window=6),
    "qwen2": dict(TINY, family="qwen2", sliding_window=7, max_window_layers=2, rms_norm_eps=1e-6, rope_theta=1e6,
                  tie_word_embeddings=True),
    "phi3": dict(TINY, family="phi3", sliding_window=5),
    "opt": dict(TINY, family="opt", num_key_value_heads=4, learned_positions=24, tie_word_embeddings=True),
}
FAMILY_LOSSLESS = dict(LOSSLESS, gamma=3, msa_layers=2, stream_rank=3, prune_rank=2, stream_mlp="base+adapter")
FAMILY_SHARED = dict(SHARED, gamma=3, msa_layers=2, lora_rank=2, lora_alpha=3.0, prune_rank=2)

# (length, spans) of each sample. Two turns; a prompt of one token; a completion of one token.
LOSSLESS_BATCH = [(22, [(5, 11), (15, 22)]), (14, [(1, 14)]), (9, [(8, 9)])]
SHARED_BATCH = [(19, [(7, 19)]), (13, [(1, 13)]), (9, [(8, 9)])]

# name: (config, spec, batch, seed)
CASES = {
    "lossless-adapter": (dict(tie_word_embeddings=False),
                         dict(LOSSLESS, gamma=4, stream_mlp="adapter"), LOSSLESS_BATCH, 101),
    "lossless-base-adapter-lowrank": (dict(tie_word_embeddings=True, rope_theta=500000.0),
                                      dict(LOSSLESS, gamma=4, stream_mlp="base+adapter", **LOWRANK), LOSSLESS_BATCH, 102),
    "lossless-alphas-gamma2": (dict(tie_word_embeddings=False),
                               dict(LOSSLESS, gamma=2, stream_mlp="adapter", alpha_0=0.7, alpha_stream=0.3),
                               LOSSLESS_BATCH, 103),
    "shared": (dict(tie_word_embeddings=False), dict(SHARED, gamma=4), SHARED_BATCH, 104),
    "shared-lowrank-gamma2": (dict(tie_word_embeddings=True, rope_theta=500000.0),
                              dict(SHARED, gamma=2, alpha_0=0.7, alpha_stream=0.3, **LOWRANK), SHARED_BATCH, 105),
}

for _seed, (_family, _config) in enumerate(FAMILIES.items(), start=110):
    CASES[_family + "-lossless"] = (_config, FAMILY_LOSSLESS, LOSSLESS_BATCH, 2 * _seed)
    CASES[_family + "-shared"] = (_config, FAMILY_SHARED, SHARED_BATCH, 2 * _seed + 1)


def mutations_of(cfg, spec):
    """The mutations that change what this base and mode compute."""
    out = LOSSLESS_MUTATIONS if spec.mode == "lossless" else SHARED_MUTATIONS
    if cfg.family == "opt":
        return [m for m in out if m != "stream_position_t"] + ["stream_learned_position"]
    if cfg.sliding_window:
        out = out + ["window_longer", "window_shorter", "window_of_stream_is_mains"]
    if cfg.max_window_layers:
        out = out + ["window_in_every_layer"]
    return out


# Mutations of each mode.
LOSSLESS_MUTATIONS = [
    "stream_sees_future_main", "stream_misses_own_main", "stream_misses_earlier_own", "stream_sees_later_own",
    "stream_sees_other_position", "main_sees_future_main", "main_sees_own_streams", "prompt_streams_trained",
    "last_prompt_position_bare", "stream_position_t", "stream_target_beyond_span", "stream_mean_over_next_targets",
    "mean_per_sample",
]
SHARED_MUTATIONS = [
    "stream_sees_future_main", "stream_misses_own_main", "stream_misses_earlier_own", "stream_sees_later_own",
    "stream_sees_other_position", "main_sees_future_main", "main_misses_own_streams", "main_sees_first_stream_only",
    "main_sees_streams_with_target_only", "main_sees_earlier_streams", "prompt_carries_streams",
    "prompt_streams_trained", "last_prompt_position_bare", "stream_position_t", "stream_mean_over_next_targets",
    "mean_per_sample", "prune_gradient_reaches_main",
]
LEAST_CHANGE = 1e-3
FLOAT32_TOLERANCE = 3e-6
FD_STEP, FD_TOLERANCE, FD_COORDINATES = 1e-5, 1e-6, 3


def random_tensors(shapes, gen, scale):
    """Float32 tensors, so that a float32 reader starts from exactly the same numbers."""
    tensors = {}
    for name, shape in shapes.items():
        mean, std = scale(name)
        tensors[name] = mean + std * torch.randn(shape, generator=gen)
    return tensors


def base_scale(name):
    if name.endswith(".bias"):
        return 0.0, 0.3
    if "norm" in name:
        return 1.0, 0.25
    if "embed" in name or "lm_head" in name:
        return 0.0, 0.3
    return 0.0, 0.2  # more, and float32 rounding alone costs gradients 1e-5


def adapter_scale(name):
    if name == "stream_embeddings":
        return 0.0, 0.4
    return 0.0, (0.1 if name.startswith("lora.") else 0.2)


def make_case(config, spec, batch, seed):
    gen = torch.Generator().manual_seed(seed)
    cfg, sp = ref.Config(**{**SHAPE, **config}), ref.Spec(**spec)
    base = random_tensors(ref.base_shapes(cfg), gen, base_scale)
    adapter = random_tensors(ref.adapter_shapes(cfg, sp), gen, adapter_scale)
    samples = [ref.Sample(torch.randint(0, cfg.vocab_size, (n,), generator=gen).tolist(), spans) for n, spans in batch]
    return cfg, sp, base, adapter, samples


def run(cfg, spec, base, adapter, samples, mutation=None, dtype=ref.DTYPE):
    """The loss and the gradient of every adapter tensor."""
    weights = {k: v.to(dtype) for k, v in base.items()}
    params = {k: v.detach().to(dtype).clone().requires_grad_(True) for k, v in adapter.items()}
    loss = ref.batch_loss(ref.Network(cfg, weights, spec, params), samples, mutation)
    grads = torch.autograd.grad(loss.total, list(params.values()), allow_unused=True)
    return loss, {k: torch.zeros_like(p) if g is None else g for (k, p), g in zip(params.items(), grads)}


def check_finite_differences(name, cfg, spec, base, adapter, samples, grads, gen):
    """Central differences on random coordinates of every tensor.

    The pruning loss reaches o_theta alone (stop-gradient), so the function
    differentiated is that loss for the pruner and the rest for every other tensor.
    """
    weights = {k: v.to(ref.DTYPE) for k, v in base.items()}
    params = {k: v.to(ref.DTYPE) for k, v in adapter.items()}
    net, worst = ref.Network(cfg, weights, spec, params), 0.0

    def value(key):
        with torch.no_grad():
            loss = ref.batch_loss(net, samples)
        return (loss.prune if key.startswith("pruner.") else loss.total - loss.prune).item()

    for key, p in params.items():
        flat, g = p.view(-1), grads[key].view(-1)
        scale = max(g.abs().max().item(), 1e-4)
        for i in torch.randperm(flat.numel(), generator=gen)[:FD_COORDINATES].tolist():
            keep = flat[i].item()
            flat[i] = keep + FD_STEP
            up = value(key)
            flat[i] = keep - FD_STEP
            down = value(key)
            flat[i] = keep
            error = abs((up - down) / (2 * FD_STEP) - g[i].item()) / scale
            worst = max(worst, error)
            if error > FD_TOLERANCE:
                raise SystemExit("%s: gradient of %s[%d] is off by %.1e of its largest entry" % (name, key, i, error))
    return worst


def check_main_is_base(name, case, loss):
    """In lossless mode the main stream is the base's, whatever the adapter holds."""
    cfg, _, base, _, samples = case
    net = ref.Network(cfg, {k: v.to(ref.DTYPE) for k, v in base.items()})
    logits = [ref.base_logits(net, torch.tensor([s.tokens]))[0] for s in samples]
    want = torch.stack([logits[s][t] for s, t in loss.positions])
    if not torch.allclose(want, loss.main_logits, rtol=0, atol=1e-12):
        raise SystemExit("%s: the main stream is not the base's" % name)


def check_float32(name, case, grads):
    """The case is well enough conditioned that float32 arithmetic can agree to 1e-5 with room to spare."""
    _, rounded = run(*case, dtype=torch.float32)
    error = {k: ((rounded[k].to(ref.DTYPE) - g).norm() / g.norm()).item() for k, g in grads.items()}
    worst = max(error, key=error.get)
    if error[worst] > FLOAT32_TOLERANCE:
        raise SystemExit("%s: float32 arithmetic moves the gradient of %s by %.1e" % (name, worst, error[worst]))
    return error[worst]


def compare_mutations(name, case, loss, grads):
    rows = {}
    for m in mutations_of(*case[:2]):
        other, other_grads = run(*case, mutation=m)
        change = {k: ((other_grads[k] - g).norm() / g.norm()).item() for k, g in grads.items()}
        norm = {k: (other_grads[k].norm() / g.norm() - 1).abs().item() for k, g in grads.items()}
        top = max(change, key=change.get)
        if change[top] <= LEAST_CHANGE:
            raise SystemExit("%s: breaking %s moves no gradient by more than %.0e" % (name, m, LEAST_CHANGE))
        rows[m] = {
            "what": ref.MUTATIONS[m],
            "loss": other.total.item(),
            "loss_relative_change": abs(other.total.item() - loss.total.item()) / abs(loss.total.item()),
            "gradient_relative_change_max": change[top],
            "gradient_relative_change_max_tensor": top,
            "gradient_relative_change_by_tensor": {k: float("%.3e" % v) for k, v in change.items() if "lora." not in k},
            "gradient_norm_relative_change_max": max(norm.values()),
            "tensors_changed_over_1e-3": sum(v > LEAST_CHANGE for v in change.values()),
            "tensors": len(change),
        }
    return rows


ABOUT = {
    "tokens": "token ids of all samples, one after another",
    "lengths": "tokens in each sample",
    "spans": "(sample, start, end): completion spans [start, end) of token indices within the sample",
    "loss.total": "alpha_0*loss.main + alpha_stream*sum(loss.streams) + loss.prune",
    "loss.main": "mean next-token cross-entropy over completion targets, unweighted",
    "loss.streams": "for each stream the mean cross-entropy over its own targets in the batch, unweighted",
    "loss.prune": "mean next-token cross-entropy of the early-exit logits",
    "counts": "targets in the batch: next token, stream 1 .. gamma",
    "positions": "(sample, t) of the P rows below: every position that carries streams",
    "stream_targets": "token id each stream predicts, -1 where it has none",
    "main_logits": "main-stream logits of the P rows",
    "early_logits": "pruning adapter's early-exit logits of the P rows",
    "stream_logits": "stream logits of the P rows",
}


def write_case(name, case, loss, grads):
    cfg, spec, base, adapter, samples = case
    i32 = lambda x: torch.tensor(x, dtype=torch.int32)
    f32 = lambda x: x.detach().to(torch.float32).contiguous()
    f64 = lambda x: x.detach().to(torch.float64).contiguous()
    tensors = {**base, **adapter}
    tensors.update({
        "tokens": i32([t for s in samples for t in s.tokens]),
        "lengths": i32([len(s.tokens) for s in samples]),
        "spans": i32([(i, a, b) for i, s in enumerate(samples) for a, b in s.spans]),
        "loss.total": f64(loss.total.reshape(1)), "loss.main": f64(loss.main.reshape(1)),
        "loss.streams": f64(loss.streams), "loss.prune": f64(loss.prune.reshape(1)),
        "counts": i32(loss.counts), "positions": i32(loss.positions), "stream_targets": i32(loss.stream_targets),
        "main_logits": f32(loss.main_logits), "early_logits": f32(loss.early_logits),
        "stream_logits": f32(loss.stream_logits),
    })
    tensors.update({"grad." + k: f64(g) for k, g in grads.items()})
    save_file(tensors, HERE / (name + ".safetensors"))

    dtypes = {torch.float32: "F32", torch.float64: "F64", torch.int32: "I32"}

    def about(k):
        if k.startswith("grad."):
            return "gradient of loss.total"
        return ABOUT.get(k, "base weight" if k in base else "adapter")

    fields = {k: list(v) if isinstance(v, tuple) else v for k, v in vars(spec).items() if v not in ("", 0, ()) or k == "alpha_0"}
    doc = {
        "case": name, "config": cfg.to_json(), "spec": fields,
        "samples": [{"tokens": s.tokens, "spans": s.spans} for s in samples],
        "loss": {"total": loss.total.item(), "main": loss.main.item(), "streams": loss.streams.tolist(),
                 "prune": loss.prune.item(), "counts": loss.counts},
        "tensors": {k: {"dtype": dtypes[v.dtype], "shape": list(v.shape), "about": about(k)} for k, v in sorted(tensors.items())},
    }
    (HERE / (name + ".json")).write_text(compact_json(doc))


def compact_json(doc):
    """JSON with short values and flat lists on one line, so that it stays readable and diffs stay small."""
    def render(v, pad):
        text = json.dumps(v)
        flat = isinstance(v, list) and not any(isinstance(x, (dict, list)) for x in v)
        if flat or len(text) <= 150 or not isinstance(v, (dict, list)):
            return text
        inner = pad + "  "
        if isinstance(v, dict):
            body = ",\n".join(inner + json.dumps(k) + ": " + render(x, inner) for k, x in v.items())
            return "{\n" + body + "\n" + pad + "}"
        return "[\n" + ",\n".join(inner + render(x, inner) for x in v) + "\n" + pad + "]"

    return render(doc, "") + "\n"


def main():
    torch.set_num_threads(1)
    chosen = sys.argv[1:] or list(CASES)
    mutations = json.loads((HERE / "mutations.json").read_text()) if sys.argv[1:] else {}
    for name in chosen:
        config, spec, batch, seed = CASES[name]
        case = make_case(config, spec, batch, seed)
        loss, grads = run(*case)
        dead = [k for k, g in grads.items() if not g.norm() > 1e-6]
        if dead:
            raise SystemExit("%s: no gradient reaches %s" % (name, dead))
        if spec["mode"] == "lossless":
            check_main_is_base(name, case, loss)
        worst = check_finite_differences(name, *case, grads, torch.Generator().manual_seed(seed + 1000))
        rounding = check_float32(name, case, grads)
        rows = compare_mutations(name, case, loss, grads)
        mutations[name] = {"loss": loss.total.item(), "mutations": rows}
        write_case(name, case, loss, grads)
        least = min(rows, key=lambda m: rows[m]["gradient_relative_change_max"])
        print("%-30s loss %.6f, %d tensors, finite differences within %.1e, float32 within %.1e, least mutation %s %.1e" % (
            name, loss.total, len(grads), worst, rounding, least, rows[least]["gradient_relative_change_max"]))
    (HERE / "mutations.json").write_text(compact_json({name: mutations[name] for name in CASES if name in mutations}))


if __name__ == "__main__":
    main()
