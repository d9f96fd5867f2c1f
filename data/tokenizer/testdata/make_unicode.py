#!/usr/bin/env python3
"""Writes ../unicode.txt, the pinned Unicode tables of package tokenizer.

The tables are read off the Hugging Face library itself, so that both agree on
every code point whatever Unicode version either language ships:

  letter, number, space  \\p{L}, \\p{N} and \\s of its regular expressions
                         (Oniguruma, Unicode 16.0)
  word                   \\w of the Rust regex crate, which decides `single_word`
                         added tokens (Unicode 16.0)
  ccc, decomp            canonical combining classes and decompositions of its NFC
                         normalizer (Unicode 9.0). Python's unicodedata proposes
                         the values, which never change once assigned; the library
                         decides which code points have them.

Run: python3 -m venv v && v/bin/pip install -r requirements.txt && v/bin/python make_unicode.py
"""
import os
import unicodedata

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

ALL = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
CHUNK = 20000


def chunks():
    for i in range(0, len(ALL), CHUNK):
        yield ALL[i : i + CHUNK]


def char_class(pattern, mark):
    """Code points that a regular expression matches; mark is one that it does not."""
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    found = set()
    for chunk in chunks():
        text = "".join(chr(c) + mark for c in chunk)
        for _, (start, end) in split.pre_tokenize_str(text):
            if end - start == 1 and start % 2 == 0:
                found.add(ord(text[start]))
    found.discard(ord(mark))
    return found


def word_class():
    """Code points next to which a single_word added token is not recognised."""
    mark = "\ue000"
    tok = Tokenizer(models.BPE(vocab={"a": 0}, merges=[]))
    tok.add_tokens([AddedToken(mark, single_word=True, normalized=False)])
    mark_id = tok.token_to_id(mark)
    found = set()
    for chunk in chunks():
        chunk = [c for c in chunk if c != ord(mark)]
        enc = tok.encode("".join(chr(c) + mark + "\x01" for c in chunk))
        hits = {off[0] for off, i in zip(enc.offsets, enc.ids) if i == mark_id}
        found.update(c for j, c in enumerate(chunk) if 3 * j + 1 not in hits)
    return found


def combining_classes():
    nfd = normalizers.NFD()
    out = {}
    for c in ALL:
        ccc = unicodedata.combining(chr(c))
        if ccc == 0:
            continue
        # A mark of class 1 moves before c exactly if the library gives c a class
        # above 1; for class 1 itself a mark of class 230 must not move before c.
        if ccc > 1:
            known = nfd.normalize_str("a" + chr(c) + "\u0334").startswith("a\u0334")
        else:
            known = nfd.normalize_str("a\u0300" + chr(c)).startswith("a" + chr(c))
        if known:
            out[c] = ccc
    return out


def decompositions():
    nfd, nfc = normalizers.NFD(), normalizers.NFC()
    out = []
    for c in ALL:
        d = unicodedata.decomposition(chr(c))
        if not d or d.startswith("<"):
            continue
        if nfd.normalize_str(chr(c)) == chr(c):
            continue  # newer than the library's tables
        parts = d.split()
        composes = len(parts) == 2 and nfc.normalize_str(chr(c)) == chr(c)
        out.append("%X%s%s" % (c, "=" if composes else "!", "+".join("%X" % int(p, 16) for p in parts)))
    return out


def ranges(code_points):
    out, run = [], None
    for c in sorted(code_points):
        if run and c == run[1] + 1:
            run[1] = c
        else:
            run = [c, c]
            out.append(run)
    return ["%X" % a if a == b else "%X-%X" % (a, b) for a, b in out]


def write(f, name, items):
    line = name
    for item in items:
        if len(line) + 1 + len(item) > 160:
            f.write(line + "\n")
            line = name
        line += " " + item
    f.write(line + "\n")


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "..", "unicode.txt"), "w", encoding="ascii") as f:
        f.write("# Written by testdata/make_unicode.py from tokenizers %s. Do not edit.\n" % tokenizers.__version__)
        f.write("# letter, number, space, word: Unicode 16.0. ccc, decomp: Unicode 9.0.\n")
        write(f, "letter", ranges(char_class(r"\p{L}", "\x01")))
        write(f, "number", ranges(char_class(r"\p{N}", "\x01")))
        write(f, "space", ranges(char_class(r"\s", "\x01")))
        write(f, "word", ranges(word_class()))
        by_class = {}
        for c, ccc in combining_classes().items():
            by_class.setdefault(ccc, set()).add(c)
        for ccc in sorted(by_class):
            write(f, "ccc %d" % ccc, ranges(by_class[ccc]))
        write(f, "decomp", decompositions())


if __name__ == "__main__":
    main()
