"""Writes Parquet files with pyarrow and DuckDB, and the rows that are in them as
JSON lines, for TestParquetVectors.

    pip install -r requirements.txt
    python make_parquet.py
"""

import base64
import datetime as dt
import decimal
import json
import pathlib

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

OUT = pathlib.Path(__file__).parent / "parquet"

turn = pa.struct([("from", pa.string()), ("value", pa.string())])
schema = pa.schema([
    pa.field("id", pa.int64(), nullable=False),
    ("conversations", pa.list_(turn)),
    ("zeta", pa.string()),
    ("alpha", pa.struct([("b", pa.list_(pa.list_(pa.int32()))), ("a", pa.float64())])),
    ("tags", pa.map_(pa.string(), pa.struct([("n", pa.int16()), ("on", pa.bool_())]))),
    ("by_number", pa.map_(pa.int32(), pa.string())),
    ("day", pa.date32()),
    ("at", pa.timestamp("us", tz="UTC")),
    ("local", pa.timestamp("ms")),
    ("clock", pa.time64("us")),
    ("price", pa.decimal128(12, 3)),
    ("big", pa.uint64()),
    ("raw", pa.binary()),
    ("half", pa.float32()),
])


def row(i):
    texts = ["", "plain", "with \"quotes\" and \\ and \n and \t", "é 中 \U0001f600", "\x00\x01\x1f\x7f", None]
    turns = [{"from": ["human", "gpt"][k % 2], "value": texts[(i + k) % len(texts)]} for k in range(i % 5)]
    return {
        "id": i * (-1) ** i,
        "conversations": None if i % 7 == 3 else [None if (i + k) % 11 == 10 else t for k, t in enumerate(turns)],
        "zeta": texts[i % len(texts)],
        "alpha": None if i % 9 == 4 else {"b": [None, [], [[]], [[1], None, [2, None, 3], []]][i % 4], "a": [0.5, 1e300, -0.0, None, float("nan"), float("inf")][i % 6]},
        "tags": [None, [], [("a", {"n": i, "on": True})], [("a", None), ("b \"q\"", {"n": None, "on": False})]][i % 4],
        "by_number": [(k, None if k % 2 else f"v{k}") for k in range(i % 3)],
        "day": None if i % 5 == 0 else dt.date(1969, 12, 30) + dt.timedelta(days=i),
        "at": None if i % 6 == 0 else dt.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=dt.timezone.utc) + dt.timedelta(seconds=i * 1000, microseconds=i * 10),
        "local": dt.datetime(2024, 2, 29, 12, 0, 0) + dt.timedelta(milliseconds=i),
        "clock": dt.time(i % 24, 59, 1, i),
        "price": decimal.Decimal(i * 37 - 500) / 1000 if i % 8 else None,
        "big": 2**64 - 1 - i,
        "raw": [b"text", b"\xff\x00", None][i % 3],
        "half": i / 3,
    }


def fraction(t):
    return f".{t.microsecond:06d}".rstrip("0").rstrip(".")


def plain(v):
    """The JSON value that a row's value is read as."""
    if isinstance(v, dt.datetime):
        return v.strftime("%Y-%m-%dT%H:%M:%S") + fraction(v) + ("Z" if v.tzinfo else "")
    if isinstance(v, dt.date):
        return v.isoformat()
    if isinstance(v, dt.time):
        return v.strftime("%H:%M:%S") + fraction(v)
    if isinstance(v, decimal.Decimal):
        return float(v)
    if isinstance(v, bytes):
        try:
            return v.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(v).decode()}
    if isinstance(v, float) and v != v:
        return "NaN"
    if v == float("inf"):
        return "Infinity"
    if isinstance(v, list) and v and isinstance(v[0], tuple):
        return {str(k): plain(x) for k, x in v}
    if isinstance(v, list):
        return [plain(x) for x in v]
    if isinstance(v, dict):
        return {k: plain(x) for k, x in v.items()}
    return v


def expected(r):
    out = plain(r) | {"half": float(str(np.float32(r["half"])))}
    for name in ("tags", "by_number"):
        if out[name] == []:
            out[name] = {}
    return out


def lines(path, rows):
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))


def main():
    OUT.mkdir(exist_ok=True)
    rows = [row(i) for i in range(60)]
    table = pa.Table.from_pylist(rows, schema=schema)
    lines(OUT / "nested.jsonl", map(expected, table.to_pylist()))
    small = {"row_group_size": 25, "data_page_size": 600, "write_batch_size": 10}
    pq.write_table(table, OUT / "nested-v1-none.parquet", compression="none", data_page_version="1.0", **small)
    pq.write_table(table, OUT / "nested-v2-zstd.parquet", compression="zstd", data_page_version="2.0", write_page_checksum=True, **small)
    pq.write_table(table, OUT / "nested-v1-snappy.parquet", compression="snappy", use_dictionary=False, write_page_checksum=True, **small)
    pq.write_table(table, OUT / "nested-v1-gzip.parquet", compression="gzip", use_compliant_nested_type=False, **small)
    pq.write_table(table, OUT / "nested-v2-brotli.parquet", compression="brotli", data_page_version="2.0", use_byte_stream_split=False, **small)
    pq.write_table(table, OUT / "nested-v1-lz4.parquet", compression="lz4", use_deprecated_int96_timestamps=False, **small)

    duckdb.sql(f"""copy (select 'Say ' || i || '.' as instruction, repeat(i::varchar, (i % 50 + 1)::int) as output from range(300) t(i))
        to '{OUT}/duckdb.parquet' (format parquet, row_group_size 100, compression zstd)""")


main()
