#!/usr/bin/env python3
"""Writes one species of an alignment (MAF) as FASTA, for `longstride prepare bytes`.

    human_dna.py alignment.maf.gz [--species Hsap] [--gap 200] [--least 4096] > chr22.fa
    longstride prepare bytes --input chr22.fa --documents fasta --split 0.9,0.05,0.05 --output data/chr22.h5

Debian's maffilter-examples has human chromosome 22. Blocks are sorted by place and joined over at most --gap unknown
bases, written as N; pieces shorter than --least bases are left out.
"""
import packaged_data as data


def blocks_of(path, species):
    for number, line in data.lines_of(path):
        fields = line.split()
        if len(fields) < 2 or fields[0] != "s" or fields[1].split(".")[0] != species:
            continue
        bases = fields[-1].replace("-", "").upper()
        if len(fields) != 7 or not fields[2].isdigit() or fields[3] != str(len(bases)) or fields[4] not in "+-":
            data.refuse(f"{path}:{number}: is no line of an alignment: s, name, place, bases, strand, length, letters")
        if fields[4] == "-":
            data.refuse(f"{path}:{number}: is on the other strand; take another species, which all is on one strand")
        yield fields[1], int(fields[2]), bases


def pieces_of(blocks, gap):
    """Names, places and bases."""
    name, begin, end, parts = None, 0, 0, []
    for source, place, bases in sorted(blocks):
        if source != name or place > end + gap:
            if parts:
                yield name, begin, "".join(parts)
            name, begin, end, parts = source, place, place, []
        parts.append("N" * (place - end) + bases[max(0, end - place):])
        end = max(end, place + len(bases))
    if parts:
        yield name, begin, "".join(parts)


def main():
    parser = data.parser_of(__doc__)
    parser.add_argument("alignment")
    parser.add_argument("--species", default="Hsap")
    parser.add_argument("--gap", type=int, default=200)
    parser.add_argument("--least", type=int, default=4096)
    o = parser.parse_args()
    written = count = 0
    for name, begin, bases in pieces_of(blocks_of(o.alignment, o.species), o.gap):
        if len(bases) >= o.least:
            print(f">{name}:{begin}-{begin + len(bases)}\n{bases}")
            written, count = written + len(bases), count + 1
    if not count:
        data.refuse(f"{o.alignment}: has no {o.least} bases of {o.species} in one piece; name another --species or --least")
    data.say(f"{count:,} pieces of {written:,} bases")


if __name__ == "__main__":
    main()
