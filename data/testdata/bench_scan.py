"""Measures reading ShareGPT conversations beside DuckDB's read_json, in one run on
one generated file: with 1 thread and with as many as there are CPUs.

    pip install -r requirements.txt
    python bench_scan.py [MEGABYTES]

DuckDB reads and types every field and sums the lengths of all texts, so that none
can be left out. "scan" is the pass that hashes the input and cuts it into parts,
"split" delimits the records of the parts and checks their digests, "decode" makes
checked records of them besides. Rates are by wall time and, in brackets, by CPU
time, which other work on the machine moves less; best of the rounds, which take
turns.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import duckdb

HERE = pathlib.Path(__file__).parent
QUERY = """select count(id), sum(list_sum(list_transform(conversations, lambda t: strlen(t."from") + strlen(t.value))))
    from read_json('{file}', format='array', columns={{id: 'varchar', conversations: 'struct("from" varchar, value varchar)[]'}})"""
ROUNDS = 5


def generate(file, megabytes):
    """Conversations of our own generator, repeated up to the size."""
    text = subprocess.run(["go", "run", "../cmd/specstream", "generate", "--format", "sharegpt", "--records", "20000"],
                          cwd=HERE.parent, check=True, capture_output=True, text=True).stdout
    records = text.strip().removeprefix("[").removesuffix("]").strip()
    n = max(1, megabytes * 1_000_000 // len(records))
    with open(file, "w") as f:
        f.write("[\n" + ",\n".join([records] * n) + "\n]\n")


def duck(file, threads):
    db = duckdb.connect(config={"threads": threads})
    start, cpu = time.perf_counter(), time.process_time()
    rows = db.sql(QUERY.format(file=file)).fetchall()
    assert rows[0][0] > 0 and rows[0][1] > 0
    return {"duckdb": (time.perf_counter() - start, time.process_time() - cpu)}


def ours(binary, file, threads):
    env = os.environ | {"SPECSTREAM_BENCH_JSON": str(file)}
    out = subprocess.run([binary, "-test.run", "xxx", "-test.bench", "ScanFile", "-test.benchtime", "1x", "-test.cpu", str(threads)],
                         cwd=HERE.parent, env=env, check=True, capture_output=True, text=True).stdout
    return {m[1]: (float(m[2]) / 1e9, float(m[3]) / 1e9)
            for m in re.finditer(r"ScanFile/(\w+?)(?:-\d+)?\s+1\s+([\d.]+) ns/op.*?([\d.]+) cpu-ns/op", out)}


def main():
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    with tempfile.TemporaryDirectory() as tmp:
        file, binary = pathlib.Path(tmp) / "chats.json", pathlib.Path(tmp) / "data.test"
        generate(file, megabytes)
        subprocess.run(["go", "test", "-c", "-o", binary, "."], cwd=HERE.parent, check=True)
        size = file.stat().st_size / 1e6
        print(f"{size:.0f} MB, {os.cpu_count()} CPUs, DuckDB {duckdb.__version__}; MB/s of wall time (of CPU time)")
        print("| threads | DuckDB | scan | split | decode | decode / DuckDB |\n|---|---|---|---|---|---|")
        for threads in sorted({1, os.cpu_count()}):
            best = {}
            for _ in range(ROUNDS):
                for name, took in (duck(file, threads) | ours(binary, file, threads)).items():
                    best[name] = [min(a, b) for a, b in zip(took, best.get(name, took))]
            rate = {name: [size / seconds for seconds in took] for name, took in best.items()}
            cells = [f"{wall:.0f} ({cpu:.0f})" for wall, cpu in (rate[n] for n in ("duckdb", "scan", "split", "decode"))]
            cells.append("{:.2f} ({:.2f})".format(*(d / q for d, q in zip(rate["decode"], rate["duckdb"]))))
            print(f"| {threads} | {' | '.join(cells)} |", flush=True)


main()
