#!/usr/bin/env python3
"""Scripts that turn packaged data into text, on small packages, and what `longstride prepare` makes of it.

    packaged_data.py SCRIPTS LONGSTRIDE
"""
import gzip
import io
import lzma
import pathlib
import struct
import subprocess
import sys
import tarfile
import tempfile
import unittest

LONGSTRIDE = pathlib.Path(sys.argv.pop()).resolve()
SCRIPTS = pathlib.Path(sys.argv.pop()).resolve()
LETTERS = "-ABCDEFGHIKLMNPQRSTVWXYZU*OJ"
PROTEINS = ["MKV" + letter * (3 + i) for i, letter in enumerate(LETTERS[1:] * 4)]


def database(proteins):
    return b"\0" + b"".join(bytes(LETTERS.index(letter) for letter in protein) + b"\0" for protein in proteins)


class Scripts(unittest.TestCase):
    script = None

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.at = pathlib.Path(self.folder.name)
        self.put()

    def run_script(self, *arguments, fails=False):
        done = subprocess.run([sys.executable, SCRIPTS / self.script, *arguments], cwd=self.at, capture_output=True)
        self.assertEqual(done.returncode, 2 if fails else 0, done.stderr)
        return done.stderr.decode() if fails else done.stdout

    def refuses(self, arguments, error):
        said = self.run_script(*arguments, fails=True)
        self.assertTrue(said.startswith("longstride: ") and error in said and said.count("\n") == 1, said)

    def prepare(self, *arguments):
        """What `info` says of the dataset."""
        done = subprocess.run([LONGSTRIDE, "prepare", "bytes", *arguments, "--output", "x.h5"], cwd=self.at, capture_output=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return subprocess.run([LONGSTRIDE, "info", "x.h5"], cwd=self.at, check=True, capture_output=True).stdout.decode()


class Proteins(Scripts):
    script = "proteins.py"

    def put(self):
        (self.at / "a.psq").write_bytes(database(PROTEINS[:70]))
        (self.at / "b.psq").write_bytes(database(PROTEINS[50:]))

    def test_each_protein_is_a_line_in_an_order_of_the_seed(self):
        text = self.run_script("a.psq", "b.psq", "--residues", "0")
        self.assertEqual(sorted(text.decode().splitlines()), sorted(PROTEINS))
        self.assertNotEqual(text.decode().splitlines(), PROTEINS)
        self.assertEqual(text, self.run_script("a.psq", "b.psq", "--residues", "0"))
        self.assertNotEqual(text, self.run_script("a.psq", "b.psq", "--residues", "0", "--seed", "2"))
        part = self.run_script("a.psq", "b.psq", "--residues", "500")
        self.assertTrue(text.startswith(part))
        residues = [len(line) for line in part.decode().splitlines()]
        self.assertTrue(sum(residues) >= 500 > sum(residues[:-1]))

    def test_lines_are_documents(self):
        (self.at / "proteins.txt").write_bytes(self.run_script("a.psq", "--residues", "0"))
        said = self.prepare("--input", "proteins.txt", "--documents", "lines", "--split", "0.9,0.05,0.05")
        self.assertIn("documents end with lines", said)

    def put_headers(self, titles):
        """Headers of a database with the first proteins, and their places."""
        headers, places = b"", [0]
        for title in titles:
            size = bytes([len(title)]) if len(title) < 128 else b"\x82" + struct.pack(">H", len(title))
            headers += b"\x30\x80\x30\x80\xa0\x80\x1a" + size + title.encode() + b"\0\0\xa1\x80"
            places.append(len(headers))
        index = struct.pack(">III4sI8sIQI", 4, 1, 4, b"name", 8, b"the date", len(titles), 0, 0)
        (self.at / "a.phr").write_bytes(headers)
        (self.at / "a.pin").write_bytes(index + struct.pack(f">{len(places)}I", *places) * 2)

    def test_terms_hold_with_those_above_them(self):
        terms = ["GO:0000003", "GO:0000002", "GO:0000009"]  # 3 is a 2, and 2 a 1; 9 is rare
        self.put_headers([f"P{i}|{terms[0 if i < 30 else 1 if i < 60 else 2]}," + "x" * (3 * i) for i in range(70)])
        (self.at / "graph").write_text("GO:0000002\tGO:0000003\t1\tis_a\nGO:0000001\tGO:0000002\t1\tpart_of\n"
                                       "GO:0000008\tGO:0000002\t1\tregulates\n")
        text = self.run_script("a.psq", "--residues", "0", "--labels", "l.tsv", "--graph", "graph", "--terms", "2")
        rows = [line.split("\t") for line in (self.at / "l.tsv").read_text().splitlines()]
        self.assertEqual([number for number, _ in rows], [str(i) for i in range(1, 71)])
        expected = {protein: terms[0] if i < 30 else "" if i < 60 else terms[2] for i, protein in enumerate(PROTEINS[:70])}
        self.assertEqual([label for _, label in rows], [expected[protein] for protein in text.decode().splitlines()])
        (self.at / "p.txt").write_bytes(text)
        said = self.prepare("--input", "p.txt", "--documents", "lines", "--labels", "l.tsv", "--split", "0.7,0.2,0.1")
        self.assertIn("2 labels: GO:0000003, GO:0000009", said)

    def test_other_files_are_refused(self):
        (self.at / "text.psq").write_bytes(b"MKV\nMKL\n")
        (self.at / "cut.psq").write_bytes(database(PROTEINS)[:-1])
        for name, error in (("text.psq", "is no .psq file"), ("cut.psq", "is no .psq file"), ("none.psq", "No such file")):
            self.refuses([name], error)
        self.refuses(["a.psq", "--labels", "l.tsv"], "--labels and --graph go together")
        (self.at / "graph").write_text("GO:1\n")
        self.refuses(["a.psq", "--labels", "l.tsv", "--graph", "graph"], "graph:1: is no line of a graph")
        self.put_headers([f"P{i}" for i in range(70)])
        (self.at / "graph").write_text("")
        whole = {end: (self.at / f"a.{end}").read_bytes() for end in ("phr", "pin")}
        for end, most in (("phr", 500), ("phr", 5), ("pin", 44), ("pin", 6), ("pin", 0)):
            for other in whole:
                (self.at / f"a.{other}").write_bytes(whole[other][:most] if other == end else whole[other])
            self.refuses(["a.psq", "--labels", "l.tsv", "--graph", "graph"], "a.psq has no .pin and .phr files")


class HumanDna(Scripts):
    script = "human_dna.py"

    def put(self):
        self.lines = ["##maf version=1", "a", "s Hsap.22 100 8 + 999 ACG-TacgT", "s Ptro.22 3 8 + 999 ACGGTACGT", "",
                      "s Hsap.22 110 4 + 999 GGGG", "s Hsap.22 106 6 + 999 TTTTCC", "s Hsap.22 50 3 + 999 CCC"]
        (self.at / "a.maf").write_text("\n".join(self.lines))
        with gzip.open(self.at / "a.maf.gz", "wt") as file:
            file.write("\r\n".join(self.lines))

    def test_blocks_are_sorted_and_joined(self):
        for name in ("a.maf", "a.maf.gz"):
            text = self.run_script(name, "--gap", "2", "--least", "3").decode()
            self.assertEqual(text, ">Hsap.22:50-53\nCCC\n>Hsap.22:100-114\nACGTACGTTTCCGG\n")
        (self.at / "x.fa").write_text(text)
        self.assertIn("2 documents", self.prepare("--input", "x.fa", "--documents", "fasta", "--split", "1.0,0"))

    def test_gaps_become_unknown_bases(self):
        text = self.run_script("a.maf", "--gap", "50", "--least", "20").decode()
        self.assertEqual(text, ">Hsap.22:50-114\nCCC" + "N" * 47 + "ACGTACGTTTCCGG\n")

    def test_other_files_are_refused(self):
        self.refuses(["a.maf"], "has no 4096 bases of Hsap in one piece")
        for line in ("s Hsap.22 5 3 + 9 ACGT", "s Hsap.22 x 4 + 9 ACGT", "s Hsap.22 5 4 + ACGT"):
            (self.at / "b.maf").write_text("a\n" + line)
            self.refuses(["b.maf"], "b.maf:2: is no line of an alignment")
        (self.at / "b.maf").write_text("s Hsap.22 5 4 - 9 ACGT")
        self.refuses(["b.maf"], "b.maf:1: is on the other strand")
        (self.at / "cut.maf.gz").write_bytes((self.at / "a.maf.gz").read_bytes()[:-9])
        self.refuses(["cut.maf.gz"], "cut.maf.gz: is damaged")
        self.refuses(["none.maf"], "none.maf: No such file")


class GeneStarts(Scripts):
    script = "gene_starts.py"

    def put(self):
        self.genome = "".join("ACGT"[(i * i // 7 + i // 3) % 4] for i in range(3000))
        (self.at / "g.fa").write_text(f">Sp:chr1:1\n{self.genome[:1000]}\n{self.genome[1000:]}\n")
        rows = [("CDS", 501, 600, "+", "m1"), ("CDS", 701, 800, "+", "m1"), ("mRNA", 501, 800, "+", "m1"),
                ("CDS", 1001, 1100, "-", "m2"), ("CDS", 1201, 1300, "-", "m2"), ("CDS", 11, 40, "+", "m3")]
        (self.at / "g.gff3").write_text("# genes\n" + "".join(
            f"chr1\tX\t{what}\t{begin}\t{end}\t.\t{way}\t0\tParent=mRNA:{of};Note=y\n" for what, begin, end, way, of in rows))

    def test_starts_are_before_the_first_coding_base_in_the_gene_s_direction(self):
        text = self.run_script("g.fa", "g.gff3", "--labels", "l.tsv", "--before", "100").decode().split("\n")
        records = dict(zip((name[1:] for name in text[::2]), text[1::2]))
        labels = dict(line.split("\t") for line in (self.at / "l.tsv").read_text().splitlines())
        self.assertEqual(set(records), set(labels))
        starts = {name: records[name] for name in labels if labels[name] == "start"}
        back = self.genome[1300:1400].translate(str.maketrans("ACGT", "TGCA"))[::-1]
        self.assertEqual(starts, {"chr1:400+": self.genome[400:500], "chr1:1300-": back})
        places = sorted(int(name.split(":")[1][:-1]) for name in records)
        self.assertEqual(len(places), 4)
        self.assertTrue(all(b - a >= 100 for a, b in zip(places, places[1:])), places)
        (self.at / "x.fa").write_text("\n".join(text))
        said = self.prepare("--input", "x.fa", "--documents", "fasta", "--labels", "l.tsv", "--split", "1.0,0")
        self.assertIn("2 classes: other, start", said)

    def test_other_files_are_refused(self):
        (self.at / "bad.gff3").write_text("chr1\tX\tCDS\tone\t2\n")
        self.refuses(["g.fa", "bad.gff3", "--labels", "l"], "bad.gff3:1: is no line of GFF3")
        (self.at / "bad.gff3").write_text((self.at / "g.gff3").read_text().replace("chr1", "chr2"))
        self.refuses(["g.fa", "bad.gff3", "--labels", "l"], "bad.gff3: has genes of 'chr2', which g.fa lacks")
        (self.at / "bad.gff3").write_text("# none\n")
        self.refuses(["g.fa", "bad.gff3", "--labels", "l"], "bad.gff3: has no CDS with a parent")
        (self.at / "bad.fa").write_text("ACGT\n")
        self.refuses(["bad.fa", "g.gff3", "--labels", "l"], "bad.fa:1: has letters before the first line '>name'")
        self.refuses(["g.fa", "g.gff3", "--labels", "none/l"], "none/l: No such file")


class Articles(Scripts):
    script = "articles.py"

    def put(self):
        text = "".join(f'<doc id="{i}" title="T{i}">\nTitle {i}\n\nTitle {i} is article {i}é.\n{"word " * 30}\nmore\n</doc>\n'
                       for i in range(30))
        (self.at / "w.txt.xz").write_bytes(lzma.compress((text + "<doc cut").encode()))

    def test_articles_have_titles_leads_and_rests(self):
        text = self.run_script("w.txt.xz", "--least", "50")
        self.assertTrue(text.startswith("Title 0\n\nTitle 0 is article 0é.\n\nword ".encode()), text[:80])
        (self.at / "a.txt").write_bytes(text)
        said = self.prepare("--input", "a.txt", "--documents", "marks", "--groups", "lead", "--split", "1.0,0")
        self.assertIn("30 documents, 90 groups", said)

    def test_answers_of_questions_are_titles(self):
        text = self.run_script("w.txt.xz", "--least", "50", "--cloze", "4", "--labels", "l.tsv", "--excerpt", "40",
                               "--group-labels", "g.tsv")
        questions = text.split(b"<|endoftext|>")[:-1]
        rows = [line.split("\t") for line in (self.at / "l.tsv").read_text().splitlines()]
        self.assertEqual(len(rows), 30)
        for i, (question, (number, span)) in enumerate(zip(questions, rows)):
            begin, end = map(int, span.split("-"))
            self.assertEqual((number, question[begin:end]), (str(i + 1), f"Title {i}".encode()))
            self.assertTrue(question.startswith(f"_ is article {i}é.".encode()), question)
            self.assertEqual(question.count(b"\n\nTitle "), 4)
        for i, (question, line) in enumerate(zip(questions, (self.at / "g.tsv").read_text().splitlines())):
            number, labels = line.split("\t")
            paragraphs = question.decode().split("\n\n")
            right = [int(paragraph.startswith(f"Title {i}\n")) for paragraph in paragraphs]
            self.assertEqual((number, labels), (str(i + 1), " ".join(map(str, right))))
        (self.at / "a.txt").write_bytes(text)
        said = self.prepare("--input", "a.txt", "--documents", "marks", "--labels", "l.tsv", "--split", "1.0,0",
                            "--groups", "paragraphs", "--group-labels", "g.tsv")
        self.assertIn("30 documents, 150 groups, labelled", said)

    def test_other_files_are_refused(self):
        (self.at / "t.txt").write_text("no articles\n")
        self.refuses(["t.txt"], "t.txt: has 0 articles")
        self.refuses(["w.txt.xz", "--least", "50", "--cloze", "31", "--labels", "l"], "has 30 articles of 50 bytes")
        self.refuses(["w.txt.xz", "--cloze", "3"], "--cloze needs --labels or --group-labels")
        (self.at / "cut.xz").write_bytes((self.at / "w.txt.xz").read_bytes()[:-40])
        self.refuses(["cut.xz"], "cut.xz: is damaged")


class KernelSources(Scripts):
    script = "kernel_sources.py"

    def put(self):
        with tarfile.open(self.at / "s.tar.xz", "w:xz") as archive:
            for folder in ("fs", "net", "mm"):
                for i in range(20):
                    content = f"/* {folder} {i} */".encode() * 100
                    for name in (f"linux/{folder}/x/{i}.c", f"linux/{folder}/{i}.txt"):
                        entry = tarfile.TarInfo(name)
                        entry.size = len(content)
                        archive.addfile(entry, io.BytesIO(content))

    def test_folders_get_so_many_bytes_of_files(self):
        made = self.run_script("s.tar.xz", "--folders", "fs,net", "--bytes", "9000")
        with tarfile.open(fileobj=io.BytesIO(made)) as archive:
            sizes = {file.name: file.size for file in archive}
        for folder in ("fs", "net"):
            own = [size for name, size in sizes.items() if name.startswith(folder + "/x/") and name.endswith(".c")]
            self.assertTrue(9000 >= sum(own) > 9000 - 1300, own)
        self.assertEqual({name.split("/")[0] for name in sizes}, {"fs", "net"})
        self.assertEqual(made, self.run_script("s.tar.xz", "--folders", "fs,net", "--bytes", "9000"))
        self.assertNotEqual(made, self.run_script("s.tar.xz", "--folders", "fs,net", "--bytes", "9000", "--seed", "2"))
        (self.at / "s.tar").write_bytes(made)
        said = self.prepare("--input", "s.tar", "--documents", "files", "--labels", "folder", "--split", "0.5,0.5,0.0")
        self.assertIn("2 classes: fs, net", said)

    def test_other_files_are_refused(self):
        self.refuses(["s.tar.xz", "--folders", "fs,drivers"], "has no C files of 1 to 500 kB in drivers")
        self.refuses(["s.tar.xz", "--folders", "fs", "--bytes", "100"], "has no C files of 1 to 500 kB in fs")
        (self.at / "cut.xz").write_bytes((self.at / "s.tar.xz").read_bytes()[:-60])
        self.refuses(["cut.xz", "--folders", "fs"], "cut.xz: is no archive of sources that can be read")


if __name__ == "__main__":
    unittest.main()
