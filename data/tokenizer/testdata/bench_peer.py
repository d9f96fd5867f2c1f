#!/usr/bin/env python3
"""Compares the speed of encoding with that of Hugging Face's Rust library on the
same text, one thread each.

Every measurement is a process of its own that loads the tokenizer and encodes
the whole text once, so that neither side profits from a cache filled by an
earlier pass: what repeats is what repeats in the text. The two sides take turns;
the figures are medians. Processor time is the measure, for wall time on a busy
machine tells more about its neighbours. Both sides must find as many ids.

The text is DialogSum's training set (English) and mix_train (English, Chinese and
others, code) of the shared data.

Run: v/bin/python bench_peer.py PATH_TO_SHARED_DATA [rounds]
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["GOMAXPROCS"] = "1"

import digests
import texts
import tokenizers

FILES = {"English": ["dialogsum/train.jsonl.gz"], "mixed": ["sharegpt/mix_train.json.gz"]}
TOKENIZERS = {"gpt2": "gpt2/tokenizer.json.gz", "llama2": "llama2/tokenizer.json.gz", "llama3": "llama3/tokenizer.model.gz", "qwen": "qwen/qwen.tiktoken.gz"}
BATCH = 1000


def rust(definition, file):
    """In a process of its own."""
    tok = tokenizers.Tokenizer.from_file(definition)
    with open(file) as f:
        batch = json.load(f)
    n, cpu, start = 0, time.process_time(), time.perf_counter()
    for i in range(0, len(batch), BATCH):
        for e in tok.encode_batch_fast(batch[i : i + BATCH], add_special_tokens=False):
            n += len(e)
    print("BENCH", json.dumps({"ids": n, "wall": time.perf_counter() - start, "cpu": time.process_time() - cpu}))


def measure(command, env=None):
    out = subprocess.run(command, env={**os.environ, **(env or {})}, check=True, capture_output=True, text=True).stdout
    return json.loads(next(line for line in out.splitlines() if line.startswith("BENCH ")).removeprefix("BENCH "))


def main():
    if sys.argv[1] == "--rust":
        return rust(*sys.argv[2:])
    root, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 5
    here = os.path.dirname(os.path.abspath(__file__))
    print("tokenizers", tokenizers.__version__, "| MB/s of processor time, one thread, medians of", rounds)
    print("| tokenizer | text | MB | Rust | Go | ratio | wall ratio |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as tmp:
        binary = os.path.join(tmp, "tokenizer.test")
        subprocess.run(["go", "test", "-c", "-o", binary, "."], cwd=os.path.dirname(here), check=True)
        for kind, files in FILES.items():
            batch = [s for name in files for s in texts.read(root, name)]
            size = sum(len(s.encode()) for s in batch) / 1e6
            file = os.path.join(tmp, kind + ".json")
            with open(file, "w") as f:
                json.dump(batch, f)
            for name, path in TOKENIZERS.items():
                definition = os.path.join(tmp, name + ".json")
                if not os.path.exists(definition):
                    digests.make(name, root).special.save(definition)
                go, peer = [], []
                for _ in range(rounds):
                    peer.append(measure([sys.executable, os.path.abspath(__file__), "--rust", definition, file]))
                    go.append(measure([binary, "-test.run", "^TestBenchPeer$"], {"BENCH_TEXTS": file, "BENCH_TOKENIZER": os.path.join(root, "tokenizers", path)}))
                assert {m["ids"] for m in go} == {m["ids"] for m in peer}, (name, go[0], peer[0])
                a, b = (size / statistics.median(m["cpu"] for m in side) for side in (peer, go))
                wall = statistics.median(m["wall"] for m in peer) / statistics.median(m["wall"] for m in go)
                print("| %s | %s | %.1f | %.1f | %.1f | %.1f | %.1f |" % (name, kind, size, a, b, b / a, wall), flush=True)


if __name__ == "__main__":
    main()
