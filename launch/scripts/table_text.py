#!/usr/bin/env python3
"""Writes a column of text of Parquet and Arrow files as lines of JSON, for `longstride prepare bytes --field`.

    table_text.py COLUMN FILE [FILE ...] | longstride prepare bytes --input - --field COLUMN --output data/x.h5

Files are read in batches, so that they need not fit into memory. Needs pyarrow.
"""
import json
import os
import sys


def refuse(message):
    print(f"longstride: {message}", file=sys.stderr)
    sys.exit(2)


try:
    import pyarrow
    from pyarrow import ipc, parquet
except ImportError:
    refuse("table_text.py needs pyarrow; install it with pip install pyarrow")


def batches_of(path, column):
    """Batches of rows that have the column."""
    with open(path, "rb") as file:
        magic = file.read(6)
    if magic[:4] == b"PAR1":
        table = parquet.ParquetFile(path)
        names, batches = table.schema_arrow.names, lambda: table.iter_batches(columns=[column])
    elif magic == b"ARROW1":
        table = ipc.open_file(pyarrow.memory_map(path))
        names, batches = table.schema.names, lambda: map(table.get_batch, range(table.num_record_batches))
    else:  # a stream, as datasets of Hugging Face are saved
        table = ipc.open_stream(pyarrow.memory_map(path))
        names, batches = table.schema.names, lambda: table
    if column not in names:
        refuse(f"{path}: has no column '{column}'; choose from {', '.join(names)}")
    return batches()


def main():
    if len(sys.argv) < 3 or sys.argv[1].startswith("-"):
        print(__doc__, end="")
        sys.exit(0 if sys.argv[1:2] in (["--help"], ["-h"]) else 2)
    column, *paths = sys.argv[1:]
    try:
        for path in paths:
            for batch in batches_of(path, column):
                for text in batch.column(batch.schema.names.index(column)).to_pylist():
                    sys.stdout.write(json.dumps({column: text}, ensure_ascii=False) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:  # what reads has ended, and said why
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (OSError, pyarrow.ArrowException) as error:
        refuse(f"{path}: {error}")


if __name__ == "__main__":
    main()
