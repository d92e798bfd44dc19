#!/usr/bin/env python3
"""launch/scripts/proteins.py on a small database, and what `longstride prepare` makes of its text.

    proteins.py SCRIPT LONGSTRIDE
"""
import pathlib
import subprocess
import sys
import tempfile
import unittest

LONGSTRIDE = pathlib.Path(sys.argv.pop()).resolve()
SCRIPT = pathlib.Path(sys.argv.pop()).resolve()
LETTERS = "-ABCDEFGHIKLMNPQRSTVWXYZU*OJ"
PROTEINS = ["MKV" + letter * (3 + i) for i, letter in enumerate(LETTERS[1:] * 4)]


def database(proteins):
    return b"\0" + b"".join(bytes(LETTERS.index(letter) for letter in protein) + b"\0" for protein in proteins)


class Proteins(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.at = pathlib.Path(self.folder.name)
        (self.at / "a.psq").write_bytes(database(PROTEINS[:70]))
        (self.at / "b.psq").write_bytes(database(PROTEINS[50:]))

    def run_script(self, *arguments, fails=False):
        done = subprocess.run([sys.executable, SCRIPT, *arguments], cwd=self.at, capture_output=True)
        self.assertEqual(done.returncode, 2 if fails else 0, done.stderr)
        return done.stderr.decode() if fails else done.stdout

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
        subprocess.run([LONGSTRIDE, "prepare", "bytes", "--input", "proteins.txt", "--documents", "lines", "--split",
                        "0.9,0.05,0.05", "--output", "p.h5"], cwd=self.at, check=True, capture_output=True)
        said = subprocess.run([LONGSTRIDE, "info", "p.h5"], cwd=self.at, check=True, capture_output=True).stdout.decode()
        self.assertIn("documents end with lines", said)

    def test_other_files_are_refused(self):
        (self.at / "text.psq").write_bytes(b"MKV\nMKL\n")
        (self.at / "cut.psq").write_bytes(database(PROTEINS)[:-1])
        for name, error in (("text.psq", "is no .psq file"), ("cut.psq", "is no .psq file"), ("none.psq", "No such file")):
            said = self.run_script(name, fails=True)
            self.assertTrue(said.startswith(f"longstride: {name}") and error in said and said.count("\n") == 1, said)


if __name__ == "__main__":
    unittest.main()
