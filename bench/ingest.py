#!/usr/bin/env python3
"""Whole ingestion, JSON to token shards, beside datasets + tokenizers.

Builds one JSON array of ShareGPT conversations from the shared data sets
(SPECSTREAM_DATA), repeated to --megabytes with new ids, and ingests it several
times with the specstream binary and with the same steps written for Hugging
Face's libraries: turns checked as FastChat does, rendered as Vicuna 1.1,
tokenised with offsets, a loss mask from the offsets, over-long samples dropped,
Parquet written. Both run with as many processes or threads as the machine has
cores. The peer's time begins behind its imports; ours is the whole process.
"""

import argparse
import glob
import gzip
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

SYSTEM = (
    "A chat between a curious user and an artificial intelligence assistant. "
    "The assistant gives helpful, detailed, and polite answers to the user's questions."
)
MAX_LENGTH = 2048


def build_input(data, path, megabytes):
    """Writes the array; returns its size in bytes and number of records."""
    records = []
    for name in sorted(glob.glob(os.path.join(data, "sharegpt", "*.json*"))):
        opener = gzip.open if name.endswith(".gz") else open
        with opener(name, "rb") as f:
            records += [{"id": r.get("id"), "conversations": r["conversations"]} for r in json.load(f)]
    n = 0
    with open(path, "w", encoding="utf-8") as f:
        f.write("[")
        while f.tell() < megabytes << 20:
            for r in records:
                f.write(",\n" if n else "\n")
                json.dump({"id": f"{n}", "conversations": r["conversations"]}, f, ensure_ascii=False)
                n += 1
        f.write("\n]\n")
    return os.path.getsize(path), n


def peer(path, tokenizer_path, out, processes):
    """The same steps with datasets and tokenizers; prints its account."""
    import datasets
    from tokenizers import Tokenizer

    datasets.disable_progress_bars()
    tokenizer = Tokenizer.from_str(read(tokenizer_path))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    roles = {"human": 0, "gpt": 1}

    def clean(turns):
        turns = list(turns)
        while turns and turns[0]["from"] == "gpt":
            turns.pop(0)
        while turns and turns[-1]["from"] == "human":
            turns.pop()
        if not turns:
            return None
        for i, t in enumerate(turns):
            if roles.get(t["from"]) != i % 2 or not t["value"].strip():
                return None
        return turns

    def encode(batch):
        texts, marks = [], []
        for turns in batch["conversations"]:
            turns = clean(turns)
            if turns is None:
                continue
            text, spans = SYSTEM + " ", []
            for t in turns:
                if t["from"] == "human":
                    text += "USER: " + t["value"] + " ASSISTANT: "
                else:
                    start = len(text)
                    text += t["value"] + "</s>"
                    spans.append((start, len(text)))
            texts.append(text)
            marks.append(spans)
        ids, masks = [], []
        for spans, e in zip(marks, tokenizer.encode_batch(texts)):
            if len(e.ids) > MAX_LENGTH:
                continue
            mask, k = bytearray(len(e.ids)), 0
            for i, (a, b) in enumerate(e.offsets):
                while k < len(spans) and a >= spans[k][1]:
                    k += 1
                if k < len(spans) and b > spans[k][0]:
                    mask[i] = 1
            ids.append(e.ids)
            masks.append(list(mask))
        return {"tokens": ids, "mask": masks}

    begin = time.perf_counter()
    cache = os.path.join(out, "cache")
    d = datasets.load_dataset("json", data_files=path, split="train", cache_dir=cache)
    d = d.map(encode, batched=True, remove_columns=d.column_names, num_proc=processes if processes > 1 else None)
    d.to_parquet(os.path.join(out, "out.parquet"))
    seconds = time.perf_counter() - begin
    tokens = sum(len(t) for t in d["tokens"])
    print(json.dumps({"seconds": seconds, "samples": len(d), "tokens": tokens}))




def read(path):
    opener = gzip.open if path.endswith(".gz") else open
    with opener(path, "rb") as f:
        return f.read().decode()


def run(command, env=None):
    """Runs to the end; returns wall seconds, peak resident MB of the largest process, and stdout."""
    begin = time.perf_counter()
    p = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, **(env or {})})
    out = p.stdout.read()
    _, status, usage = os.wait4(p.pid, 0)
    if status:
        sys.exit(f"{command[0]} failed")
    return time.perf_counter() - begin, usage.ru_maxrss / 1024, out


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--binary", default="./specstream")
    a.add_argument("--data", default=os.environ.get("SPECSTREAM_DATA", "../shared/data"))
    a.add_argument("--tokenizer", default="", help="default: the shared GPT-2")
    a.add_argument("--megabytes", type=int, default=200)
    a.add_argument("--rounds", type=int, default=3)
    a.add_argument("--peer", nargs=4, help=argparse.SUPPRESS)
    o = a.parse_args()
    if o.peer:
        return peer(o.peer[0], o.peer[1], o.peer[2], int(o.peer[3]))
    tokenizer = o.tokenizer or os.path.join(o.data, "tokenizers/gpt2/tokenizer.json.gz")
    cores = os.cpu_count()
    with tempfile.TemporaryDirectory() as tmp:
        source = os.path.join(tmp, "sharegpt.json")
        size, records = build_input(o.data, source, o.megabytes)
        ours, full, theirs = [], [], {"processes": [], "threads": []}
        for _ in range(o.rounds):
            for times, flags in ((ours, ["--dedupe", "none", "--html=false"]), (full, ["--dedupe", "near"])):
                out = os.path.join(tmp, "ours")
                seconds, rss, text = run([o.binary, "ingest", "--format", "sharegpt", "--template", "vicuna", "--turns", "inline",
                                          "--max-length", str(MAX_LENGTH), "--max-bad", "100%", "--tokenizer", tokenizer,
                                          "--out", out, "--progress", "none", "--json", *flags, source])
                account = json.loads(text)
                times.append((seconds, rss, account))
                shutil.rmtree(out)
            for name, processes, env in (("processes", cores, {"TOKENIZERS_PARALLELISM": "false"}),
                                         ("threads", 1, {"TOKENIZERS_PARALLELISM": "true"})):
                out = os.path.join(tmp, "peer")
                os.mkdir(out)
                _, rss, text = run([sys.executable, __file__, "--peer", source, tokenizer, out, str(processes)], env)
                r = json.loads(text)
                theirs[name].append((r["seconds"], rss, r))
                shutil.rmtree(out)
        print(f"{size >> 20} MiB, {records} records, {cores} cores, median of {o.rounds} rounds\n")
        print("| pipeline | seconds | MB/s | peak RSS of a process, MB | samples | tokens |")
        print("|---|---|---|---|---|---|")
        rows = [("specstream", ours), ("specstream, with HTML, phrases and near duplicates", full),
                (f"datasets + tokenizers, {cores} processes", theirs["processes"]),
                (f"datasets + tokenizers, {cores} threads in Rust", theirs["threads"])]
        medians = []
        for name, runs in rows:
            s = statistics.median(r[0] for r in runs)
            medians.append(s)
            last = runs[-1][2]
            print(f"| {name} | {s:.1f} | {size / s / 1e6:.1f} | {max(r[1] for r in runs):.0f} | {last.get('samples', '')} | {last['tokens']} |")
        best = min(medians[2:])
        print(f"\nratio to the faster peer: {best / medians[0]:.1f} with the same steps, {best / medians[1]:.1f} with all cleaning")


if __name__ == "__main__":
    main()
