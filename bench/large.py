#!/usr/bin/env python3
"""Peak memory of ingesting one large JSON array.

Generates --gigabytes of ShareGPT conversations as a single array with the
project's own generator, ingests them, and prints seconds, MB/s and the peak
resident size of the process. Needs twice that much free disk.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--binary", default="./specstream")
    a.add_argument("--data", default=os.environ.get("SPECSTREAM_DATA", "../shared/data"))
    a.add_argument("--gigabytes", type=float, default=5)
    a.add_argument("--dir", help="where to work (default: the system's temporary folder)")
    a.add_argument("flags", nargs="*", help="further flags of specstream ingest, behind --")
    o = a.parse_args()
    with tempfile.TemporaryDirectory(dir=o.dir) as tmp:
        source = os.path.join(tmp, "sharegpt.json")
        sample = os.path.join(tmp, "sample.json")
        generate = [o.binary, "generate", "--format", "sharegpt", "--seed", "1"]
        subprocess.run([*generate, "--records", "10000", "--out", sample], check=True)
        records = int(10000 * o.gigabytes * 1e9 / os.path.getsize(sample))
        subprocess.run([*generate, "--records", str(records), "--out", source], check=True)
        size = os.path.getsize(source)
        command = [o.binary, "ingest", "--format", "sharegpt", "--tokenizer", os.path.join(o.data, "tokenizers/gpt2/tokenizer.json.gz"),
                   "--out", os.path.join(tmp, "out"), "--max-bad", "100%", "--progress", "none", "--json", *o.flags, source]
        begin = time.perf_counter()
        p = subprocess.Popen(command, stdout=subprocess.PIPE)
        out = p.stdout.read()
        _, status, usage = os.wait4(p.pid, 0)
        if status:
            sys.exit("specstream ingest failed")
        seconds = time.perf_counter() - begin
        account = json.loads(out)
        print(f"{size / 1e9:.2f} GB, {account['read']} records, {account['kept']} kept, {account['tokens']} tokens, {account['shards']} shards")
        print(f"{seconds:.0f} s, {size / seconds / 1e6:.1f} MB/s, peak RSS {usage.ru_maxrss / 1024:.0f} MB")


if __name__ == "__main__":
    main()
