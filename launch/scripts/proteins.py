#!/usr/bin/env python3
"""Writes the proteins of BLAST databases as text, one a line and one letter a residue, for `longstride prepare bytes`.

    proteins.py goasp.fasta.psq [more.psq ...] [--residues 60000000] [--seed 1] > proteins.txt
    longstride prepare bytes --input proteins.txt --documents lines --split 0.9,0.05,0.05 --output data/proteins.h5

    proteins.py goasp.fasta.psq --labels go.tsv --graph goGraph.txt [--terms 64] > proteins.txt
    longstride prepare bytes --input proteins.txt --documents lines --labels go.tsv --split 0.9,0.05,0.05 \\
        --output data/proteins-go.h5

Debian's metastudent-data has such databases of Swiss-Prot (2014) in /usr/share/metastudent-data/dataset_201401. Proteins
come in an order drawn by --seed, each once, until there are --residues (0: all), so that parts of the file are alike.
--labels writes the terms of the Gene Ontology that the database's names have, and those above them in --graph: the
--terms most frequent ones that at most half of the proteins have.
"""
import collections
import pathlib
import random
import re
import struct
import sys

import packaged_data as data

LETTERS = b"-ABCDEFGHIKLMNPQRSTVWXYZU*OJ"  # NCBIstdaa: residue 1 is A
NO_RESIDUES = bytes(range(len(LETTERS), 256))
TITLE = b"\x30\x80\x30\x80\xa0\x80\x1a"  # begins a header, before the length of its title


def read(path, what):
    try:
        return pathlib.Path(path).read_bytes()
    except OSError as error:
        data.refuse(f"{path}: {error.strerror}; name {what}")


def proteins_of(path):
    """A byte of 0 is before and behind each."""
    residues = read(path, "a .psq file of a BLAST database of proteins")
    if len(residues) < 3 or residues[0] or residues[-1] or len(residues.translate(None, NO_RESIDUES)) != len(residues):
        data.refuse(f"{path} is no .psq file of a BLAST database (version 4) of proteins")
    letters = bytes.maketrans(bytes(range(len(LETTERS))), LETTERS)
    return [sequence.translate(letters) for sequence in residues.split(b"\0") if sequence]


def titles_of(path):
    """The titles of a database's proteins, in order, from the files beside its .psq file."""
    index, headers = (read(str(pathlib.Path(path).with_suffix(end)), "a whole database") for end in (".pin", ".phr"))
    try:
        if struct.unpack_from(">II", index) != (4, 1):
            raise struct.error
        at = 8
        for _ in range(2):  # title and date
            at += 4 + struct.unpack_from(">I", index, at)[0]
        count = struct.unpack_from(">I", index, at)[0]
        for place in struct.unpack_from(f">{count}I", index, at + 16):
            size, begin = headers[place + len(TITLE)], place + len(TITLE) + 1
            if headers[place:place + len(TITLE)] != TITLE:
                raise struct.error
            if size & 128:  # the low bits count the bytes of the length
                begin, size = begin + (size & 127), int.from_bytes(headers[begin:begin + (size & 127)], "big")
            if begin + size > len(headers):
                raise struct.error
            yield headers[begin:begin + size].decode("ascii", "replace")
    except (struct.error, IndexError):
        data.refuse(f"{path} has no .pin and .phr files of a BLAST database (version 4) of proteins beside it")


def above_of(path):
    """A term with all that it is or is part of."""
    parents = collections.defaultdict(set)
    for number, line in data.lines_of(path):
        fields = line.split("\t")
        if len(fields) != 4:
            data.refuse(f"{path}:{number}: is no line of a graph: upper term, lower term, distance and relation")
        if fields[3] in ("is_a", "part_of"):
            parents[fields[1]].add(fields[0])
    known = {}

    def above(term):
        if term not in known:
            known[term] = {term}  # a circle ends here
            known[term] = {term}.union(*(above(parent) for parent in parents[term]))
        return known[term]

    return above


def labels_of(proteins, terms_of, most):
    """Rows of a table: the number of a line, and its terms."""
    count = collections.Counter(term for protein in proteins for term in terms_of[protein])
    kept = [term for term, n in sorted(count.items(), key=lambda item: (-item[1], item[0])) if 2 * n <= len(proteins)]
    kept = set(kept[:most])
    return [(i, ",".join(sorted(kept & terms_of[protein]))) for i, protein in enumerate(proteins, 1)]


def main():
    parser = data.parser_of(__doc__)
    parser.add_argument("databases", nargs="+")
    parser.add_argument("--residues", type=int, default=60_000_000)
    parser.add_argument("--labels")
    parser.add_argument("--graph")
    parser.add_argument("--terms", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    o = parser.parse_args()
    if (o.labels is None) != (o.graph is None):
        data.refuse("--labels and --graph go together: the file for terms, and the graph of those above; give both or none")
    proteins = list(dict.fromkeys(p for path in o.databases for p in proteins_of(path)))
    random.Random(o.seed).shuffle(proteins)
    written, taken = 0, []
    for protein in proteins:
        if o.residues and written >= o.residues:
            break
        written += len(protein)
        taken.append(protein)
    sys.stdout.buffer.writelines(protein + b"\n" for protein in taken)
    if o.labels:
        above, terms_of = above_of(o.graph), collections.defaultdict(set)
        for path in o.databases:
            for protein, title in zip(proteins_of(path), titles_of(path)):
                terms_of[protein].update(*(above(term) for term in re.findall(r"GO:\d{7}", title)))
        data.write_table(o.labels, labels_of(taken, terms_of, o.terms))
    data.say(f"{len(taken):,} proteins of {written:,} residues")


if __name__ == "__main__":
    main()
