"""launch/scripts/table_text.py on Parquet and Arrow files, and what `longstride prepare` makes of its lines."""
import json
import subprocess
import sys
import unittest

from support import ROOT, command, need, temporary_folder

need("pyarrow")

import pyarrow  # noqa: E402
from pyarrow import ipc, parquet  # noqa: E402

TEXTS = ["one\ntwo", "\u00e4 \"quoted\"", "", "last"]


class Tables(unittest.TestCase):
    def setUp(self):
        context = temporary_folder()
        self.at = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        table = pyarrow.table({"id": range(len(TEXTS)), "text": TEXTS})
        parquet.write_table(table, self.at / "a.parquet", row_group_size=3)
        for name, new in (("a.arrow", ipc.new_file), ("stream.arrow", ipc.new_stream)):
            with new(str(self.at / name), table.schema) as writer:
                writer.write_table(table, 3)

    def run_script(self, *arguments, fails=False):
        done = subprocess.run([sys.executable, ROOT / "launch/scripts/table_text.py", *arguments], cwd=self.at,
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 2 if fails else 0, done.stderr)
        return done.stderr if fails else done.stdout

    def test_every_format_gives_every_text(self):
        for name in ("a.parquet", "a.arrow", "stream.arrow"):
            self.assertEqual([json.loads(line)["text"] for line in self.run_script("text", name).splitlines()], TEXTS)

    def test_the_command_takes_its_lines(self):
        (self.at / "lines").write_text(self.run_script("text", "a.parquet", "a.arrow"))
        command("prepare", "bytes", "--field", "text", "--input", "lines", "--documents", "lines", "--split",
                "1.0,0.0,0.0", "--output", "x.h5", folder=self.at)
        self.assertIn("documents end with lines", command("info", "x.h5", folder=self.at).decode())

    def test_what_is_no_table_or_has_no_such_column_is_refused(self):
        (self.at / "text").write_text("no table\n")
        (self.at / "cut").write_bytes((self.at / "a.parquet").read_bytes()[:200])
        for column, name, error in (("body", "a.arrow", "has no column 'body'; choose from id, text"), ("text", "text", ""),
                                    ("text", "cut", ""), ("text", "none", "No such file")):
            said = self.run_script(column, name, fails=True)
            self.assertTrue(said.startswith(f"longstride: {name}: ") and error in said, said)


if __name__ == "__main__":
    unittest.main()
