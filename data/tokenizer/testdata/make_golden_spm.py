#!/usr/bin/env python3
"""Writes golden_spm.json.gz: small SentencePiece models and what SentencePiece
makes of tricky strings with them. The Go tests must agree on every id and
character.

  special  control pieces are taken out of the text first, and SentencePiece
           encodes each stretch between them
  plain    SentencePiece with the user-defined pieces made control pieces, which
           it never finds in text, but for those of one character or white space

Run: python3 -m venv v && v/bin/pip install -r requirements.txt && v/bin/python make_golden_spm.py
"""
import base64
import gzip
import io
import json
import os
import random
import re

import sentencepiece as spm
from make_golden import CORPUS, TRICKY, random_strings
from sentencepiece import sentencepiece_model_pb2 as pb

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


def train(**kw):
    out = io.BytesIO()
    options = dict(
        sentence_iterator=iter(CORPUS), model_writer=out, vocab_size=260, hard_vocab_limit=False, normalization_rule_name="identity",
        control_symbols=["<|end|>", "<mask>"], minloglevel=2, num_threads=1,
    )
    options.update(kw)
    if options["model_type"] == "bpe":
        del options["hard_vocab_limit"]
    spm.SentencePieceTrainer.train(**options)
    m = pb.ModelProto()
    m.ParseFromString(out.getvalue())
    return m


def cases():
    users = ["<user>", "\u2581\u2581", "the", "7", "\n", "e\u0301"]
    llama = dict(model_type="bpe", byte_fallback=True, remove_extra_whitespaces=False, vocab_size=500)
    yield "bpe-bytes", train(**llama)
    yield "bpe-user", train(**llama, user_defined_symbols=users)
    yield "bpe-no-prefix", train(**llama, add_dummy_prefix=False, split_digits=True, allow_whitespace_only_pieces=True)
    yield "bpe-unknown", train(model_type="bpe", character_coverage=0.98, user_defined_symbols=users)
    yield "bpe-nfkc", train(model_type="bpe", normalization_rule_name="nmt_nfkc", user_defined_symbols=["\uff0c", "\u00bd"])
    yield "bpe-suffix", train(model_type="bpe", treat_whitespace_as_suffix=True)
    yield "bpe-across", train(model_type="bpe", split_by_whitespace=False, vocab_size=400)
    m = train(model_type="bpe", vocab_size=400)
    long = [p for p in m.pieces if p.type == NORMAL and len(p.piece) > 1]
    for p in long[::3]:
        p.type = UNUSED
    yield "bpe-unused", m
    m = train(model_type="bpe", vocab_size=300)
    for p in m.pieces:
        if p.type == NORMAL and len(p.piece) > 1:
            p.score = -(round(-p.score) // 8)  # ties
    yield "bpe-ties", m
    m = train(**llama)
    keep = [p for p in m.pieces if p.piece not in "\u2581aet"]  # parts of pieces that are none themselves
    del m.pieces[:]
    m.pieces.extend(keep)
    yield "bpe-parts", m

    yield "unigram", train(model_type="unigram")
    yield "unigram-bytes", train(model_type="unigram", byte_fallback=True, vocab_size=450, remove_extra_whitespaces=False)
    yield "unigram-user", train(model_type="unigram", user_defined_symbols=users, character_coverage=0.985)
    yield "unigram-across", train(model_type="unigram", split_by_whitespace=False, add_dummy_prefix=False)
    m = train(model_type="unigram", vocab_size=300)
    for p in [p for p in m.pieces if p.type == NORMAL and len(p.piece) > 1][::3]:
        p.type = UNUSED
    for p in m.pieces:
        if p.type == NORMAL:
            p.score = round(p.score)  # ties
    m.trainer_spec.unk_surface = "[?]"
    yield "unigram-unused", m
    m = train(model_type="unigram")
    m.normalizer_spec.escape_whitespaces = False
    for p in m.pieces:
        if p.piece != "\u2581" and p.piece.startswith("\u2581") and p.type == NORMAL:
            p.piece = " " + p.piece[1:]
    yield "unigram-unescaped", m
    m = train(model_type="unigram", normalization_rule_tsv=os.path.join(os.path.dirname(os.path.abspath(__file__)), "rules.tsv"))
    yield "unigram-rules", m


def plain_model(m):
    out = pb.ModelProto()
    out.CopyFrom(m)
    for p in out.pieces:
        if p.type == USER and len(p.piece) > 1 and p.piece.replace("\u2581", " ").strip() != "":
            p.type = CONTROL
    return out


def special_ids(sp, m, text):
    control = {p.piece: i for i, p in enumerate(m.pieces) if p.type == CONTROL}
    at = re.compile("|".join(re.escape(s) for s in sorted(control, key=len, reverse=True)))
    ids, done = [], 0
    for found in at.finditer(text):
        ids += sp.encode(text[done : found.start()]) + [control[found.group()]]
        done = found.end()
    return ids + sp.encode(text[done:])


def main():
    rng = random.Random(20250301)
    texts = TRICKY + random_strings(rng) + ["<user>", "a<user>b", "the<user>the 77", "\uff0c\u00bd\ufb01", "x \u2581 y", "  \u3000 z ", "bab aba", "a\u2047b"]
    out = {"texts": texts, "cases": []}
    for name, m in cases():
        m.trainer_spec.ClearField("input")
        m.trainer_spec.model_prefix = ""
        data = m.SerializeToString(deterministic=True)
        sp = spm.SentencePieceProcessor(model_proto=data)
        plain = spm.SentencePieceProcessor(model_proto=plain_model(m).SerializeToString())
        special = [special_ids(sp, m, s) for s in texts]
        without = [p if p != s else None for p, s in zip(map(plain.encode, texts), special)]
        lists = special[::3] + [[rng.randrange(len(m.pieces)) for _ in range(rng.randint(1, 12))] for _ in range(150)]
        lists += [[i for b in rng.choices([0xE4, 0xBD, 0xA0, 0x41, 0xF0, 0x9F, 0x98, 0x80, 0xC3], k=6) for i in [sp.piece_to_id("<0x%02X>" % b)]] for _ in range(40)]
        out["cases"].append(
            {
                "name": name, "model": base64.b64encode(data).decode(), "special": special, "plain": without,
                "decode": [{"ids": l, "text": sp.decode(l)} for l in lists],
                "bos": sp.bos_id(), "eos": sp.eos_id(),
            }
        )
    here = os.path.dirname(os.path.abspath(__file__))
    raw = json.dumps(out, ensure_ascii=True, separators=(",", ":")).encode()
    with open(os.path.join(here, "golden_spm.json.gz"), "wb") as f:
        with gzip.GzipFile(filename="", fileobj=f, mode="wb", mtime=0, compresslevel=9) as z:
            z.write(raw)
    print(len(texts), "texts,", len(out["cases"]), "models,", len(raw), "bytes")


if __name__ == "__main__":
    main()
