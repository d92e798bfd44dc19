"""What setup.py of the package asks CMake for. A CMake that only notes its options stands in for the real one."""
import contextlib
import io
import os
import pathlib
import tempfile
import unittest
from unittest import mock

from support import ROOT, need

need("setuptools")


def definitions():
    """All that setup.py defines, without a build."""
    path = ROOT / "launch" / "python" / "setup.py"
    text, begins, _ = path.read_text().partition("\nsetup(\n")
    assert begins, path
    made = {"__file__": str(path), "__name__": "setup"}
    exec(compile(text, path, "exec"), made)
    return made


class Package(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.program("cmake", 'echo "$@" >"${0%/*}/options"; exit 1')
        self.program("nvcc", "exit 0")
        self.build = definitions()["BuildWithLibrary"].build_library

    def program(self, name, text):
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def options(self, **environment):
        """The options, and what is printed."""
        (self.folder / "options").write_text("")
        said = io.StringIO()
        kept = {name: value for name, value in os.environ.items() if name not in ("LONGSTRIDE_CUDA", "CMAKE_ARGS")}
        with mock.patch.dict(os.environ, {**kept, "PATH": str(self.folder), **environment}, clear=True):
            with contextlib.redirect_stdout(said), self.assertRaises(SystemExit) as ended:
                self.build(None, self.folder / "library")
        return (self.folder / "options").read_text().split(), said.getvalue() + str(ended.exception)

    def test_kernels_for_gpus_are_compiled_where_there_is_a_gpu_or_if_asked(self):
        disabled = "-DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit="
        for smi, asked, off in ((9, {}, "ON"), (9, {"LONGSTRIDE_CUDA": "1"}, "OFF"), (0, {}, "OFF"),
                                (0, {"LONGSTRIDE_CUDA": "0"}, "ON")):
            with self.subTest(nvidia_smi=smi, **asked):
                self.program("nvidia-smi", f"exit {smi}")
                options, said = self.options(**asked)
                self.assertIn(disabled + off, options, said)
                self.assertEqual("LONGSTRIDE_CUDA=1 compiles them" in said, smi == 9 and not asked, said)
        # Options of the user follow, so that they win.
        options, _ = self.options(LONGSTRIDE_CUDA="0", CMAKE_ARGS=disabled + "OFF")
        self.assertGreater(options.index(disabled + "OFF"), options.index(disabled + "ON"))
        options, said = self.options(LONGSTRIDE_CUDA="yes")
        self.assertEqual(options, [])
        self.assertIn("LONGSTRIDE_CUDA is yes, but must be 1", said)


if __name__ == "__main__":
    unittest.main()
