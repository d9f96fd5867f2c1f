"""Opens shards in DuckDB and pyarrow and compares them with what Go wrote.

    pip install -r requirements.txt
    python check_peers.py DUMP.json

DUMP.json names Parquet files and Arrow cache files with their rows and the
SHA-256 of their content; TestPeers writes it. The content of a row is, column by
column, a string as its UTF-8 length and bytes and a list as its length and
elements, every number as 4 little-endian bytes. Prints "ok" and the number of
files; anything else is a failure.
"""

import hashlib
import json
import struct
import sys

import duckdb
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

COLUMNS = {
    "id": "string",
    "tokens": "list<element: int32 not null>",
    "spans": "list<element: int32 not null>",
    "prompt": "string",
    "reference": "string",
    "alternatives": "list<element: string not null>",
}
DUCKDB = {
    "id": "VARCHAR",
    "tokens": "INTEGER[]",
    "spans": "INTEGER[]",
    "prompt": "VARCHAR",
    "reference": "VARCHAR",
    "alternatives": "VARCHAR[]",
}


def value(v):
    if isinstance(v, str):
        b = v.encode()
        return struct.pack("<i", len(b)) + b
    if isinstance(v, list):
        return struct.pack("<i", len(v)) + b"".join(value(x) for x in v)
    return struct.pack("<i", v)


def digest(rows):
    h = hashlib.sha256()
    for row in rows:
        for v in row:
            h.update(value(v))
    return h.hexdigest()


def check(path, what, got, want):
    if got != want:
        sys.exit(f"{path}: {what} is {got}, want {want}")


def arrow_rows(table):
    return zip(*(table.column(n).to_pylist() for n in table.column_names))


def check_schema(path, schema, names):
    check(path, "columns", schema.names, names)
    for n in names:
        f = schema.field(n)
        # Arrow's Go writer calls the elements "item", Parquet "element".
        check(path, n, str(f.type).replace("<item:", "<element:"), COLUMNS[n])
        check(path, n + " nullable", f.nullable, False)
    check(path, "metadata", schema.metadata[b"specstream.schema"], b"1")


def check_parquet(f):
    path = f["path"]
    pf = pq.ParquetFile(path, page_checksum_verification=True)
    check_schema(path, pf.schema_arrow, list(COLUMNS))
    md = pf.metadata
    check(path, "rows of the groups", [md.row_group(i).num_rows for i in range(md.num_row_groups)], f["groups"])
    for i in range(md.num_row_groups):
        for j in range(md.num_columns):
            c = md.row_group(i).column(j)
            check(path, f"codec of {c.path_in_schema}", c.compression, "ZSTD")
            if c.path_in_schema == "tokens.list.element":
                check(path, "encoding of the tokens", "PLAIN" in c.encodings and "RLE_DICTIONARY" not in c.encodings, True)
    check(path, "content in pyarrow", digest(arrow_rows(pf.read())), f["sha256"])

    con = duckdb.connect()
    source = f"read_parquet('{path}')"
    check(path, "schema in DuckDB", {r[0]: r[1] for r in con.sql(f"describe select * from {source}").fetchall()}, DUCKDB)
    names = ", ".join(COLUMNS)
    check(path, "content in DuckDB", digest(con.sql(f"select {names} from {source}").fetchall()), f["sha256"])
    check(path, "tokens in DuckDB", con.sql(f"select sum(len(tokens))::bigint from {source}").fetchall()[0][0] or 0, f["tokens"])


def check_ipc(f):
    path = f["path"]
    with pa.memory_map(path) as m, pa.ipc.open_stream(m) as r:
        before = pa.total_allocated_bytes()
        table = r.read_all()
        table.validate(full=True)
        check(path, "memory that pyarrow allocates to map it", pa.total_allocated_bytes() - before, 0)
        check_schema(path, table.schema, f["columns"])
        check(path, "content in pyarrow", digest(arrow_rows(table)), f["sha256"])


def main():
    with open(sys.argv[1], encoding="utf-8") as f:
        dump = json.load(f)
    for f in dump["parquet"]:
        check_parquet(f)
    for f in dump["ipc"]:
        check_ipc(f)
    print("ok", len(dump["parquet"]) + len(dump["ipc"]))


main()
