"""Writes golden.json beside this file: what Google's rouge-score says.

Run with exactly these versions:

    python3 -m venv venv && venv/bin/pip install rouge-score==0.1.2 nltk==3.10.4
    venv/bin/python make_golden.py
"""

import importlib.metadata
import json
import random
from pathlib import Path

from nltk.stem import porter
from rouge_score import rouge_scorer

for package, version in {"rouge-score": "0.1.2", "nltk": "3.10.4"}.items():
    assert importlib.metadata.version(package) == version, package

STEMS = """
caresses ponies ties caress cats dies died spied flies feed agreed plastered bled motoring sing conflated troubled
sized hopping tanned falling hissing fizzed failing filing happy enjoy enjoyment skies sky spies relational conditional
rational valenci hesitanci digitizer conformabli radicalli differentli vileli analogousli vietnamization predication
operator feudalism decisiveness hopefulness callousness formaliti sensitiviti sensibiliti triplicate formative
formalize electriciti electrical hopeful goodness revival allowance inference airliner gyroscopic adjustable
defensible irritant replacement adjustment dependent adoption homologou communism activate angulariti homologous
effective bowdlerize probate rate cease controll roll dying lying tying news innings outings cannings howe proceed
exceed succeed geology theology archaeology apologi mythologi carefully usefulli radically generally nationally
yyyy yyyyy toys playing played crying cries tried trying singing ringed owing used using aging aged being seeing
oxed axes taxes abed abing eing xing sky1 2nd 1990s 123456 a1b2c3ing ing2 ening inging eeded eedeed iedied
databases queries selected selecting selection averages counted counting averaging grouping ordered summarised
summarized summarization conversations dialogues people persons meetings probably definitely absolutely
""".split()

PARTS = ["ab", "st", "ion", "ate", "al", "li", "iz", "er", "ful", "ness", "y", "e", "ing", "ed", "s", "eed", "ies", "ou", "log",
         "i", "tr", "ent", "bli", "ative", "ic", "ll", "ss", "ement", "at", "bl", "o", "w", "x", "an", "ci", "ism", "iti"]

WORDS = """the a cat dog sat mat running runner runs ran quickly quick brown jumps jumped over lazy on log in house houses
housing to meet meeting meetings friend friends' tomorrow Friday 7pm person1 #Person2# agrees agreed agree that they
should go going café naïve 3.14 SELECT COUNT(*) FROM table_1 WHERE col=5""".split()


def text(rng):
    lines = []
    for _ in range(rng.randint(1, 4)):
        lines.append(" ".join(rng.choice(WORDS) for _ in range(rng.randint(0, 14))))
    return rng.choice(["\n", "\n", "\n\n", "\r\n"]).join(lines)


HAND = [
    ("", ""), ("", "x"), ("x", ""), ("\n", "\n"), ("...", "!!!"), ("the cat", "the cat"), ("abc", "xyz"),
    ("The quick brown fox jumps over the lazy dog", "The quick brown dog jumps on the log."),
    ("first line\nsecond line", "second line\nfirst line"), ("a a a b", "a b b b"), ("\u0130stanbul \u212aelvin", "i stanbul kelvin"),
    ("#Person1# asks #Person2# to dinner.", "Person1 invites Person2 to dinner tonight."),
    ("don't stop", "dont stop"), ("a\tb\u00a0c\u2028d", "a b c d"), ("one\n\n\ntwo", "one two"),
    ("w1 w2 w3 w4 w5", "w1 w2 w6 w7 w8\nw1 w3 w8 w9 w5"),
]


def main():
    rng = random.Random(11)
    stemmer = porter.PorterStemmer()
    words = [w for w in STEMS if len(w) > 3]
    words += ["".join(rng.choice(PARTS) for _ in range(rng.randint(1, 5))) for _ in range(3000)]
    words += ["".join(rng.choice("abeilosty") for _ in range(rng.randint(4, 9))) for _ in range(1000)]
    stems = {w: stemmer.stem(w) for w in words if len(w) > 3}

    scorer = rouge_scorer.RougeScorer(["rouge1", "rougeLsum"], use_stemmer=True)
    pairs = []
    for reference, candidate in HAND + [(text(rng), text(rng)) for _ in range(150)]:
        s = scorer.score(reference, candidate)
        pairs.append({"reference": reference, "candidate": candidate,
                      "rouge1": list(s["rouge1"]), "rouge_lsum": list(s["rougeLsum"])})
    multi = []
    for _ in range(20):
        references, candidate = [text(rng) for _ in range(3)], text(rng)
        s = scorer.score_multi(references, candidate)
        multi.append({"references": references, "candidate": candidate,
                      "rouge1": list(s["rouge1"]), "rouge_lsum": list(s["rougeLsum"])})
    out = {"stems": stems, "pairs": pairs, "multi": multi}
    path = Path(__file__).resolve().parent / "golden.json"
    path.write_text(json.dumps(out, indent=0, sort_keys=True, ensure_ascii=True) + "\n")
    print(len(stems), "stems,", len(pairs), "pairs,", len(multi), "with several references")


if __name__ == "__main__":
    main()
