"""Regenerates every golden vector under this folder: llama/, families/, method/ and decode/."""

import runpy
import sys
from pathlib import Path

sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent
for script in ("llama/make_llama.py", "families/make_families.py", "method/make_method.py", "decode/make_decode.py"):
    print("== " + script, flush=True)
    runpy.run_path(str(HERE / script), run_name="__main__")
