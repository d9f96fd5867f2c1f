#!/usr/bin/env python3
"""Writes ../unicode.txt, the pinned Unicode tables of package tokenizer.

The tables are read off the Hugging Face library itself, so that both agree on
every code point whatever Unicode version either language ships:

  gc XX                  general categories as its regular expressions have them
                         (Oniguruma, Unicode 16.0), \\p{Lu} and so on
  space, onigword        \\s and \\w of these
  script XX              \\p{Han} and other scripts of these
  word                   \\w of the Rust regex crate (Unicode 16.0), which decides
                         `single_word` added tokens and the Whitespace pre-tokenizer
  punct, numeric         what the Punctuation and Digits pre-tokenizers split at
  mark                   what the StripAccents normalizer removes
  lower                  the Lowercase normalizer
  ccc, decomp, compat    canonical combining classes and decompositions of the
                         NFC, NFD, NFKC and NFKD normalizers (Unicode 9.0). Python's
                         unicodedata proposes the values, which never change once
                         assigned; the library decides which code points have them.
  gcb, incb              grapheme cluster classes, which the Precompiled normalizer
                         needs (Unicode 17.0). Python's regex module and
                         unicodedata2 propose them; the library decides what extends
                         a cluster.

Run: python3 -m venv v && v/bin/pip install -r requirements.txt && v/bin/python make_unicode.py
"""
import os
import struct
import unicodedata

import regex
import tokenizers
import unicodedata2
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


CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co".split()
SCRIPTS = "Arabic Armenian Bengali Cyrillic Devanagari Georgian Greek Han Hangul Hebrew Hiragana Katakana Latin Tamil Thai".split()


def split_class(pre, mark):
    """Code points at which a pre-tokenizer cuts between two marks."""
    found = set()
    for chunk in chunks():
        text = "".join(mark + chr(c) for c in chunk) + mark
        for piece, (start, end) in pre.pre_tokenize_str(text):
            if end - start == 1 and start % 2 == 1:
                found.add(ord(text[start]))
    return found


def removed(normalizer):
    """Code points that a normalizer removes."""
    return {c for c in ALL if normalizer.normalize_str("a" + chr(c) + "b") == "ab"}


def mapped(normalizer, unless):
    """What a normalizer makes of code points, where that differs from unless."""
    out = []
    for c in ALL:
        to = normalizer.normalize_str(chr(c))
        if to != unless(chr(c)):
            out.append("%X=%s" % (c, "+".join("%X" % ord(x) for x in to)))
    return out


def charsmap(rules):
    """A precompiled_charsmap: a double array of the keys, each node with a block
    of 256 units of its own, and the replacements."""
    units, blocks, blob = {}, [0], b""

    def block(items):
        blocks[0] += 1
        at, next_byte = blocks[0] * 256, {}
        for key, value in items:
            if key:
                next_byte.setdefault(key[0], []).append((key[1:], value))
            else:
                units[at] = value | 1 << 31
        for b, rest in next_byte.items():
            leaf = any(not key for key, _ in rest)
            units[at ^ b] = (block(rest) ^ at ^ b) << 10 | leaf << 8 | b
        return at

    items = []
    for key, value in rules.items():
        items.append((key.encode(), len(blob)))
        blob += value.encode() + b"\0"
    units[0] = block(items) << 10
    trie = struct.pack("<%dI" % (256 * (blocks[0] + 1)), *(units.get(i, 0) for i in range(256 * (blocks[0] + 1))))
    return struct.pack("<I", len(trie)) + trie + blob


def graphemes():
    """Grapheme cluster classes by name; the two of Hangul syllables follow from
    the code points."""
    joins = normalizers.Precompiled(charsmap({"a": "A"}))
    # A cluster of fewer than six bytes becomes what its first character maps to.
    extends = {c for c in ALL if c != 0x0A and joins.normalize_str("a" + chr(c) + "\n") == "A\n"}

    def having(prop):
        r = regex.compile(r"\p{%s}" % prop)
        return {c for c in ALL if r.match(chr(c))}

    assigned = {c for c in ALL if unicodedata2.category(chr(c)) != "Cn"}
    out = {}
    for name in ("Prepend", "Control", "L", "V", "T", "RI"):
        out["gcb " + name] = having("GCB=" + name)
    out["gcb Control"] -= {0x0A, 0x0D}
    out["gcb Prepend"] &= assigned
    for name in ("Extend", "SpacingMark"):
        out["gcb " + name] = having("GCB=" + name) & extends
    assert extends == out["gcb Extend"] | out["gcb SpacingMark"] | {0x200D}, "unknown extending characters"
    out["gcb Pictographic"] = having("Extended_Pictographic")
    for name in ("Linker", "Consonant", "Extend"):
        out["incb " + name] = having("InCB=" + name) & assigned
    out["incb Extend"] &= extends
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
        f.write("# gc, script, space, word: Unicode 16.0. ccc, decomp, compat: 9.0. gcb, incb: 17.0.\n")
        for name in CATEGORIES:
            write(f, "gc " + name, ranges(char_class(r"\p{%s}" % name, "\x01" if name != "Cc" else "a")))
        for name in SCRIPTS:
            write(f, "script " + name, ranges(char_class(r"\p{%s}" % name, "\x01")))
        write(f, "space", ranges(char_class(r"\s", "\x01")))
        write(f, "onigword", ranges(char_class(r"\w", "\x01")))
        write(f, "punct", ranges(split_class(pre_tokenizers.Punctuation(), "\x01")))
        write(f, "numeric", ranges(split_class(pre_tokenizers.Digits(individual_digits=True), "\x01")))
        write(f, "mark", ranges(removed(normalizers.StripAccents())))
        lower = normalizers.Lowercase()
        write(f, "lower", mapped(lower, lambda s: s))
        write(f, "word", ranges(word_class()))
        by_class = {}
        for c, ccc in combining_classes().items():
            by_class.setdefault(ccc, set()).add(c)
        for ccc in sorted(by_class):
            write(f, "ccc %d" % ccc, ranges(by_class[ccc]))
        write(f, "decomp", decompositions())
        write(f, "compat", mapped(normalizers.NFKD(), normalizers.NFD().normalize_str))
        for name, found in graphemes().items():
            write(f, name, ranges(found))


if __name__ == "__main__":
    main()
