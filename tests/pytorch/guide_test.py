"""The program of docs/guide/from_pytorch_and_c.md runs, and its last line holds."""
import pathlib

import support  # noqa: F401: skips where PyTorch is missing

page = pathlib.Path(__file__).resolve().parents[2] / "docs/guide/from_pytorch_and_c.md"
_, after = page.read_text().split("<!-- attention.py -->\n")
code = []
for line in after.splitlines():
    if line and not line.startswith("    "):
        break
    code.append(line[4:])
assert len(code) > 15, "the page shows no program"
exec(compile("\n".join(code), str(page), "exec"), {"__name__": "page"})
