#!/usr/bin/env python3
"""Writes the proteins of BLAST databases as text, one a line and one letter a residue, for `longstride prepare bytes`.

    proteins.py goasp.fasta.psq [more.psq ...] [--residues 60000000] [--seed 1] > proteins.txt
    longstride prepare bytes --input proteins.txt --documents lines --split 0.9,0.05,0.05 --output data/proteins.h5

Debian's metastudent-data has such databases of Swiss-Prot (2014) in /usr/share/metastudent-data/dataset_201401. Proteins
come in an order drawn by --seed, each once, until there are --residues (0: all), so that parts of the file are alike.
"""
import argparse
import pathlib
import random
import sys

LETTERS = b"-ABCDEFGHIKLMNPQRSTVWXYZU*OJ"  # NCBIstdaa: residue 1 is A
NO_RESIDUES = bytes(range(len(LETTERS), 256))


def refuse(message):
    print(f"longstride: {message}", file=sys.stderr)
    sys.exit(2)


def proteins_of(path):
    """A byte of 0 is before and behind each."""
    try:
        data = pathlib.Path(path).read_bytes()
    except OSError as error:
        refuse(f"{path}: {error.strerror}; name a .psq file of a BLAST database of proteins")
    if len(data) < 3 or data[0] or data[-1] or len(data.translate(None, NO_RESIDUES)) != len(data):
        refuse(f"{path} is no .psq file of a BLAST database (version 4) of proteins")
    letters = bytes.maketrans(bytes(range(len(LETTERS))), LETTERS)
    return [sequence.translate(letters) for sequence in data.split(b"\0") if sequence]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("databases", nargs="+")
    parser.add_argument("--residues", type=int, default=60_000_000)
    parser.add_argument("--seed", type=int, default=1)
    o = parser.parse_args()
    proteins = list(dict.fromkeys(p for path in o.databases for p in proteins_of(path)))
    random.Random(o.seed).shuffle(proteins)
    written = count = 0
    for protein in proteins:
        if o.residues and written >= o.residues:
            break
        sys.stdout.buffer.write(protein + b"\n")
        written, count = written + len(protein), count + 1
    print(f"{count:,} proteins of {written:,} residues", file=sys.stderr)


if __name__ == "__main__":
    main()
