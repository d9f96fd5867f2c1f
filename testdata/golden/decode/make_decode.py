"""Writes the golden decodes beside this file: base/, lossless.*, shared.*.

A tiny Llama learns a made-up language of stock phrases, so that its greedy
output is varied and partly predictable; adapters of both modes are fitted for
a few hundred Adam steps to its own greedy continuations; then prompts are
decoded by decoding.py under several tree settings. Prompts on which any
decision came near a tie are passed over, so that float32 readers see the same decisions.
"""

import json
import random
import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parent / "method"))
import decoding  # noqa: E402
import reference as ref  # noqa: E402
from make_method import compact_json, random_tensors  # noqa: E402

BOS, EOS, VOCAB = 1, 2, 53
CONFIG = dict(hidden_size=24, intermediate_size=40, num_hidden_layers=5, num_attention_heads=4,
              num_key_value_heads=2, vocab_size=VOCAB, rms_norm_eps=1e-5, rope_theta=10000.0,
              tie_word_embeddings=True)
SPECS = {
    "lossless": dict(mode="lossless", gamma=3, msa_layers=3, stream_rank=12, stream_mlp="base+adapter", prune_rank=3,
                     alpha_0=0.0, alpha_stream=1.0),
    "shared": dict(mode="shared", gamma=3, msa_layers=3, lora_rank=4, lora_alpha=8.0, lora_targets=ref.LORA_TARGETS,
                   prune_rank=3, alpha_0=1.0, alpha_stream=0.3),
}
TREE_FACTOR, MAX_NEW_TOKENS = 2, 24
QUOTA = {"end": 1, "pruned": 2, "length": 3}  # prompts of each mode, by what they exercise
SETTINGS = {"unpruned": (99, 0.0), "nodes6": (6, 0.0), "threshold": (99, 0.1)}  # tree_nodes, prune_threshold
BASE_STEPS, ADAPTER_STEPS = 500, {"lossless": 500, "shared": 200}
LEAST_LOGIT_MARGIN, LEAST_PRUNE_MARGIN = 2e-3, 2e-3


class Language:
    """Stock phrases in a first-order chain; some end the text."""

    def __init__(self, rng):
        words = list(range(3, VOCAB))
        self.phrases = [[rng.choice(words) for _ in range(rng.randint(3, 7))] for _ in range(14)]
        self.next = [rng.sample(range(14), 3) for _ in self.phrases]
        self.endings = {11, 13}

    def text(self, rng, length):
        out, phrase = [BOS], rng.randrange(14)
        while len(out) < length:
            out += self.phrases[phrase]
            if phrase in self.endings and rng.random() < 0.8:
                out += [EOS, BOS]
                phrase = rng.randrange(14)
            else:
                phrase = rng.choices(self.next[phrase], weights=[6, 3, 1])[0]
        return out[:length]


def cross_entropy(logits, targets):
    return torch.nn.functional.cross_entropy(logits.reshape(-1, VOCAB), targets.reshape(-1))


def minimise(params, steps, rate, loss_of):
    for p in params:
        p.requires_grad_(True)
    optimiser = torch.optim.Adam(params, lr=rate)
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = rate * (1 - step / steps)
        optimiser.zero_grad()
        loss = loss_of(step)
        loss.backward()
        optimiser.step()
    for p in params:
        p.requires_grad_(False)
    return loss.item()


def as_float32_values(tensors):
    """The tensors rounded to float32, in place, still float64: what the files will hold."""
    for v in tensors.values():
        v.copy_(v.to(torch.float32).to(ref.DTYPE))


def fit_base(cfg, language, rng, gen):
    scale = lambda n: (1.0, 0.1) if "norm" in n else (0.0, 0.3)
    weights = {k: v.to(ref.DTYPE) for k, v in random_tensors(ref.base_shapes(cfg), gen, scale).items()}
    net = ref.Network(cfg, weights)

    def loss_of(_):
        tokens = torch.tensor([language.text(rng, 33) for _ in range(16)])
        return cross_entropy(ref.base_logits(net, tokens[:, :-1]), tokens[:, 1:])

    loss = minimise(list(weights.values()), BASE_STEPS, 1e-2, loss_of)
    as_float32_values(weights)
    print("base: cross-entropy %.3f after %d steps" % (loss, BASE_STEPS))
    return net


def fit_adapter(base, spec, language, rng, gen):
    """Adam on the base's own greedy continuations of random prompts, all losses of the method."""
    cfg, length = base.cfg, 8
    scale = lambda n: (0.0, 0.02 if n.endswith(".B") else 0.2)
    adapter = {k: v.to(ref.DTYPE) for k, v in random_tensors(ref.adapter_shapes(cfg, spec), gen, scale).items()}
    net = ref.Network(cfg, base.w, spec, adapter)
    prompts = torch.tensor([language.text(rng, length + i)[-length:] for i in range(16) for _ in range(6)])
    texts = torch.cat([prompts, decoding.autoregressive(base, prompts, MAX_NEW_TOKENS)], dim=1)
    total = texts.shape[1]
    causal = torch.ones(total, total, dtype=torch.bool).tril()
    carriers = list(range(length - 1, total - 1))

    def loss_of(step):
        batch = texts[torch.randperm(len(texts), generator=gen)[:12]]
        out = ref.forward(net, batch, torch.arange(total), causal, carriers)
        loss = spec.alpha_0 * cross_entropy(out.main_logits[:, carriers], batch[:, length:])
        loss = loss + cross_entropy(out.early_logits[:, carriers], batch[:, length:])
        for j in range(1, spec.gamma + 1):
            rows = out.stream_logits[:, : len(carriers) - j, j - 1]
            loss = loss + spec.alpha_stream * cross_entropy(rows, batch[:, length + j:])
        return loss

    steps = ADAPTER_STEPS[spec.mode]
    loss = minimise(list(adapter.values()), steps, 1e-2, loss_of)
    as_float32_values(adapter)
    print("%s: loss %.3f after %d steps" % (spec.mode, loss, steps))
    return net


def plain_tokens(base, net, prompt):
    """What decoding must emit: the base's own greedy tokens, or the adapter's with an empty draft."""
    if net.spec.mode == "shared":
        return decoding.speculative(net, prompt, 0, 1, 0.0, MAX_NEW_TOKENS, EOS).tokens
    tokens = decoding.autoregressive(base, torch.tensor([prompt]), MAX_NEW_TOKENS)[0].tolist()
    return decoding.cut(tokens, EOS)


def classify(plain, runs):
    """What a prompt's decodes exercise: "end", "pruned" or "length"; None: nothing wanted."""
    if plain[-1] == EOS:
        # The end token must come as an accepted draft, or cutting behind it is not exercised.
        last = runs["unpruned"].steps[-1] if runs["unpruned"].steps else None
        return "end" if last and len(plain) >= 5 and last.accepted >= last.emitted else None
    accepted = {name: [s.accepted for s in r.steps] for name, r in runs.items()}
    return "pruned" if accepted["nodes6"] != accepted["unpruned"] else "length"


def choose_prompts(base, net, language, rng):
    """Prompts decoded under every setting, clear of ties.

    One is ended by the end token; in two pruning costs an acceptance; one is a single token.
    """
    chosen, quota = [], dict(QUOTA)
    for attempt in range(600):
        length = 1 if not chosen else rng.randint(2, 11)
        prompt = [rng.randrange(3, VOCAB)] if length == 1 else language.text(rng, 24)[-length:]
        if EOS in prompt:
            continue
        plain = plain_tokens(base, net, prompt)
        if len(set(plain)) < (4 if plain[-1] == EOS else 9) or any(plain[-8:] == c[2][-8:] for c in chosen):
            continue
        if not any(quota[r] for r in (("end",) if plain[-1] == EOS else ("pruned", "length"))):
            continue
        runs = {}
        for name, (nodes, threshold) in SETTINGS.items():
            run = decoding.speculative(net, prompt, TREE_FACTOR, nodes, threshold, MAX_NEW_TOKENS, EOS)
            if run.tokens != plain:
                raise SystemExit("%s, %s: decoding differs from the plain decode of %s" % (net.spec.mode, name, prompt))
            if run.margins.logit < LEAST_LOGIT_MARGIN or run.margins.prune < LEAST_PRUNE_MARGIN:
                break
            runs[name] = run
        reason = classify(plain, runs) if len(runs) == len(SETTINGS) else None
        if not quota.get(reason):
            continue
        quota[reason] -= 1
        chosen.append((prompt, runs, plain, reason))
        if not any(quota.values()):
            return chosen
    raise SystemExit("%s: prompts wanting after %d attempts: %s" % (net.spec.mode, attempt + 1, quota))


def write_base(base):
    out = HERE / "base"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
              "bos_token_id": BOS, "eos_token_id": EOS, "max_position_embeddings": 512, "attention_bias": False,
              "mlp_bias": False, "rope_scaling": None, "torch_dtype": "float32", **CONFIG}
    (out / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    save_file({k: v.to(torch.float32).contiguous() for k, v in base.w.items()}, out / "model.safetensors",
              metadata={"format": "pt"})


def write_mode(net, chosen):
    mode = net.spec.mode
    save_file({k: v.to(torch.float32).contiguous() for k, v in net.a.items()}, HERE / (mode + ".safetensors"))
    settings = {}
    for name, (nodes, threshold) in SETTINGS.items():
        runs = [c[1][name] for c in chosen]
        settings[name] = {
            "decode": {"max_new_tokens": MAX_NEW_TOKENS, "tree_factor": TREE_FACTOR, "tree_nodes": nodes,
                       "prune_threshold": threshold},
            "mean_accepted_tokens": decoding.pooled_beta(runs),
            "target_calls": sum(len(r.steps) for r in runs),
            "least_logit_margin": min(r.margins.logit for r in runs),
            "least_prune_margin": min([r.margins.prune for r in runs if r.margins.prune < 1e9], default=None),
            "runs": [decoding.as_json(r) for r in runs],
        }
        print("%-8s %-9s %3d target calls, mean accepted %.3f, accepted drafts %s, margins %.1e logits, %s paths" % (
            mode, name, settings[name]["target_calls"], settings[name]["mean_accepted_tokens"],
            sorted({s.accepted for r in runs for s in r.steps}), settings[name]["least_logit_margin"],
            settings[name]["least_prune_margin"]))
    accepted = [s.accepted for c in chosen for s in c[1]["unpruned"].steps]
    if set(accepted) != set(range(net.spec.gamma + 1)):
        raise SystemExit("%s: accepted lengths %s do not cover 0..gamma" % (mode, sorted(set(accepted))))
    fields = {k: list(v) if isinstance(v, tuple) else v for k, v in vars(net.spec).items() if v not in ("", 0, ()) or k == "alpha_0"}
    doc = {"base": "base", "adapter": mode + ".safetensors", "spec": fields, "end_token": EOS,
           "prompts": [c[0] for c in chosen], "plain_tokens": [c[2] for c in chosen],
           "exercises": [c[3] for c in chosen], "settings": settings}
    (HERE / (mode + ".json")).write_text(compact_json(doc))


def main():
    torch.set_num_threads(1)
    torch.manual_seed(7)
    rng, gen = random.Random(7), torch.Generator().manual_seed(7)
    language = Language(rng)
    base = fit_base(ref.Config(**CONFIG), language, rng, gen)
    write_base(base)
    for mode, spec in SPECS.items():
        net = fit_adapter(base, ref.Spec(**spec), language, rng, gen)
        with torch.no_grad():
            write_mode(net, choose_prompts(base, net, language, rng))


if __name__ == "__main__":
    main()
