#!/usr/bin/env python3
"""Writes digests.json: what the oracles make of every text of the shared data
and of 100,000 fuzzed strings (texts.py), for every shared tokenizer. Only
digests and counts are kept, one set a chunk, so that a difference can be found.

For each chunk three digests (the first 16 digits of a SHA-256):
  plain    for each text the number of its ids and the ids, all as 32-bit
           little-endian: the text without special tokens
  special  the same with special tokens recognised
  decode   for each text the number of bytes (32 bits) and the UTF-8 of the text
           that the ids of special give, special tokens left out

Oracles: Hugging Face's tokenizers for tokenizer.json, ranks, and vocabulary with
merges; SentencePiece for its models. The tokenizers for ranks are made as
transformers converts them, those for vocabularies as its GPT-2 converter does.
tiktoken must agree with Hugging Face on ranks; the script fails if it does not.
The patterns of OpenAI's encodings are held to tiktoken, with Llama-3's ranks.

Run: python3 -m venv v && v/bin/pip install -r requirements.txt && v/bin/python digests.py PATH_TO_SHARED_DATA [NAME...]
(with names only those are made anew; the name patterns: none of them)
"""
import base64
import gzip
import hashlib
import json
import os
import re
import struct
import sys
from multiprocessing import Pool

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import sentencepiece
import texts
import tiktoken
import tokenizers
from tiktoken_ext import openai_public
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN = LLAMA3.replace("{1,3}", "")


def read(path):
    with open(path, "rb") as f:
        b = f.read()
    return gzip.decompress(b) if path.endswith(".gz") else b


class HuggingFace:
    """A tokenizer with its special tokens, and one without."""

    def __init__(self, definition):
        definition = dict(definition, truncation=None, padding=None)
        self.special = Tokenizer.from_str(json.dumps(definition))
        self.plain = Tokenizer.from_str(json.dumps(dict(definition, added_tokens=[])))
        # The library lets special tokens that are declared normalized through.
        self.skip = {t["id"] for t in definition["added_tokens"] if t["special"]}
        self.at = re.compile("|".join(re.escape(t["content"]) for t in definition["added_tokens"]))

    def encode(self, batch):
        special = [e.ids for e in self.special.encode_batch_fast(batch, add_special_tokens=False)]
        # Text without any of the added tokens is the same to both.
        plain = [self.plain.encode(s, add_special_tokens=False).ids if self.at.search(s) else ids for s, ids in zip(batch, special)]
        text = self.special.decode_batch([[i for i in ids if i not in self.skip] for ids in special])
        return plain, special, text


class SentencePiece:
    def __init__(self, path):
        self.sp = sp = sentencepiece.SentencePieceProcessor(model_file=path)
        self.control = {sp.id_to_piece(i): i for i in range(sp.get_piece_size()) if sp.is_control(i)}
        self.at = re.compile("|".join(re.escape(s) for s in sorted(self.control, key=len, reverse=True)))

    def stretches(self, text):
        """Control pieces are taken out of the text, the rest is encoded alone."""
        ids, done = [], 0
        for found in self.at.finditer(text):
            ids += self.sp.encode(text[done : found.start()])
            ids.append(self.control[found.group()])
            done = found.end()
        return ids + self.sp.encode(text[done:])

    def encode(self, batch):
        plain = self.sp.encode(batch)
        special = [self.stretches(s) if self.at.search(s) else ids for s, ids in zip(batch, plain)]
        return plain, special, [self.sp.decode(ids) for ids in special]


def tokenizer_json(path):
    d = json.loads(read(path))
    # Older files write merges as "a b"; where tokens have spaces of their own the
    # library cannot cut them, though the vocabulary leaves one way only.
    vocab, merges = d["model"]["vocab"], d["model"]["merges"]
    for i, m in enumerate(merges):
        if isinstance(m, str):
            ways = [(m[:k], m[k + 1 :]) for k, c in enumerate(m) if c == " "]
            ways = [(a, b) for a, b in ways if a in vocab and b in vocab and a + b in vocab] if len(ways) > 1 else ways
            assert len(ways) == 1, m
            merges[i] = list(ways[0])
    return HuggingFace(d)


def byte_level(vocab, merges, special, split=None, normalizer=None, ignore_merges=False):
    tok = Tokenizer(models.BPE(vocab, merges, ignore_merges=ignore_merges))
    if split is None:
        tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        tok.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Split(Regex(split), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        )
    if normalizer is not None:
        tok.normalizer = normalizer
    tok.decoder = decoders.ByteLevel()
    tok.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in special])
    return HuggingFace(json.loads(tok.to_str()))


def alphabet():
    """GPT-2's character for each byte."""
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in keep]
    return {b: chr(b) for b in keep} | {b: chr(256 + i) for i, b in enumerate(rest)}


def load_ranks(path):
    return {base64.b64decode(a): int(b) for a, b in (line.split() for line in read(path).splitlines() if line)}


def ranks(path, special, split, normalizer=None):
    """As TikTokenConverter of transformers does it."""
    table, letters = load_ranks(path), alphabet()
    spell = lambda token: "".join(letters[b] for b in token)
    merges = []
    for token, rank in table.items():
        ways = [(token[:i], token[i:]) for i in range(1, len(token)) if token[:i] in table and token[i:] in table]
        ways.sort(key=lambda w: (table[w[0]], table[w[1]]))
        merges += [(rank, k, w) for k, w in enumerate(ways)]
    merges = [(spell(a), spell(b)) for _, _, (a, b) in sorted(merges)]
    return byte_level({spell(t): r for t, r in table.items()}, merges, special, split, normalizer, ignore_merges=True)


def vocab_merges(vocab, merges, special, **kw):
    lines = read(merges).decode().split("\n")
    pairs = [tuple(line.split(" ")) for line in lines if line and not line.startswith("#version")]
    return byte_level(json.loads(read(vocab)), pairs, special, **kw)


LLAMA3_SPECIAL = [
    "<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>", "<|reserved_special_token_1|>", "<|finetune_right_pad_id|>", "<|step_id|>",
    "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>", "<|python_tag|>", "<|image|>",
] + ["<|reserved_special_token_%d|>" % i for i in range(2, 246)]
QWEN_SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"] + ["<|extra_%d|>" % i for i in range(205)]


def make(name, root):
    t = os.path.join(root, "tokenizers") + "/"
    return {
        "gpt2": lambda: tokenizer_json(t + "gpt2/tokenizer.json.gz"),
        "gpt2-vocab": lambda: vocab_merges(t + "gpt2/vocab.json.gz", t + "gpt2/merges.txt.gz", ["<|endoftext|>"]),
        "opt": lambda: vocab_merges(t + "opt/gpt2-vocab.json.gz", t + "opt/gpt2-merges.txt.gz", ["<pad>", "</s>"]),
        "llama2": lambda: tokenizer_json(t + "llama2/tokenizer.json.gz"),
        "llama2-model": lambda: SentencePiece(t + "llama2/tokenizer.model"),
        "phi3": lambda: tokenizer_json(t + "phi3/tokenizer.json.gz"),
        "llama3": lambda: ranks(t + "llama3/tokenizer.model.gz", LLAMA3_SPECIAL, LLAMA3),
        "llama3-vocab": lambda: vocab_merges(t + "llama3/encoder.json.gz", t + "llama3/vocab.bpe.gz", LLAMA3_SPECIAL, split=LLAMA3, ignore_merges=True),
        "mistral-v1": lambda: SentencePiece(t + "mistral/tokenizer.model.v1"),
        "mistral-v3": lambda: SentencePiece(t + "mistral/tokenizer.model.v3"),
        "qwen": lambda: ranks(t + "qwen/qwen.tiktoken.gz", QWEN_SPECIAL, QWEN, normalizers.NFC()),
        "oasst": lambda: tokenizer_json(t + "small/oasst_tokenizer.json"),
    }[name]()


NAMES = ["llama3", "qwen", "gpt2", "gpt2-vocab", "opt", "llama2", "llama2-model", "phi3", "llama3-vocab", "mistral-v1", "mistral-v3", "oasst"]
TIKTOKEN = {"llama3": ("llama3/tokenizer.model.gz", LLAMA3, None), "qwen": ("qwen/qwen.tiktoken.gz", QWEN, normalizers.NFC())}


def digest(lists):
    h = hashlib.sha256()
    for ids in lists:
        h.update(struct.pack("<%dI" % (len(ids) + 1), len(ids), *ids))
    return h.hexdigest()[:16]


def digest_text(lists):
    h = hashlib.sha256()
    for s in lists:
        b = s.encode()
        h.update(struct.pack("<I", len(b)) + b)
    return h.hexdigest()[:16]


def chunks(root):
    """Every chunk's name and texts. A text that stands in several places is taken
    where it comes first."""
    seen = set()
    for name in texts.files(root):
        t = [s for s in texts.read(root, name) if s not in seen and not seen.add(s)]
        for i in range(0, len(t), texts.CHUNK):
            yield "%s#%d" % (name, i // texts.CHUNK), t[i : i + texts.CHUNK]
    for i in range(texts.FUZZ_STRINGS // texts.FUZZ_CHUNK):
        yield "fuzz#%d" % i, texts.fuzz(i)


def check_tiktoken(root, name, batch, plain):
    path, pattern, normalizer = TIKTOKEN[name]
    if name not in check_tiktoken.made:
        check_tiktoken.made[name] = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=load_ranks(os.path.join(root, "tokenizers", path)), special_tokens={})
    enc = check_tiktoken.made[name]
    for s, ids in zip(batch, plain):
        if normalizer is not None:
            s = normalizer.normalize_str(s)
        if enc.encode_ordinary(s) != ids:
            raise AssertionError("%s: tiktoken differs on %r" % (name, s))


check_tiktoken.made = {}


def run(job):
    root, name = job
    tok, out, count = make(name, root), {}, [0, 0, 0]
    for chunk, batch in chunks(root):
        plain, special, text = tok.encode(batch)
        if name in TIKTOKEN:
            check_tiktoken(root, name, batch, plain)
        out[chunk] = [digest(plain), digest(special), digest_text(text)]
        count[0] += len(batch)
        count[1] += sum(map(len, plain))
        count[2] += sum(map(len, special))
    print(name, *count, flush=True)
    return name, {"texts": count[0], "plain_ids": count[1], "special_ids": count[2], "chunks": out}


def main():
    root, names = sys.argv[1], sys.argv[2:] or NAMES
    with Pool(2, maxtasksperchild=1) as pool:
        done = dict(pool.imap_unordered(run, [(root, n) for n in names if n in NAMES], chunksize=1))
    here = os.path.dirname(os.path.abspath(__file__))
    path = os.path.join(here, "digests.json")
    if names != NAMES:  # the others stay
        with open(path) as f:
            done = {**json.load(f)["oracles"], **done}
    first = chunk_digests(root)
    patterns = openai(root)
    out = {
        "tokenizers": tokenizers.__version__, "sentencepiece": sentencepiece.__version__, "tiktoken": tiktoken.__version__,
        "texts": first, "patterns": patterns, "oracles": {n: done[n] for n in NAMES},
    }
    with open(path, "w") as f:
        # A line for each chunk.
        s = json.dumps(out, indent=1)
        f.write(re.sub(r"\[\s+(\"[0-9a-f]{16}\"),\s+(\"[0-9a-f]{16}\"),\s+(\"[0-9a-f]{16}\")\s+\]", r"[\1, \2, \3]", s) + "\n")


def openai(root):
    """What tiktoken makes of fuzzed strings with the patterns of OpenAI's
    encodings and, for want of theirs, Llama-3's ranks."""
    openai_public.load_tiktoken_bpe = lambda *_, **__: {}
    table, out = load_ranks(os.path.join(root, "tokenizers/llama3/tokenizer.model.gz")), {}
    for name in ["r50k_base", "p50k_base", "cl100k_base", "o200k_base"]:
        pattern = getattr(openai_public, name)()["pat_str"]
        enc = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=table, special_tokens={})
        out[name.removesuffix("_base")] = {"fuzz#%d" % i: digest(map(enc.encode_ordinary, texts.fuzz(i))) for i in range(4)}
    return out


def chunk_digests(root):
    """Digests of the texts themselves: where these differ, so does all else."""
    return {chunk: digest_text(batch) for chunk, batch in chunks(root)}


if __name__ == "__main__":
    main()
