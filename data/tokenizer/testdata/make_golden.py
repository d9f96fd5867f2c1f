#!/usr/bin/env python3
"""Writes golden.json.gz: small tokenizers and what Hugging Face's library makes
of tricky strings with them. The Go tests must agree on every id and character.

Run: python3 -m venv v && v/bin/pip install -r requirements.txt && v/bin/python make_golden.py
The output is reproducible byte for byte.
"""
import gzip
import io
import json
import os
import random

import sentencepiece
import tokenizers
from make_unicode import charsmap
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN = LLAMA3.replace("{1,3}", "")

CORPUS = [
    "The quick brown fox jumps over the lazy dog, and the dog doesn't care; it's asleep.\n",
    "SELECT name, count(*) FROM employees WHERE salary > 100000 AND city = \"Paris\" GROUP BY name;\n",
    "#Person1#: I'd like to book a table for two. #Person2#: We'll have one at 19:30, they're nearly full.\n",
    "def main(args):\n    for i in range(10):\n        print(i, i ** 2)\n\n    return 0\n",
    "Der Fluss ist sch\u00f6n, gr\u00fcn und k\u00fchl. Gr\u00fc\u00dfe aus M\u00fcnchen! \u00c7a va tr\u00e8s bien, merci.\n",
    "\u4f60\u597d\uff0c\u4e16\u754c\u3002\u8fd9\u662f\u4e00\u4e2a\u6d4b\u8bd5\u3002 \u3053\u3093\u306b\u3061\u306f\u4e16\u754c\u3002 \uc548\ub155\ud558\uc138\uc694 \uc138\uacc4.\n",
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u041a\u0430\u043a \u0434\u0435\u043b\u0430? 3.14159, 2,718 and 1/2 = 0.5; 2024-11-05T12:00:00Z.\n",
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645 \u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e \U0001f600\U0001f680 \U0001f468\u200d\U0001f469\u200d\U0001f467\n",
    "the theory of the thing: then there were three others, whether they gathered together or not.\n",
    "name : The Eagle | Type : coffee shop | food : Italian | priceRange : less than \u00a320\n",
]

TRICKY = [
    "", " ", "  ", "   ", "\t", "\n", "\r\n", "\n\n", "\r", "\r\r\n", " \n", "\n ", "\n  \n   x", "  \t \n\t x  ", "a ", "a  ", " a", "  a", "   a",
    "a\n", "a \n b", "a\u00a0b", "\u00a0", "\u00a0\u00a0x", "a\u2003\u2003b", "\u3000\u3000x", "\u2028\u2029", "a\u200bb", "\ufeffx", "x\x85y", "\x0b\x0cx", "\x1c\x1d\x1e\x1f x",
    "Hello world", " Hello world", "Hello  world", "Hello, world!", "HELLO WORLD", "hello\tworld", "hello_world", "hello-world", "hello.world",
    "it's", "IT'S", "It'S we'Ll they'RE I'vE I'm i'D don'T", "'s", "''s", "'sand", "'reason", "'\u017f", "a'\u017fb '\u017ft", "'l", "'ll", "'L", "'v", "' s", "' 's", "'\u212aelvin", "\u2019s it\u2019s",
    "1", "12", "123", "1234", "12345678", " 1234", "1,234.56", "1\u00bd\u00be", "\u0661\u0662\u0663\u0664", "\u2167\u2168", "x2y3z", "\u00b2\u00b3\u00b9", "2024-11-05", "0x1F", "1e-5", "\U0001d7ce\U0001d7cf\U0001d7d0\U0001d7d1", "\u3007\u4e00",
    "!", "!!!", " !!!", "!!!\n", " !!!\r\n\r\n x", "...", "\u2026", "-->", "=> {", "};\n", "//\n", "#!/bin/sh\n", "a!b", "?!?", "(a)(b)", "\"quoted\"", "\u00abquoted\u00bb", "\u00bfqu\u00e9?", "$100 \u20ac50 \u00a320", "50%", "@user #tag", "http://example.com/a?b=c&d=e#f", "a@b.co",
    "caf\u00e9", "cafe\u0301", "e\u0301\u0301", "\u0301", " \u0301x", "\u0301\u0327a", "a\u0327\u0301", "a\u0301\u0327", "\u1e0b\u0323", "q\u0323\u0307", "\u212b \u2126 \u212a", "\u0344", "\u0958", "\u0915\u093c", "\ufb01", "\u1100\u1161\u11a8", "\uac00\u11a8", "\uac01", "\u1100\u1161", "\u11a8", "\u0b47\u0b3e", "\u0b47\u0300\u0b3e", "\U0001d15e", "\u2add\u0338", "\U00011935\U00011930", "\u0f73\u0f71", "\u0f71\u0f72\u0f74",
    "e" + "\u0301" * 40, "e" + "\u0301\u0316" * 40 + "x", "a" + "\u0315\u0300\u05ae\u0062"[:3] + "b", "Z\u0351\u036b\u0343\u036a\u0302\u036b\u033d\u034f\u0334\u0319\u0324\u031e\u0349\u035a\u032f\u031e\u0320\u034dA\u036b\u0357\u0334\u0362", "\u03d3\u0301 \u1fec \u1f71",
    "\u4f60\u597d\uff0c\u4e16\u754c", "\u4f60\u597d \u4e16\u754c", "\u3053\u3093\u306b\u3061\u306f", "\uc548\ub155\ud558\uc138\uc694", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35", "\u0928\u092e\u0938\u094d\u0924\u0947", "\u0645\u0631\u062d\u0628\u0627", "\u05e9\u05dc\u05d5\u05dd", "\u0420\u0443\u0441\u0441\u043a\u0438\u0439", "\u0395\u03bb\u03bb\u03b7\u03bd\u03b9\u03ba\u03ac", "\U00010330\U00010331", "\u1f88\u1f80 \u01c5", "\u02b0\u02b1 \u00aa\u00ba", "\ua7da \U00010d4a \U0001e5d0",
    "\U0001f600", "\U0001f600\U0001f600", " \U0001f600 ", "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466", "\U0001f1eb\U0001f1f7", "\U0001f44d\U0001f3fd", "\u2764\ufe0f", "1\ufe0f\u20e3", "\U0001f3f4\U000e0067\U000e007f", "\ufffd", "\uffff", "\ue000", "\U0010ffff", "\x00", "a\x00b", "\x7f", "\u0378",
    "<s>", "</s>", "<unk>", "<s>hello</s>", " <s> ", "a<s>b", "<s><s>", "<|endoftext|>", "x<|endoftext|>y", "<|endoftext|><|endoftext|>", " <|endoftext|>  z", "<|end", "<|endoftext|", "<|endoftext|>>", "<<|endoftext|>", "<|im_start|>user\nhi<|im_end|>\n", "<|eot_id|>", "<tool_call>\n{\"a\": 1}\n</tool_call>", "<tool_call", "<mask>", "a <mask> b", "a  <mask>  b", "\u00a0<mask>\n", "<mask><mask>", "word", "a word b", "aword", "words", "word's", "_word", "\u0301word", "word\u0301", "-word-", "1word", "\u00e9tude", "e\u0301tude", "  e\u0301tude  ", "<|end|>  \n hi", "<|end|>x",
    "<0x41>", "<0x0A>", "\u2581", "\u2581\u2581", "\u2581a", "a\u2581b", " \u2581 ", "a \u2581b", "\u2581<s>", "\u2581 a", "\u0120hello", "\u010a", "\u0120",
    "zzzzqqqqxxxx", "supercalifragilisticexpialidocious", "a" * 33, "ab" * 60, "the" * 50, "\u4f60" * 40, " " * 17 + "x", " " * 100, "\n" * 20, "\t" * 9 + "x", "=" * 65, "-" * 120 + "\n", "the " * 40,
    "def f(x):\n    return x  # comment\n\n\nclass A:\n\tpass\n", "    if x:\n        y\n", "SELECT a, b FROM t WHERE c = \"d\" AND e > 5", "#Person1#: Hi!\n#Person2#: I'd say it's 5 o'clock.", "{\"id\": 1, \"text\": \"\\u00e9\\n\"}", "| a | b |\n|---|---|\n| 1 | 2 |\n", "x=1;y=2;//z", "$$\\frac{1}{2}$$",
]

ALPHABETS = [
    " \t\n\r\u00a0\u3000ab1!",
    "'sStTrReEvVmMlLdD\u017f x",
    "abcde the 123 .,!?",
    "e\u0301\u0327\u0316\u0300a\u030ao\u0308\u1100\u1161\u11a8\uac00",
    "\u4f60\u597d\uff0c \u3002a1",
    "<s>/|endoftx_maskwr \n",
    "\U0001f600\u200d\ufe0f\U0001f468 \u2581a",
]


def random_strings(rng):
    out = []
    for alphabet in ALPHABETS:
        for _ in range(16):
            out.append("".join(rng.choice(alphabet) for _ in range(rng.randint(1, 24))))
    ranges = [(0x20, 0x7E), (0xA0, 0x24F), (0x300, 0x36F), (0x370, 0x58F), (0x900, 0xDFF), (0x1E00, 0x2BFF), (0x3000, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0x10000, 0x1FFFF), (0, 0x10FFFF)]
    for _ in range(60):
        s = ""
        for _ in range(rng.randint(1, 12)):
            lo, hi = rng.choice(ranges)
            c = rng.randint(lo, hi)
            s += " " if 0xD800 <= c < 0xE000 else chr(c)
        out.append(s)
    return out


def added(content, special=True, **kw):
    t = {"content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": special}
    t.update(kw)
    return t


def trained(pre, vocab_size, special, normalizer=None, alphabet=True, **kw):
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre
    if normalizer is not None:
        tok.normalizer = normalizer
    tok.train_from_iterator(
        CORPUS,
        trainers.BpeTrainer(
            vocab_size=vocab_size,
            special_tokens=special,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if alphabet else [],
            show_progress=False,
            **kw,
        ),
    )
    return json.loads(tok.to_str())


def set_added(d, tokens):
    """Replaces the added tokens: those of the vocabulary keep their ids, others follow it."""
    vocab = vocabulary(d)
    n, out = len(vocab), []
    for t in tokens:
        i = vocab.get(t["content"])
        if i is None:
            i, n = n, n + 1
        out.append({"id": i, **t})
    d["added_tokens"] = sorted(out, key=lambda t: t["id"])
    return d


def split(regex):
    return pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(regex), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )


def byte_level_cases():
    bl = json.loads(decoders.ByteLevel().__getstate__())

    d = trained(pre_tokenizers.ByteLevel(add_prefix_space=False), 420, ["<|endoftext|>"])
    d["decoder"] = bl
    d["truncation"] = {"direction": "Right", "max_length": 5, "strategy": "LongestFirst", "stride": 0}
    yield "gpt2", set_added(d, [added("<|endoftext|>", normalized=True)])

    d = trained(pre_tokenizers.ByteLevel(add_prefix_space=True), 400, ["<s>", "</s>", "<unk>", "<mask>"])
    d["decoder"] = bl
    d["model"]["unk_token"] = "<unk>"
    yield "roberta", set_added(
        d,
        [
            added("<s>"), added("</s>"), added("<unk>", normalized=True), added("<mask>", lstrip=True),
            added("word", special=False, single_word=True, normalized=True), added("<|end|>", rstrip=True), added("<|endoftext|>", lstrip=True, rstrip=True),
        ],
    )

    d = trained(split(LLAMA3), 480, [])
    d["decoder"] = bl
    d["model"]["ignore_merges"] = True
    vocab = d["model"]["vocab"]
    for s in ["\u0120Hello", "supercalifragilisticexpialidocious", "\u010a\u010a\u010a", "12345", "\u0120\u0120\u0120"]:
        vocab.setdefault(s, len(vocab))
    yield "llama3", set_added(d, [added("<|begin_of_text|>"), added("<|end_of_text|>"), added("<|eot_id|>"), added("<|endoftext|>")])

    d = trained(split(QWEN), 460, ["<|endoftext|>"], normalizer=normalizers.NFC())
    d["decoder"] = bl
    yield "qwen", set_added(
        d,
        [
            added("<|endoftext|>"), added("<|im_start|>"), added("<|im_end|>"), added("<tool_call>", special=False), added("</tool_call>", special=False),
            added("e\u0301tude", special=False, normalized=True), added("    ", special=False, normalized=True), added("  ", special=False), added("\t\t\t", special=False),
        ],
    )


def sentencepiece_model(vocab_size, byte_tokens, fuse_unk, byte_fallback):
    """A vocabulary laid out like Llama's: control tokens, bytes, then the rest."""
    d = trained(pre_tokenizers.Metaspace(), vocab_size, [], alphabet=False)
    old = sorted(d["model"]["vocab"], key=d["model"]["vocab"].get)
    # Characters left out on purpose, to reach the byte fallback and <unk>.
    gone = set("\u00df\u4e16\u043c\u0646\U0001f680Qz")
    merges = [m for m in d["model"]["merges"] if not gone & set(m[0] + m[1])]
    old = [s for s in old if not gone & set(s)]
    order = ["<unk>", "<s>", "</s>"] + byte_tokens + old
    # Runs of spaces, as Llama has them.
    for n in (2, 4, 8):
        order.append("\u2581" * n)
        merges.append(["\u2581" * (n // 2)] * 2)
    d["model"].update(
        vocab={s: i for i, s in enumerate(order)}, merges=merges, unk_token="<unk>", fuse_unk=fuse_unk, byte_fallback=byte_fallback
    )
    d["pre_tokenizer"] = None
    return d


def sentencepiece_cases():
    all_bytes = ["<0x%02X>" % b for b in range(256)]
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
    llama_decoder = {
        "type": "Sequence",
        "decoders": [
            {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ],
    }
    prepend = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"}, replace]}
    base = [added("<unk>"), added("<s>"), added("</s>")]

    def metaspace(scheme, split_):
        return {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": split_}

    d = sentencepiece_model(320, all_bytes, True, True)
    d.update(normalizer=prepend, decoder=llama_decoder)
    yield "phi3", set_added(d, base[:2] + [added("</s>", special=False, rstrip=True), added("<|endoftext|>"), added("<|end|>", rstrip=True)])

    d = sentencepiece_model(320, all_bytes, True, True)
    d.update(normalizer=prepend, decoder=llama_decoder)
    d["model"]["merges"] = [" ".join(m) for m in d["model"]["merges"]]  # the older form
    yield "llama2", set_added(d, [added(t["content"], normalized=True) for t in base])

    d = sentencepiece_model(300, all_bytes, True, True)
    d.update(normalizer=None, pre_tokenizer=metaspace("first", False), decoder=llama_decoder)
    yield "metaspace-first", set_added(d, base + [added("<mask>", lstrip=True)])

    d = sentencepiece_model(300, [], False, False)
    d.update(normalizer={"type": "NFC"}, pre_tokenizer=metaspace("always", True), decoder=metaspace("always", True))
    yield "metaspace-always", set_added(d, base)

    # Half of the bytes: unknown characters fall back to bytes or to <unk>.
    d = sentencepiece_model(300, all_bytes[:0xE1], True, True)
    d.update(normalizer=None, pre_tokenizer=metaspace("never", True), decoder=metaspace("never", True))
    yield "metaspace-never", set_added(d, base)

    # Merges across spaces, so that text cannot be cut at them; no decoder.
    d = sentencepiece_model(300, all_bytes, True, True)
    d.update(normalizer=replace, decoder=None)
    vocab = d["model"]["vocab"]
    for left, right in [("e", "\u2581"), ("a", "\u2581a"), ("\u2581", "\u2581b")]:
        if right in vocab and left + right not in vocab:
            vocab[left + right] = len(vocab)
            d["model"]["merges"].insert(3, [left, right])
    yield "across", set_added(d, base)


def component_cases():
    """Pre-tokenizers and normalizers beyond those of the common families."""
    p, n = pre_tokenizers, normalizers
    bl = json.loads(decoders.ByteLevel().__getstate__())
    raw = p.ByteLevel(add_prefix_space=False, use_regex=False)
    regex = p.ByteLevel(add_prefix_space=False)
    upper, lower_ = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
    fold = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    o200k = upper + "*" + lower_ + "+" + fold + "|" + upper + "+" + lower_ + "*" + fold + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    tekken = upper + "*" + lower_ + "+|" + upper + "+" + lower_ + r"*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    han = r"[\p{Han}]+|" + o200k.replace(r"\p{M}]", r"\p{M}&&[^\p{Han}]]")
    phi4 = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
    cl100k = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++\z|\s*[\r\n]|\s+(?!\S)|\s"
    deepseek = [
        r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""",
    ]

    def cut(pattern, behavior="isolated", invert=False):
        return p.Split(Regex(pattern), behavior, invert=invert)

    end = [added("<|endoftext|>")]
    for name, pre in [
        ("o200k", [cut(o200k), raw]), ("tekken", [cut(tekken), raw]), ("han", [cut(han), raw]), ("phi4", [cut(phi4, "removed", True), raw]),
        ("cl100k", [cut(cl100k), raw]), ("deepseek", [cut(x) for x in deepseek] + [raw]),
        ("falcon", [p.Punctuation("contiguous"), regex, p.Digits(individual_digits=False), cut("[0-9][0-9][0-9]")]),
        ("starcoder", [p.Digits(individual_digits=True), regex]),
        ("bloom", [cut(r" ?[^(\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+"), raw]),
        ("prefix-after-split", [cut(r"\s+", "merged_with_next"), p.ByteLevel(add_prefix_space=True)]),
        ("word-classes", [cut(r"\w+(?=[^\w\s])|\d{2,}|\W\D|\x{e9}|\u00e8?\S{1,3}"), raw]),
        ("scripts", [cut(r"\p{Cyrillic}+|\p{^L}\p{Lu}|[[a-c]x&&[^b]]+|[^\P{Greek}]{2}|\p{C}.?|[-\]\u3042-\u3096]+|a{,2}b|x{2}y{1,}"), raw]),
        ("whitespace-bytes", [p.Whitespace(), raw]),
    ]:
        d = trained(p.Sequence(pre), 360, ["<|endoftext|>"])
        d["decoder"] = bl
        yield name, set_added(d, end)

    def characters(name, pre, normalizer=None):
        d = trained(p.Sequence([p.WhitespaceSplit()]) if pre is None else pre, 330, ["<unk>"], normalizer=normalizer, alphabet=False)
        d["model"]["unk_token"] = "<unk>"
        d["model"]["fuse_unk"] = True
        return name, set_added(d, [added("<unk>"), added("<s>"), added("<mask>", lstrip=True), added("\u00c9tude", special=False, normalized=True)])

    for behavior in ["isolated", "removed", "merged_with_previous", "merged_with_next", "contiguous"]:
        yield characters("punctuation-" + behavior, p.Punctuation(behavior))
        yield characters("split-" + behavior, p.Sequence([p.Split("e", behavior), cut("[0-9]+|an", behavior)]))
        yield characters("split-inverted-" + behavior, cut("[a-z]{1,3}", behavior, True))
        yield characters("gpt2-" + behavior, cut(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+", behavior))
    yield characters("whitespace", p.Whitespace())
    yield characters("whitespace-metaspace", p.Sequence([p.WhitespaceSplit(), p.Metaspace()]))
    yield characters("whitespace-metaspace-first", p.Sequence([p.WhitespaceSplit(), p.Metaspace(prepend_scheme="first"), p.Digits(True)]))
    for name, normalizer in [
        ("nfd", n.NFD()), ("nfkc", n.NFKC()), ("nfkd", n.NFKD()), ("lowercase", n.Lowercase()), ("strip", n.Strip()), ("strip-left", n.Strip(right=False)),
        ("strip-accents", n.Sequence([n.NFD(), n.StripAccents(), n.Lowercase(), n.NFC()])), ("nmt", n.Nmt()),
        ("replace", n.Sequence([n.Replace(Regex(" {2,}|[\\r\\n]+"), " "), n.Replace("th", "TH"), n.Prepend("_")])),
        ("precompiled", n.Sequence([n.Precompiled(charsmap(RULES)), n.Replace(Regex(" {2,}"), " "), n.Strip(left=False)])),
    ]:
        yield characters(name, None, normalizer)


# Rules of a character map, among them those that tell by which rules the library
# finds clusters and keys.
RULES = {
    "\ufb01": "fi", "\u00bd": "1/2", "\uff0c": ",", "\u3000": " ", "\u00a0": " ", "\u2003": " ", "\t": " ", "\n": " ", "\x00": "", "\x7f": "",
    "e\u0301": "\u00e9", "a\u0301": "\u00e1", "A": "a", "\u00c9": "\u00e9", "\u2122": "TM", "\u00a9": "(c)", "\U0001f600": ":)", "\u1100": "g", "\uac00": "ga",
    "\u0915": "ka", "\u0928": "na", "th": "T", "\u200b": "", "\u4f60": "ni", "\u0e2a": "s", "\u2167": "VIII", "\u0301": "'", "\u00e9t": "ET",
}


def unigram_cases():
    """Unigram models, trained and made up."""
    p, n = pre_tokenizers, normalizers
    # SentencePiece's trainer gives the same pieces every time, Hugging Face's does not.
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS), model_writer=out, model_type="unigram", vocab_size=300, pad_id=0, eos_id=1, unk_id=2, bos_id=-1,
        hard_vocab_limit=False, minloglevel=2, num_threads=1,
    )
    sp = sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())
    vocab = [(sp.id_to_piece(i), sp.get_score(i)) for i in range(sp.get_piece_size())]
    tok = Tokenizer(models.Unigram(vocab, unk_id=2))
    tok.normalizer = n.Sequence([n.Precompiled(charsmap(RULES)), n.Strip(left=False), n.Replace(Regex(" {2,}"), "\u2581")])
    tok.pre_tokenizer = p.Metaspace()
    tok.decoder = decoders.Metaspace()
    d = json.loads(tok.to_str())
    yield "unigram", set_added(d, [added("<pad>"), added("</s>"), added("<unk>"), added("<extra_id_0>", lstrip=True, rstrip=True)])

    d = json.loads(json.dumps(d))
    d.update(normalizer={"type": "NFKC"}, pre_tokenizer={"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, d["pre_tokenizer"]]})
    yield "unigram-words", set_added(d, [added("<pad>", normalized=True), added("</s>"), added("<mask>", lstrip=True)])

    # Bytes, pieces that contain <unk>, ties, and characters that are no pieces.
    vocab = [["<unk>", 0.0], ["<s>", 0.0]] + [["<0x%02X>" % b, -4.0] for b in range(256)]
    vocab += [[s, -2.0 - i % 5 / 4] for i, s in enumerate(["\u2581", "a", "b", "ab", "ba", "aba", "th", "e", "the", "he", "t", "h", "\u2581the", "\u2581a", "\u2581\u2581", "x<unk>", "o", "r", "n", "in", "i", "s", "ss", "\u4f60", "\u4f60\u597d"])]
    d = json.loads(json.dumps(d))
    d.update(normalizer={"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}, pre_tokenizer=None)
    d["decoder"] = {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]}
    d["model"] = {"type": "Unigram", "unk_id": 0, "vocab": vocab, "byte_fallback": True}
    yield "unigram-bytes", set_added(d, [added("<unk>"), added("<s>")])
    d = json.loads(json.dumps(d))
    d["model"]["vocab"] = [v for v in vocab if not v[0].startswith("<0xE")]
    yield "unigram-some-bytes", set_added(d, [added("<s>")])


def vocabulary(d):
    """The model's ids by token."""
    v = d["model"]["vocab"]
    return v if isinstance(v, dict) else {p[0]: i for i, p in enumerate(v)}


def is_space(s):
    return s.strip("\t\n\x0b\x0c\r \x85\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000") == ""


def load(d):
    d = dict(d, truncation=None)
    return Tokenizer.from_str(json.dumps(d))


def golden(name, d, texts, rng, components):
    special = load(d)
    plain = dict(d, added_tokens=[t for t in d["added_tokens"] if is_space(t["content"])])
    if d["model"]["type"] == "Unigram":
        # A Unigram model spells control tokens by itself unless they are made
        # unspeakable.
        gone = {t["content"] for t in d["added_tokens"] if t["special"]}
        vocab = [["\0\U0010fffe" + p[0], p[1]] if p[0] in gone else p for p in d["model"]["vocab"]]
        plain["model"] = dict(d["model"], vocab=vocab)
    plain = load(plain)
    # The library refuses ids that leave gaps, so white-space tokens that come
    # after others are added by hand.
    shift = {plain.token_to_id(t["content"]): t["id"] for t in d["added_tokens"] if is_space(t["content"])}

    def ids(tok, s):
        return tok.encode(s, add_special_tokens=False).ids

    def plain_ids(s):
        return [shift.get(i, i) for i in ids(plain, s)]

    size = special.get_vocab_size()
    lists = [ids(special, s) for s in texts]
    for _ in range(60):
        lists.append([rng.randrange(size + 3) for _ in range(rng.randint(1, 12))])
    # Normalised special tokens are left out: see Tokenizer.Decode.
    skip = {t["id"] for t in d["added_tokens"] if t["special"]}
    with_special = [ids(special, s) for s in texts]
    # The same ids twice are written once.
    without = [p if p != w else None for p, w in zip(map(plain_ids, texts), with_special)]
    if name in components:
        lists = []
    return {
        "name": name,
        "tokenizer": d,
        "plain": without,
        "special": with_special,
        "decode": [{"ids": l, "text": special.decode([i for i in l if i not in skip])} for l in lists],
        "size": max(special.get_vocab().values()) + 1,
    }


def training():
    """What Hugging Face's trainer learns from CORPUS."""
    for name, pre, size, least, special in [
        ("gpt2", pre_tokenizers.ByteLevel(add_prefix_space=False), 600, 0, ["<|endoftext|>"]),
        ("llama3", split(LLAMA3), 500, 2, ["<s>", "</s>"]),
        ("qwen", split(QWEN), 700, 0, []),
        # "the" and "he" are tokens before any merge makes them.
        ("gpt2", pre_tokenizers.ByteLevel(add_prefix_space=False), 900, 0, ["the", "he", "ther"]),
    ]:
        d = trained(pre, size, special, min_frequency=least)
        vocab = d["model"]["vocab"]
        yield {
            "split": name, "vocab_size": size, "min_frequency": least, "special": special,
            "vocab": sorted(vocab, key=vocab.get), "merges": [" ".join(m) for m in d["model"]["merges"]],
        }


def main():
    rng = random.Random(20241105)
    texts = TRICKY + random_strings(rng)
    components = list(component_cases())
    names = {n for n, _ in components} - {"bloom", "falcon"}  # decoding is as with the others
    out = {
        "tokenizers": tokenizers.__version__,
        "texts": texts,
        "cases": [golden(n, d, texts, rng, names) for n, d in [*byte_level_cases(), *sentencepiece_cases(), *components, *unigram_cases()]],
        "corpus": CORPUS,
        "training": list(training()),
    }
    here = os.path.dirname(os.path.abspath(__file__))
    data = json.dumps(out, ensure_ascii=True, separators=(",", ":")).encode()
    with open(os.path.join(here, "golden.json.gz"), "wb") as f:
        with gzip.GzipFile(filename="", fileobj=f, mode="wb", mtime=0, compresslevel=9) as z:
            z.write(data)
    print(len(texts), "texts,", len(out["cases"]), "tokenizers,", len(data), "bytes")


if __name__ == "__main__":
    main()
