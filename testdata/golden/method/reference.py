"""Speculative Streaming, straight from its equations: dense and slow, in float64.

Nothing here is organised for speed or memory. A sample is one list of rows
(its main rows, then gamma stream rows for every position that carries
streams), one boolean matrix says which row sees which, and PyTorch's autograd
takes the gradients. There are no segments, no caches and no fused operations,
so it shares no idea, and no mistake, with the implementations it judges.

Conventions
  * A sample is tokens[0..L-1] with completion spans [start, end) of token
    indices, start >= 1. The main stream at position t predicts token t+1.
  * Positions start-1 .. end-2 of a span carry streams, all gamma of them.
  * Stream j (1..gamma) of position t predicts token t+1+j where t+1+j <= end-1
    and has no target beyond; it exists all the same.
  * Position of main t is t, of stream j of position t it is t+j, for rotary
    embeddings and for sliding windows. Learned positions are added to the token
    embedding, below the streams, which inherit t.
  * Linear weights are [out, in]: y = W x.

Sources: "Speculative Streaming", Eq. 2 (stream attention), Eq. 3 (shared main
stream), Eq. 4 (stream initialisation), Eq. 6 (loss), section 2.3 (pruning
adapter), Appendix H.2 (stream adapters), Appendix I (positions with streams).
"""

import math
from dataclasses import dataclass, field
from typing import Dict, List, Optional, Sequence, Tuple

import torch
from torch import Tensor

LORA_TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
DTYPE = torch.float64


# Ways to break the method, one term each. Tests use them to show that the
# golden vectors depend on that term.
MUTATIONS = {
    "stream_sees_future_main": "stream rows of position t also see main row t+1",
    "stream_misses_own_main": "stream rows of position t see main rows < t only",
    "stream_misses_earlier_own": "stream j does not see streams 1..j-1 of its position",
    "stream_sees_later_own": "stream j sees all gamma streams of its position",
    "stream_sees_other_position": "stream j also sees streams 1..j of the previous position with streams",
    "main_sees_future_main": "main row t also sees main row t+1 in the multi-stream layers",
    "main_sees_own_streams": "lossless: main rows see their own streams",
    "main_misses_own_streams": "shared: main rows do not see their own streams",
    "main_sees_first_stream_only": "shared: main rows see stream 1 of their streams only",
    "main_sees_streams_with_target_only": "shared: main rows do not see streams without a target",
    "main_sees_earlier_streams": "shared: main rows also see the streams of the previous position with streams",
    "prompt_carries_streams": "shared: every prompt position carries streams (they have no loss)",
    "prompt_streams_trained": "positions before start-1 carry streams whose targets lie in the completion",
    "last_prompt_position_bare": "position start-1 carries no streams",
    "stream_position_t": "rotary position of stream j is t instead of t+j",
    "stream_target_beyond_span": "streams predict past the end of their span while the sample has tokens",
    "stream_mean_over_next_targets": "stream losses are divided by the count of next-token targets",
    "mean_per_sample": "losses are means over a sample's targets, then over samples",
    "prune_gradient_reaches_main": "shared: the pruning loss has no stop-gradient on M",
    "window_longer": "sliding windows are one position longer",
    "window_shorter": "sliding windows are one position shorter",
    "window_of_stream_is_mains": "stream rows of position t see the main rows that main row t sees",
    "window_in_every_layer": "layers under max_window_layers have the window too",
    "stream_learned_position": "streams get the learned position t+j in place of t",
}


@dataclass
class Config:
    """Shape of a decoder, in the words of Hugging Face's config.json for Llama.

    family None is Llama. rms_norm_eps is LayerNorm's epsilon too, intermediate_size
    OPT's ffn_dim; OPT has no rotary positions.
    """

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    vocab_size: int
    head_dim: int = 0
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10000.0
    rope_scaling: Optional[dict] = None
    tie_word_embeddings: bool = False
    family: Optional[str] = None  # "mistral", "qwen2", "phi3" or "opt"
    sliding_window: Optional[int] = None  # positions a row sees at most, its own included
    max_window_layers: Optional[int] = None  # layers from the bottom without the window
    learned_positions: Optional[int] = None  # OPT's max_position_embeddings

    def __post_init__(self):
        self.head_dim = self.head_dim or self.hidden_size // self.num_attention_heads

    @staticmethod
    def from_json(d: dict) -> "Config":
        if d.get("model_type") == "opt":
            d = {**d, "intermediate_size": d["ffn_dim"], "num_key_value_heads": d["num_attention_heads"],
                 "learned_positions": d["max_position_embeddings"], "tie_word_embeddings": d.get("tie_word_embeddings", True)}
        if d.get("model_type") == "qwen2" and not d.get("use_sliding_window"):
            d = {k: v for k, v in d.items() if k not in ("sliding_window", "max_window_layers")}
        d = {**d, "family": None if d.get("model_type", "llama") == "llama" else d["model_type"]}
        return Config(**{k: d[k] for k in Config.__dataclass_fields__ if d.get(k) is not None})

    def to_json(self) -> dict:
        """The fields of config.json, but for those without a meaning here."""
        arch = {None: "LlamaForCausalLM", "mistral": "MistralForCausalLM", "qwen2": "Qwen2ForCausalLM",
                "phi3": "Phi3ForCausalLM", "opt": "OPTForCausalLM"}[self.family]
        fields = {k: v for k, v in vars(self).items() if v is not None and k not in ("family", "learned_positions")}
        if self.family == "opt":
            for name in ("num_key_value_heads", "head_dim", "rms_norm_eps", "rope_theta"):
                del fields[name]
            fields["ffn_dim"] = fields.pop("intermediate_size")
            return {"architectures": [arch], "model_type": "opt", "activation_function": "relu",
                    "max_position_embeddings": self.learned_positions, **fields}
        if self.family == "qwen2" and self.sliding_window:
            fields["use_sliding_window"] = True
        if self.family == "phi3":
            fields["eos_token_id"] = 2  # transformers' default is beyond a small vocabulary
        return {"architectures": [arch], "model_type": self.family or "llama", "hidden_act": "silu",
                "max_position_embeddings": 512, **fields}

    def window(self, layer: int, mutation: Optional[str] = None) -> Optional[int]:
        """Positions a row of the layer sees at most; None: all."""
        if self.sliding_window is None:
            return None
        if layer < (self.max_window_layers or 0) and mutation != "window_in_every_layer":
            return None
        return self.sliding_window + {"window_longer": 1, "window_shorter": -1}.get(mutation, 0)


@dataclass
class Spec:
    """Shape of an adapter and the weights of its losses."""

    mode: str  # "lossless" or "shared"
    gamma: int
    msa_layers: int
    alpha_0: float
    alpha_stream: float
    prune_rank: int
    stream_init: str = "identity"  # or "lowrank"
    stream_init_rank: int = 0
    stream_rank: int = 0  # lossless
    stream_mlp: str = ""  # lossless: "adapter" or "base+adapter"
    lora_rank: int = 0  # shared
    lora_alpha: float = 0.0  # shared
    lora_targets: Sequence[str] = field(default_factory=tuple)  # shared


@dataclass
class Sample:
    """Token ids and completion spans [start, end)."""

    tokens: List[int]
    spans: List[Tuple[int, int]]


# --- Names of the base's tensors --------------------------------------------

LLAMA_NAMES = {"decoder": "model.", "attn_norm": "input_layernorm", "mlp_norm": "post_attention_layernorm", "norm": "norm",
               **{t: "self_attn." + t for t in LORA_TARGETS[:4]}, **{t: "mlp." + t for t in LORA_TARGETS[4:]}}
OPT_NAMES = {"decoder": "model.decoder.", "attn_norm": "self_attn_layer_norm", "mlp_norm": "final_layer_norm",
             "norm": "final_layer_norm", "q_proj": "self_attn.q_proj", "k_proj": "self_attn.k_proj",
             "v_proj": "self_attn.v_proj", "o_proj": "self_attn.out_proj", "up_proj": "fc1", "down_proj": "fc2"}
# Phi-3 stores projections of one input as one tensor, one below the other.
PHI3_NAMES = {**LLAMA_NAMES, **{t: "self_attn.qkv_proj" for t in LORA_TARGETS[:3]},
              **{t: "mlp.gate_up_proj" for t in LORA_TARGETS[4:6]}}


def names(cfg: Config) -> Dict[str, str]:
    return {"opt": OPT_NAMES, "phi3": PHI3_NAMES}.get(cfg.family, LLAMA_NAMES)


def projection_shapes(cfg: Config) -> Dict[str, Tuple[int, int]]:
    """Shape [out, in] of every projection of a layer, by LoRA target."""
    h, f = cfg.hidden_size, cfg.intermediate_size
    q, kv = cfg.num_attention_heads * cfg.head_dim, cfg.num_key_value_heads * cfg.head_dim
    shapes = {"q_proj": (q, h), "k_proj": (kv, h), "v_proj": (kv, h), "o_proj": (h, q),
              "gate_proj": (f, h), "up_proj": (f, h), "down_proj": (h, f)}
    if cfg.family == "opt":
        del shapes["gate_proj"]
    return shapes


def has_bias(cfg: Config, target: str) -> bool:
    return cfg.family == "opt" or cfg.family == "qwen2" and target in LORA_TARGETS[:3]


# --- The decoder layer ------------------------------------------------------


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * weight


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    d = x - x.mean(-1, keepdim=True)
    return d / torch.sqrt((d * d).mean(-1, keepdim=True) + eps) * weight + bias


def inverse_frequencies(cfg: Config) -> Tensor:
    """Rotary frequencies [head_dim/2], with Llama 3's scaling where configured."""
    exponent = torch.arange(0, cfg.head_dim, 2, dtype=DTYPE) / cfg.head_dim
    freq = cfg.rope_theta ** (-exponent)
    s = cfg.rope_scaling
    if s is None:
        return freq
    if s.get("rope_type", s.get("type")) != "llama3":
        raise ValueError("rope_scaling %r is not implemented" % (s,))
    turns = s["original_max_position_embeddings"] * freq / (2 * math.pi)
    low, high = s["low_freq_factor"], s["high_freq_factor"]
    blend = ((turns - low) / (high - low)).clamp(0, 1)  # 0: slow, divided; 1: fast, kept
    return blend * freq + (1 - blend) * freq / s["factor"]


def rotate(x: Tensor, positions: Tensor, cfg: Config) -> Tensor:
    """Rotary embedding of x [B, heads, rows, d], halves paired (i, i + d/2)."""
    angle = positions.to(DTYPE)[:, None] * inverse_frequencies(cfg)[None, :]  # [rows, d/2]
    a, b = x.chunk(2, dim=-1)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


class Network:
    """The base's weights, an adapter's tensors and how they combine."""

    def __init__(self, cfg: Config, weights: Dict[str, Tensor], spec: Optional[Spec] = None, adapter=None):
        self.cfg, self.spec, self.w, self.a = cfg, spec, weights, adapter

    def linear(self, layer: int, target: str, x: Tensor) -> Tensor:
        n = names(self.cfg)
        module = "%slayers.%d.%s" % (n["decoder"], layer, n[target])
        w = self.w[module + ".weight"]
        shapes = projection_shapes(self.cfg)
        stored = [t for t in shapes if n[t] == n[target]]  # with this one in one tensor
        if len(stored) > 1:
            w = w.split([shapes[t][0] for t in stored])[stored.index(target)]
        y = x @ w.T
        if module + ".bias" in self.w:
            y = y + self.w[module + ".bias"]
        if self.spec is not None and self.spec.mode == "shared" and target in self.spec.lora_targets:
            a, b = (self.a["lora.%d.%s.%s" % (layer, target, m)] for m in "AB")
            y = y + (self.spec.lora_alpha / self.spec.lora_rank) * ((x @ a.T) @ b.T)
        return y

    def norm(self, name: str, x: Tensor) -> Tensor:
        name = names(self.cfg)["decoder"] + name
        if self.cfg.family == "opt":
            return layer_norm(x, self.w[name + ".weight"], self.w[name + ".bias"], self.cfg.rms_norm_eps)
        return rms_norm(x, self.w[name + ".weight"], self.cfg.rms_norm_eps)

    def attention(self, layer: int, x: Tensor, positions: Tensor, visible: Tensor, n_main: int, mutation=None) -> Tensor:
        """Attention of normed rows x [B, R, h]; visible [R, R] says row r sees row c."""
        c = self.cfg
        window = c.window(layer, mutation)
        if window is not None:
            distance = positions[:, None] - positions[None, :]
            if mutation == "window_of_stream_is_mains" and n_main < len(positions):
                gamma = self.spec.gamma
                offset = torch.arange(len(positions) - n_main) % gamma + 1
                distance[n_main:, :n_main] -= offset[:, None]
            visible = visible & (distance < window)
        heads = lambda y: y.reshape(x.shape[0], x.shape[1], -1, c.head_dim).transpose(1, 2)
        q, k = heads(self.linear(layer, "q_proj", x)), heads(self.linear(layer, "k_proj", x))
        if c.family != "opt":
            q, k = rotate(q, positions, c), rotate(k, positions, c)
        v = heads(self.linear(layer, "v_proj", x))
        group = c.num_attention_heads // c.num_key_value_heads
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        scores = q @ k.transpose(-1, -2) / math.sqrt(c.head_dim)
        scores = scores.masked_fill(~visible, float("-inf"))
        y = torch.softmax(scores, dim=-1) @ v
        return self.linear(layer, "o_proj", y.transpose(1, 2).reshape(x.shape[0], x.shape[1], -1))

    def mlp(self, layer: int, x: Tensor) -> Tensor:
        if self.cfg.family == "opt":
            return self.linear(layer, "down_proj", torch.relu(self.linear(layer, "up_proj", x)))
        gate = torch.nn.functional.silu(self.linear(layer, "gate_proj", x))
        return self.linear(layer, "down_proj", gate * self.linear(layer, "up_proj", x))

    def stream_mlp(self, layer: int, x: Tensor) -> Tensor:
        if self.spec.mode == "shared":
            return self.mlp(layer, x)
        a, b = (self.a["stream_adapters.%d.%s" % (layer, m)] for m in "AB")
        y = (x @ a.T) @ b.T
        return y + self.mlp(layer, x) if self.spec.stream_mlp == "base+adapter" else y

    def layer(self, layer: int, x: Tensor, n_main: int, positions: Tensor, visible: Tensor, mutation=None) -> Tensor:
        """One decoder layer of rows x [B, R, h]: n_main main rows, then stream rows."""
        name = "layers.%d." % layer
        n = names(self.cfg)
        x = x + self.attention(layer, self.norm(name + n["attn_norm"], x), positions, visible, n_main, mutation)
        y = self.norm(name + n["mlp_norm"], x)
        out = self.mlp(layer, y[:, :n_main])
        if n_main < x.shape[1]:
            out = torch.cat([out, self.stream_mlp(layer, y[:, n_main:])], dim=1)
        return x + out

    def head(self, x: Tensor) -> Tensor:
        n = names(self.cfg)
        name = n["decoder"] + "embed_tokens.weight" if self.cfg.tie_word_embeddings else "lm_head.weight"
        return self.norm(n["norm"], x) @ self.w[name].T

    def embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        x = self.w[names(self.cfg)["decoder"] + "embed_tokens.weight"][tokens]
        return x + self.learned(positions) if self.cfg.family == "opt" else x

    def learned(self, positions: Tensor) -> Tensor:
        """OPT's learned positions; the table begins two rows before position 0."""
        return self.w["model.decoder.embed_positions.weight"][positions + 2]


def base_logits(net: Network, tokens: Tensor) -> Tensor:
    """Logits [B, L, V] of the base alone, tokens [B, L]."""
    length = tokens.shape[1]
    visible = torch.ones(length, length, dtype=torch.bool).tril()
    x = net.embed(tokens, torch.arange(length))
    for layer in range(net.cfg.num_hidden_layers):
        x = net.layer(layer, x, length, torch.arange(length), visible)
    return net.head(x)


# --- The multi-stream forward -----------------------------------------------


def dense_mask(spec: Spec, main_visible: Tensor, carriers: Sequence[int], targetless=frozenset(), mutation=None) -> Tensor:
    """Visibility of the multi-stream layers, [T + C*gamma, T + C*gamma].

    main_visible [T, T] says which main rows a main row sees; carriers lists the
    C main rows that carry streams. Row T + i*gamma + j-1 is stream j of main
    row carriers[i]. targetless holds the (t, j) of streams without a target.
    """
    T, g, m = main_visible.shape[0], spec.gamma, mutation
    see = torch.zeros(T + len(carriers) * g, T + len(carriers) * g, dtype=torch.bool)
    see[:T, :T] = main_visible
    if m == "main_sees_future_main":
        for t in range(T - 1):
            see[t, t + 1] = True
    for i, t in enumerate(carriers):
        first = T + i * g  # row of stream 1
        for j in range(1, g + 1):
            row = first + j - 1
            see[row, :T] = main_visible[t]
            if m == "stream_sees_future_main" and t + 1 < T:
                see[row, t + 1] = True
            if m == "stream_misses_own_main":
                see[row, t] = t == 0
            for i2 in range(1, g + 1):
                see[row, first + i2 - 1] = i2 <= j
                if m == "stream_misses_earlier_own":
                    see[row, first + i2 - 1] = i2 == j
                if m == "stream_sees_later_own":
                    see[row, first + i2 - 1] = True
                if m == "stream_sees_other_position" and i > 0 and i2 <= j:
                    see[row, first - g + i2 - 1] = True
            if spec.mode == "shared":
                see[t, row] = True
                if m == "main_misses_own_streams":
                    see[t, row] = False
                if m == "main_sees_first_stream_only":
                    see[t, row] = j == 1
                if m == "main_sees_streams_with_target_only":
                    see[t, row] = (t, j) not in targetless
                if m == "main_sees_earlier_streams" and i > 0:
                    see[t, row - g] = True
            elif m == "main_sees_own_streams":
                see[t, row] = True
    return see


@dataclass
class Output:
    entry: Tensor  # [B, T, h] M^{N-N_s}
    early_logits: Tensor  # [B, T, V] of the pruning adapter
    main_logits: Tensor  # [B, T, V]
    stream_logits: Tensor  # [B, C, gamma, V]


def forward(net: Network, tokens: Tensor, positions: Tensor, main_visible: Tensor, carriers: Sequence[int],
            targetless=frozenset(), mutation: Optional[str] = None) -> Output:
    """Main rows tokens [B, T] at positions [T], streams on rows `carriers`."""
    cfg, spec, a = net.cfg, net.spec, net.a
    T, first_msa = tokens.shape[1], cfg.num_hidden_layers - spec.msa_layers
    x = net.embed(tokens, positions)
    for layer in range(first_msa):
        x = net.layer(layer, x, T, positions, main_visible, mutation)
    entry = x

    m = entry if mutation == "prune_gradient_reaches_main" else entry.detach()
    early = net.head(m + (m @ a["pruner.A"].T) @ a["pruner.B"].T)

    carriers = list(carriers)
    s = entry[:, carriers]  # [B, C, h]
    if spec.stream_init == "lowrank":
        s = s + (s @ a["stream_init.A"].T) @ a["stream_init.B"].T
    s = s[:, :, None, :] + a["stream_embeddings"]  # Eq. 4, [B, C, gamma, h]
    offset = torch.arange(1, spec.gamma + 1)
    if mutation == "stream_position_t":
        offset = torch.zeros_like(offset)
    stream_positions = (positions[carriers][:, None] + offset).reshape(-1)
    if mutation == "stream_learned_position":
        at = net.learned(positions[carriers])[:, None]
        s = s + net.learned(stream_positions.reshape(len(carriers), -1)) - at
    rows = torch.cat([entry, s.reshape(s.shape[0], -1, cfg.hidden_size)], dim=1)
    row_positions = torch.cat([positions, stream_positions])
    visible = dense_mask(spec, main_visible, carriers, targetless, mutation)
    for layer in range(first_msa, cfg.num_hidden_layers):
        rows = net.layer(layer, rows, T, row_positions, visible, mutation)
    logits = net.head(rows)
    streams = logits[:, T:].reshape(tokens.shape[0], len(carriers), spec.gamma, cfg.vocab_size)
    return Output(entry, early, logits[:, :T], streams)


# --- The loss ---------------------------------------------------------------


@dataclass
class Plan:
    """What one sample's rows are and what they predict."""

    carriers: List[int]
    next_target: List[Optional[int]]  # token index, a carrier each
    stream_target: List[List[Optional[int]]]  # token index, [carrier][j-1]


def plan_sample(spec: Spec, sample: Sample, mutation: Optional[str] = None) -> Plan:
    plan = Plan([], [], [])
    for start, end in sample.spans:
        for t in range(start - 1, end - 1):
            targets = []
            for j in range(1, spec.gamma + 1):
                last = len(sample.tokens) - 1 if mutation == "stream_target_beyond_span" else end - 1
                targets.append(t + 1 + j if t + 1 + j <= last else None)
            plan.carriers.append(t)
            plan.next_target.append(t + 1)
            plan.stream_target.append(targets)
        if mutation == "last_prompt_position_bare":
            # Its next-token target stays: only the streams are gone.
            drop = plan.carriers.index(start - 1)
            plan.stream_target[drop] = None
    if mutation in ("prompt_carries_streams", "prompt_streams_trained"):
        spoken = {t for start, end in sample.spans for t in range(start, end)}
        for t in range(len(sample.tokens) - 1):
            if t in plan.carriers or t in spoken:
                continue
            targets = [None] * spec.gamma
            if mutation == "prompt_streams_trained":
                nxt = [(s, e) for s, e in sample.spans if s > t + 1][:1]
                targets = [t + 1 + j if nxt and nxt[0][0] <= t + 1 + j < nxt[0][1] else None
                           for j in range(1, spec.gamma + 1)]
            plan.carriers.append(t)
            plan.next_target.append(None)
            plan.stream_target.append(targets)
    order = sorted(range(len(plan.carriers)), key=lambda i: plan.carriers[i])
    return Plan(*([col[i] for i in order] for col in (plan.carriers, plan.next_target, plan.stream_target)))


@dataclass
class Loss:
    total: Tensor  # alpha_0 main + alpha_stream sum(streams) + prune
    main: Tensor  # mean over next-token targets
    streams: Tensor  # [gamma], each the mean over its own targets
    prune: Tensor  # mean over next-token targets, of the early-exit logits
    counts: List[int]  # targets: next token, stream 1 .. gamma
    main_logits: Tensor  # [P, V], the rows with a next-token target, sample after sample
    early_logits: Tensor  # [P, V]
    stream_logits: Tensor  # [P, gamma, V]
    positions: List[Tuple[int, int]]  # (sample, t) of each of the P rows
    stream_targets: List[List[int]]  # token id, -1 where none, [P][gamma]


def batch_loss(net: Network, samples: Sequence[Sample], mutation: Optional[str] = None) -> Loss:
    """Loss of a batch (Eq. 6), every inner sum divided by its count of targets in the whole batch."""
    g, gamma = net.spec, net.spec.gamma
    nll = [[] for _ in range(gamma + 2)]  # lists of (sample, -log p): next, streams 1.., early exit
    rows, targets = [], []
    mains, earlies, streams = [], [], []
    for si, sample in enumerate(samples):
        plan = plan_sample(g, sample, mutation)
        tokens = torch.tensor([sample.tokens])
        length = tokens.shape[1]
        carriers = [t for t, s in zip(plan.carriers, plan.stream_target) if s is not None]
        targetless = {(t, j) for t, s in zip(plan.carriers, plan.stream_target) if s
                      for j in range(1, gamma + 1) if s[j - 1] is None}
        causal = torch.ones(length, length, dtype=torch.bool).tril()
        out = forward(net, tokens, torch.arange(length), causal, carriers, targetless, mutation)
        log_main = torch.log_softmax(out.main_logits[0], -1)
        log_early = torch.log_softmax(out.early_logits[0], -1)
        log_stream = torch.log_softmax(out.stream_logits[0], -1)
        for t, nxt, stream_targets in zip(plan.carriers, plan.next_target, plan.stream_target):
            if nxt is not None:
                nll[0].append((si, -log_main[t, sample.tokens[nxt]]))
                nll[gamma + 1].append((si, -log_early[t, sample.tokens[nxt]]))
                rows.append((si, t))
                mains.append(out.main_logits[0, t])
                earlies.append(out.early_logits[0, t])
            if stream_targets is None:
                continue
            c = carriers.index(t)
            for j, target in enumerate(stream_targets, start=1):
                if target is not None:
                    nll[j].append((si, -log_stream[c, j - 1, sample.tokens[target]]))
            if nxt is not None:
                streams.append(out.stream_logits[0, c])
                targets.append([-1 if x is None else sample.tokens[x] for x in stream_targets])

    def mean(terms, stream):
        if mutation == "mean_per_sample":
            per = [[x for s, x in terms if s == si] for si in range(len(samples))]
            per = [sum(p) / len(p) for p in per if p]
            return sum(per) / len(per)
        n = len(nll[0]) if stream and mutation == "stream_mean_over_next_targets" else len(terms)
        return sum(x for _, x in terms) / n

    main = mean(nll[0], False)
    stream = torch.stack([mean(nll[j], True) for j in range(1, gamma + 1)])
    prune = mean(nll[gamma + 1], False)
    total = g.alpha_0 * main + g.alpha_stream * stream.sum() + prune
    return Loss(total, main, stream, prune, [len(x) for x in nll[: gamma + 1]], torch.stack(mains),
                torch.stack(earlies), torch.stack(streams), rows, targets)


def adapter_shapes(cfg: Config, spec: Spec) -> Dict[str, Tuple[int, int]]:
    """Name and shape of every trainable tensor, in a fixed order."""
    h = cfg.hidden_size
    shapes = {"stream_embeddings": (spec.gamma, h)}
    if spec.stream_init == "lowrank":
        shapes["stream_init.A"], shapes["stream_init.B"] = (spec.stream_init_rank, h), (h, spec.stream_init_rank)
    if spec.mode == "lossless":
        for l in range(cfg.num_hidden_layers - spec.msa_layers, cfg.num_hidden_layers):
            shapes["stream_adapters.%d.A" % l] = (spec.stream_rank, h)
            shapes["stream_adapters.%d.B" % l] = (h, spec.stream_rank)
    else:
        dims = projection_shapes(cfg)
        for l in range(cfg.num_hidden_layers):
            for t in spec.lora_targets:
                if t in dims:
                    shapes["lora.%d.%s.A" % (l, t)] = (spec.lora_rank, dims[t][1])
                    shapes["lora.%d.%s.B" % (l, t)] = (dims[t][0], spec.lora_rank)
    shapes["pruner.A"], shapes["pruner.B"] = (spec.prune_rank, h), (h, spec.prune_rank)
    return shapes


def base_shapes(cfg: Config) -> Dict[str, Tuple[int, ...]]:
    """Name and shape of every base tensor, as Hugging Face names them."""
    h, n, dims = cfg.hidden_size, names(cfg), projection_shapes(cfg)
    norm = lambda name: {name + m: (h,) for m in ((".weight", ".bias") if cfg.family == "opt" else (".weight",))}
    shapes = {n["decoder"] + "embed_tokens.weight": (cfg.vocab_size, h)}
    if cfg.family == "opt":
        shapes["model.decoder.embed_positions.weight"] = (cfg.learned_positions + 2, h)
    for l in range(cfg.num_hidden_layers):
        p = "%slayers.%d." % (n["decoder"], l)
        shapes.update({**norm(p + n["attn_norm"]), **norm(p + n["mlp_norm"])})
        for module in dict.fromkeys(n[t] for t in dims):
            stored = [t for t in dims if n[t] == module]
            out = sum(dims[t][0] for t in stored)
            shapes[p + module + ".weight"] = (out, dims[stored[0]][1])
            if has_bias(cfg, stored[0]):
                shapes[p + module + ".bias"] = (out,)
    shapes.update(norm(n["decoder"] + n["norm"]))
    if not cfg.tie_word_embeddings:
        shapes["lm_head.weight"] = (cfg.vocab_size, h)
    return shapes
