"""The programs of docs/guide/from_pytorch_and_c.md run, and what they assert holds."""
import pathlib
import sys
import types

import support  # skips where PyTorch is missing

page = pathlib.Path(__file__).resolve().parents[2] / "docs/guide/from_pytorch_and_c.md"
names = ["attention", "distance_attention", "scan"]
# Before, FlexAttention has another interface.
if tuple(int(part) for part in support.torch.__version__.split(".")[:2]) >= (2, 10):
    names.append("bounds")
try:
    from transformers import AttentionMaskInterface  # noqa: F401
    names.append("llama")
except ImportError:
    pass
for name in names:
    _, after = page.read_text().split(f"<!-- {name}.py -->\n")
    code = []
    for line in after.splitlines():
        if line and not line.startswith("    "):
            break
        code.append(line[4:])
    assert len(code) > 8, f"the page shows no program {name}"
    module = sys.modules[name] = types.ModuleType(name)  # where the compiler of PyTorch looks for what it has
    exec(compile("\n".join(code), str(page), "exec"), module.__dict__)
