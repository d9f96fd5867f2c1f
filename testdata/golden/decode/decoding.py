"""Greedy Speculative Streaming decoding, naively: every forward recomputes everything.

A step runs the whole context and the draft tree through ../method/reference.py
as one dense forward, twice: once to score the full tree for pruning, once with
the kept nodes alone. No cache, so nothing to keep consistent; slow and plain.

Sources: "Speculative Streaming" section 2.2 and Appendix G.1 (tree draft),
section 2.3 (pruning), Figure 15 (tree mask).
"""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, List, Optional

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "method"))
import reference as ref  # noqa: E402


@dataclass
class Tree:
    """A draft tree, breadth first; node 0 is the root."""

    token: List[int]
    parent: List[int]  # -1 for the root
    depth: List[int]

    def ancestors(self, node: int) -> List[int]:
        """The node itself and its ancestors."""
        path = []
        while node >= 0:
            path.append(node)
            node = self.parent[node]
        return path

    def restrict(self, kept: List[int]) -> "Tree":
        """The tree of the kept nodes, in their order; a kept node's parent is kept."""
        new = {old: i for i, old in enumerate(kept)}
        return Tree([self.token[n] for n in kept],
                    [new[self.parent[n]] if self.parent[n] >= 0 else -1 for n in kept],
                    [self.depth[n] for n in kept])


@dataclass
class Margins:
    """How close the nearest decision came to a tie; float32 must not flip one."""

    logit: float = float("inf")  # between a logit chosen and the runner-up
    prune: float = float("inf")  # relative, between path probabilities or to the threshold

    def note_logits(self, ordered: torch.Tensor, choices: int):
        for i in range(choices):
            self.logit = min(self.logit, (ordered[i] - ordered[i + 1]).item())

    def note_prune(self, a: float, b: float):
        self.prune = min(self.prune, abs(a - b) / max(a, b))


@dataclass
class Step:
    """One forward after the prefill."""

    root: int  # token id
    draft: List[List[int]]  # [level][k] stream tokens the tree was built of
    kept: List[int]  # breadth-first node indices kept by pruning, the root's 0 included
    accepted: int  # draft tokens on the accepted path
    emitted: int  # tokens emitted, the correction included, after cutting at the end token or the limit


@dataclass
class Result:
    tokens: List[int]  # emitted, the prefill's and the end token included
    steps: List[Step] = field(default_factory=list)
    margins: Margins = field(default_factory=Margins)


def descending(logits: torch.Tensor):
    """Token ids by falling logit, the lower id first among equals."""
    return sorted(range(len(logits)), key=lambda i: (-logits[i].item(), i))


def top_tokens(stream_logits: torch.Tensor, k: int, margins: Margins) -> List[List[int]]:
    """The k likeliest tokens of every stream, stream_logits [gamma, V]."""
    draft = []
    for logits in stream_logits:
        order = descending(logits)
        margins.note_logits(logits[order], k)
        draft.append(order[:k])
    return draft


def grow(root: int, draft: List[List[int]]) -> Tree:
    """Every node of level j-1 has the k tokens of stream j as children."""
    tree, level = Tree([root], [-1], [0]), [0]
    for tokens in draft:
        below = []
        for node in level:
            for token in tokens:
                below.append(len(tree.token))
                tree.token.append(token)
                tree.parent.append(node)
                tree.depth.append(tree.depth[node] + 1)
        level = below
    return tree


def forward_tree(net: ref.Network, context: List[int], prompt: int, tree: Tree) -> ref.Output:
    """Context rows (causal), then the tree's nodes, every node with streams.

    Context positions prompt-1 and later carry streams as they did when they
    were decoded; in shared mode their keys and values depend on it.
    """
    n, size = len(context), len(tree.token)
    visible = torch.zeros(n + size, n + size, dtype=torch.bool)
    visible[:n, :n] = torch.ones(n, n, dtype=torch.bool).tril()
    visible[n:, :n] = True
    for node in range(size):
        for a in tree.ancestors(node):
            visible[n + node, n + a] = True
    positions = torch.tensor(list(range(n)) + [n + d for d in tree.depth])
    carriers = list(range(prompt - 1, n + size))
    return ref.forward(net, torch.tensor([context + tree.token]), positions, visible, carriers)


def prune(tree: Tree, early_logits: torch.Tensor, tree_nodes: int, threshold: float, margins: Margins) -> List[int]:
    """Indices of the nodes that stay, ascending; early_logits [nodes, V]."""
    score = torch.softmax(early_logits, -1)
    probability, alive = [1.0], [True]
    for node in range(1, len(tree.token)):
        parent = tree.parent[node]
        transition = score[parent, tree.token[node]].item()
        probability.append(probability[parent] * transition)
        alive.append(alive[parent] and transition >= threshold)
        if threshold > 0 and alive[parent]:
            margins.note_prune(transition, threshold)
    kept = {0}
    rank = lambda n: (-probability[n], tree.token[n], n)
    while len(kept) < tree_nodes:
        frontier = [n for n in range(1, len(tree.token)) if alive[n] and n not in kept and tree.parent[n] in kept]
        if not frontier:
            break
        kept.add(min(frontier, key=rank))
    left = [n for n in range(1, len(tree.token)) if alive[n] and n not in kept]
    if left and len(kept) > 1:
        margins.note_prune(min(probability[n] for n in kept), max(probability[n] for n in left))
    return sorted(kept)


def accept(tree: Tree, main_logits: torch.Tensor, margins: Margins):
    """The longest root path of the main stream's greedy choices, and the correction token."""
    node, path = 0, []
    while True:
        order = descending(main_logits[node])
        margins.note_logits(main_logits[node][order], 1)
        child = [c for c in range(len(tree.token)) if tree.parent[c] == node and tree.token[c] == order[0]]
        if not child:
            return path, node, order[0]
        node = child[0]
        path.append(tree.token[node])


def speculative(net: ref.Network, prompt: List[int], k: int, tree_nodes: int, threshold: float,
                max_new_tokens: int, end_token: Optional[int]) -> Result:
    """Decodes greedily; k = 0 drafts nothing: the streams are attached and never used."""
    result, n = Result([]), len(prompt)
    gamma = net.spec.gamma if k else 0
    causal = torch.ones(n, n, dtype=torch.bool).tril()
    out = ref.forward(net, torch.tensor([prompt]), torch.arange(n), causal, [n - 1])
    order = descending(out.main_logits[0, -1])
    result.margins.note_logits(out.main_logits[0, -1][order], 1)
    result.tokens.append(order[0])
    draft = top_tokens(out.stream_logits[0, -1][:gamma], k, result.margins)
    context = list(prompt)
    while len(result.tokens) < max_new_tokens and result.tokens[-1] != end_token:
        root = result.tokens[-1]
        full = grow(root, draft)
        scored = forward_tree(net, context, n, full)
        kept = prune(full, scored.early_logits[0, len(context):], tree_nodes, threshold, result.margins)
        tree = full.restrict(kept)
        out = forward_tree(net, context, n, tree)
        path, node, correction = accept(tree, out.main_logits[0, len(context):], result.margins)
        streams = out.stream_logits[0, -len(tree.token):][node]  # [gamma, V]
        new = (path + [correction])[: max_new_tokens - len(result.tokens)]
        if end_token in new:
            new = new[: new.index(end_token) + 1]
        result.steps.append(Step(root, draft, kept, len(path), len(new)))
        result.tokens += new
        context += [root] + path
        draft = top_tokens(streams[:gamma], k, result.margins)
    return result


def autoregressive(net: ref.Network, prompts: torch.Tensor, max_new_tokens: int) -> torch.Tensor:
    """Plain greedy continuations [B, max_new_tokens] of the base, prompts [B, P], end tokens ignored."""
    tokens = prompts
    with torch.no_grad():
        for _ in range(max_new_tokens):
            logits = ref.base_logits(net, tokens)[:, -1]
            tokens = torch.cat([tokens, logits.argmax(-1, keepdim=True)], dim=1)
    return tokens[:, prompts.shape[1]:]


def cut(tokens: List[int], end_token: Optional[int]) -> List[int]:
    """Tokens up to the end token, itself included."""
    return tokens[: tokens.index(end_token) + 1] if end_token in tokens else tokens


def pooled_beta(results: List[Result]) -> float:
    """Tokens emitted by the forwards after the prefill, a forward."""
    calls = sum(len(r.steps) for r in results)
    return sum(s.emitted for r in results for s in r.steps) / calls if calls else 0.0


def as_json(result: Result) -> Dict:
    return {"tokens": result.tokens, "target_calls": len(result.steps),
            "accepted": [s.accepted for s in result.steps], "emitted": [s.emitted for s in result.steps],
            "steps": [{"root": s.root, "draft": s.draft, "kept": s.kept} for s in result.steps]}
