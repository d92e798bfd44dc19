"""launch/scripts/kmer_baseline.py on small datasets, next to average precision by its definition."""
import random
import re
import subprocess
import sys
import unittest

from support import ROOT, command, need, temporary_folder

need("numpy", "h5py")

import h5py  # noqa: E402
import numpy  # noqa: E402

SCRIPT = ROOT / "launch/scripts/kmer_baseline.py"


def definition(scores, targets):
    """The mean, over the right ones, of how many of those with at least their score are right."""
    return numpy.mean([targets[scores >= s].mean() for s in scores[targets > 0]])


class KmerBaseline(unittest.TestCase):
    def setUp(self):
        folder = temporary_folder()
        self.at = folder.__enter__()
        self.addCleanup(folder.__exit__, None, None, None)
        drawn = random.Random(1)
        # Labels: p, has AAA; q, has many C. Classes: of p alone.
        records, several, classes = [], [], []
        for i in range(500):
            text = "".join(drawn.choice("ACCCG" if i % 2 else "ACGGT") for _ in range(60)).replace("AAA", "AGA")
            text = text[:40] + "AAA" * (i % 3 == 0) + text[40:]
            records.append(f">r{i}\n{text}\n")
            several.append(f"r{i}\t{','.join(['p'] * (i % 3 == 0) + ['q'] * (i % 2))}\n")
            classes.append(f"r{i}\t{'p' if i % 3 == 0 else 'none'}\n")
        (self.at / "r.fa").write_text("".join(records))
        for name, rows in (("several", several), ("classes", classes)):
            (self.at / f"{name}.tsv").write_text("".join(rows))
            command("prepare", "bytes", "--input", self.at / "r.fa", "--documents", "fasta", "--labels",
                    self.at / f"{name}.tsv", "--split", "0.7,0.1,0.2", "--output", self.at / f"{name}.h5", folder=self.at)

    def run_script(self, *arguments):
        return subprocess.run([sys.executable, SCRIPT, *map(str, arguments)], capture_output=True, text=True)

    def figures(self, *arguments):
        done = self.run_script(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [float(number) for number in re.findall(r"\d\.\d{4}", done.stdout)]

    def test_it_learns_what_words_tell(self):
        for name in ("several", "classes"):
            words, letters = (self.figures(self.at / f"{name}.h5", "--passes", 200, "--k", k) for k in (3, 1))
            self.assertGreater(words[0], 0.95, name)
            self.assertGreater(min(words[1:]), 0.95, name)
            self.assertLess(letters[2], words[2], name)

    def test_losses_of_a_model_give_its_average_precision(self):
        with h5py.File(self.at / "several.h5") as file:
            ends, labels = file["test_boundaries"][:], file["test_labels"][:]
        windows = -(-numpy.diff(ends) // 50)  # of 50: two for each document
        right = numpy.random.default_rng(1).uniform(0.05, 0.95, (windows.sum(), 2)).astype(numpy.float32)
        numpy.save(self.at / "losses.npy", -numpy.log(right))
        of = numpy.repeat(numpy.arange(len(windows)), windows)
        scores = numpy.where(labels[of] > 0, right, 1 - right)
        scores = numpy.stack([scores[of == i].mean(0) for i in range(len(windows))])
        found = self.figures(self.at / "several.h5", "--losses", self.at / "losses.npy", "--context", 50)
        expected = [definition(scores.ravel(), labels.ravel()),
                    numpy.mean([definition(scores[:, i], labels[:, i]) for i in range(2)])]
        self.assertAlmostEqual(found[1], expected[0], 3)
        self.assertAlmostEqual(found[2], expected[1], 3)

    def test_other_files_are_refused(self):
        numpy.save(self.at / "losses.npy", numpy.zeros((3, 2)))
        for arguments, error in (((self.at / "none.h5",), "is no dataset of labelled documents"),
                                 ((self.at / "r.fa",), "is no dataset of labelled documents"),
                                 ((self.at / "several.h5", "--losses", self.at / "losses.npy"), "has (3, 2) losses"),
                                 ((self.at / "several.h5", "--k", 9), "there may be 100,000 words")):
            done = self.run_script(*arguments)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertTrue(done.stderr.startswith("longstride: ") and error in done.stderr, done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)


if __name__ == "__main__":
    unittest.main()
