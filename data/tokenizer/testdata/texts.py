"""The texts that digests.py and bench_peer.py run over: those of the shared data
and fuzzed strings. texts_test.go makes the same ones in Go, byte for byte.

A text of the shared data is a string value of a JSON document, in the order in
which they stand in the file (names of members are no texts; lone surrogates are
U+FFFD), or a line of a CSV file, cut at \\n and nothing else.
"""
import gzip
import json
import os

FOLDERS = ["dialogsum", "e2e", "eval", "sharegpt", "sharegpt/messy", "sql"]
CHUNK = 20000
FUZZ_STRINGS, FUZZ_CHUNK = 100000, 5000


def files(root):
    out = []
    for folder in FOLDERS:
        for name in os.listdir(os.path.join(root, folder)):
            base = name.removesuffix(".gz")
            if base.endswith((".json", ".jsonl", ".csv")):
                out.append(folder + "/" + name)
    return sorted(out)


def strings(value, out):
    if isinstance(value, str):
        out.append("".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in value))
    elif isinstance(value, dict):
        raise TypeError("members must be pairs")
    elif isinstance(value, tuple):  # an object
        for _, v in value:
            strings(v, out)
    elif isinstance(value, list):
        for v in value:
            strings(v, out)


def read(root, name):
    """The texts of one file."""
    with open(os.path.join(root, name), "rb") as f:
        raw = f.read()
    if name.endswith(".gz"):
        raw = gzip.decompress(raw)
    text = raw.decode("utf-8")
    base = name.removesuffix(".gz")
    if base.endswith(".csv"):
        lines = text.split("\n")
        return lines[:-1] if lines[-1] == "" else lines
    # Repeated members count each time.
    decoder = json.JSONDecoder(object_pairs_hook=tuple)
    out, i = [], 0
    while i < len(text):
        if text[i] in " \t\r\n":
            i += 1
            continue
        value, i = decoder.raw_decode(text, i)
        strings(value, out)
    return out


WORDS = (
    "the of and Hello world it's don't WE'LL I'm they've you'd 'tis def return SELECT FROM where x1 foo_bar camelCase HTTPServer "
    "naïve café Straße Привет мир καλημέρα العربية हिन्दी ไทย 한국어 日本語 こんにちは 12:30 3.14 1,000 2024-01-31 e.g. a@b.co http://x.y/z?q=1 #tag "
    "<div> {\"k\":1} ... --- === !!! ?! // /* ▁ ▁▁ Ġ <0x0A> \u2019s ſ ı İ ß ﬁ ½ Ⅷ ™ © ａｂｃ"
).split(" ")
SPECIAL = (
    "<s> </s> <unk> <pad> <mask> <|endoftext|> <|begin_of_text|> <|end_of_text|> <|eot_id|> <|start_header_id|> <|im_start|> <|im_end|> <|end|> "
    "<|user|> <|assistant|> <|system|> <|padding|> <|prompter|> [INST] [/INST] [TOOL_CALLS] <|extra_0|> <|end <|im_ [INST </s <s"
).split(" ")
EMOJI = "😀 😂 👍🏽 👨‍👩‍👧‍👦 🇫🇷 🏳️‍🌈 ❤️ 1️⃣ ☀️ 🧑🏿‍🚀 🫠 ⌚ ©️".split(" ")
SPACES = [" ", "  ", "\t", "\n", "\r", "\r\n", "\n\n", "\u00a0", "\u2003", "\u3000", "\u200b", "\u2028", "\u0085", "\u180e"]
RANGES = [(0xAC00, 0xD7A3), (0x3041, 0x30FF), (0x0600, 0x06FF), (0x0900, 0x0DFF), (0x0E00, 0x0EFF), (0x0400, 0x04FF), (0x1E00, 0x1FFF), (0x2000, 0x2BFF), (0xF900, 0xFFFD), (0x1F000, 0x1FAFF)]
MASK = (1 << 64) - 1


class SplitMix64:
    def __init__(self, seed):
        self.state = seed

    def below(self, n):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return (z ^ (z >> 31)) % n

    def pick(self, items):
        return items[self.below(len(items))]

    def char(self, lo, hi):
        c = lo + self.below(hi - lo + 1)
        return "\ufffd" if 0xD800 <= c <= 0xDFFF else chr(c)


def piece(r):
    kind = r.below(16)
    if kind < 4:
        return (" " if r.below(2) else "") + r.pick(WORDS)
    if kind == 4:
        return r.pick(WORDS) + r.pick(WORDS)
    if kind == 5:
        return "".join(r.char(0x20, 0x7E) for _ in range(1 + r.below(8)))
    if kind == 6:
        return r.pick(EMOJI)
    if kind == 7:
        return "".join(r.char(0x4E00, 0x9FFF) for _ in range(1 + r.below(6)))
    if kind == 8:
        return r.char(0x61, 0x7A) + "".join(r.char(0x300, 0x36F) for _ in range(1 + r.below(4)))
    if kind == 9:
        return "".join(r.char(0, 0x1F) if r.below(2) else r.char(0x7F, 0x9F) for _ in range(1 + r.below(3)))
    if kind == 10:
        return "".join(r.pick(SPACES) for _ in range(1 + r.below(4)))
    if kind == 11:
        return r.pick(SPECIAL)
    if kind == 12:
        return "".join(r.char(0, 0xFFFF) for _ in range(1 + r.below(3)))
    if kind == 13:
        return r.char(0, 0x10FFFF)
    if kind == 14:
        s = r.char(0x20, 0x7E) if r.below(3) else r.pick(SPACES + EMOJI)
        return s * (10 + r.below(200))
    if r.below(2):
        return "".join(r.char(0x30, 0x39) for _ in range(1 + r.below(12)))
    lo, hi = r.pick(RANGES)
    return "".join(r.char(lo, hi) for _ in range(1 + r.below(6)))


def fuzz(chunk):
    """The strings of one chunk: each chunk has a generator of its own."""
    r = SplitMix64(chunk)
    return ["".join(piece(r) for _ in range(1 + r.below(10))) for _ in range(FUZZ_CHUNK)]
