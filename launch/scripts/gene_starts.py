#!/usr/bin/env python3
"""Writes what lies before genes, and as much of other places, as FASTA with a class each, for `longstride prepare bytes`.

    gene_starts.py genome.fasta.gz genes.gff3.gz --labels starts.tsv [--before 1000] [--seed 1] > starts.fa
    longstride prepare bytes --input starts.fa --documents fasta --labels starts.tsv --split 0.8,0.1,0.1 \\
        --output data/gene-starts.h5

Debian's maffilter-examples has Ustilago maydis. A start is the --before bases before the first coding base of a gene, in
the gene's direction. Others are drawn by --seed, in both directions, where no start and no other one is.
"""
import bisect
import random

import packaged_data as data

COMPLEMENT = str.maketrans("ACGTN", "TGCAN")


def genes_of(path):
    """Place, counted from 0, and direction of every gene's first coding base, by sequence."""
    parts = {}
    for number, line in data.lines_of(path):
        fields = line.split("\t")
        if line.startswith("#") or not line.strip():
            continue
        if len(fields) != 9 or not (fields[3] + fields[4]).isdigit():
            data.refuse(f"{path}:{number}: is no line of GFF3, which has nine fields with begin and end; give a GFF3 file")
        parents = [word[7:] for word in fields[8].split(";") if word.startswith("Parent=")]
        if fields[2] == "CDS" and fields[6] in "+-" and parents:
            parts.setdefault((fields[0], fields[6], parents[0]), []).append((int(fields[3]) - 1, int(fields[4])))
    if not parts:
        data.refuse(f"{path}: has no CDS with a parent; give the annotation of a genome, as GFF3")
    return {(name, min(p)[0] if way == "+" else max(end for _, end in p), way) for (name, way, _), p in parts.items()}


def bases_of(sequence, begin, end, way):
    bases = sequence[begin:end]
    return bases if way == "+" else bases.translate(COMPLEMENT)[::-1]


class Taken:
    """Stretches of one length that no other may overlap."""

    def __init__(self, length):
        self.length, self.begins = length, {}

    def take(self, name, begin, anyway=False):
        begins = self.begins.setdefault(name, [])
        at = bisect.bisect(begins, begin)
        near = begins[max(0, at - 1):at + 1]
        if not anyway and any(abs(other - begin) < self.length for other in near):
            return False
        begins.insert(at, begin)
        return True


def main():
    parser = data.parser_of(__doc__)
    parser.add_argument("genome")
    parser.add_argument("genes")
    parser.add_argument("--labels", required=True)
    parser.add_argument("--before", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    o = parser.parse_args()
    # Some genomes name a sequence species:name:...
    genome = {part: bases for name, bases in data.fasta_of(o.genome).items() for part in {name, *name.split(":")}}
    taken, found = Taken(o.before), []
    for name, place, way in sorted(genes_of(o.genes)):
        if name not in genome:
            data.refuse(f"{o.genes}: has genes of '{name}', which {o.genome} lacks; give the genome that they are of")
        begin = place - o.before if way == "+" else place
        if begin >= 0 and begin + o.before <= len(genome[name]):
            taken.take(name, begin, anyway=True)
            found.append((name, begin, way, "start"))
    drawn, names = random.Random(o.seed), sorted(taken.begins)
    sizes, starts = [len(genome[name]) - o.before + 1 for name in names], len(found)
    for _ in range(200 * starts):
        if len(found) == 2 * starts:
            break
        name = drawn.choices(names, sizes)[0]
        begin = drawn.randrange(len(genome[name]) - o.before + 1)
        if taken.take(name, begin):
            found.append((name, begin, drawn.choice("+-"), "other"))
    rows = [(f"{name}:{begin}{way}", label, bases_of(genome[name], begin, begin + o.before, way))
            for name, begin, way, label in data.shuffled(found, o.seed)]
    for name, _, bases in rows:
        print(f">{name}\n{bases}")
    data.write_table(o.labels, [(name, label) for name, label, _ in rows])
    data.say(f"{starts:,} starts and {len(rows) - starts:,} others of {o.before:,} bases")


if __name__ == "__main__":
    main()
