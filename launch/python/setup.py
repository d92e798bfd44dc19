"""Builds the Python package from the source tree: pip install ./launch/python

It compiles the library longstride_attention, with kernels for GPUs if there is a CUDA toolkit, and puts it into the
package. CMAKE_ARGS holds further options for CMake. LONGSTRIDE_ATTENTION=off leaves the library out, and with it
longstride.attention.
"""
import os
import pathlib
import re
import shlex
import shutil
import subprocess

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

here = pathlib.Path(__file__).resolve().parent
root = here.parent.parent
# What is built goes to the build folder of the source tree, not next to the sources.
scratch = root / "build" / "python"
library = "liblongstride_attention.so.0"


def version():
    """The version that CMakeLists.txt states."""
    return re.search(r"^project\(longstride VERSION ([0-9.]+)", (root / "CMakeLists.txt").read_text(), re.M)[1]


class BuildWithLibrary(build_py):
    def run(self):
        super().run()
        if os.environ.get("LONGSTRIDE_ATTENTION") == "off":
            return
        without = "or set LONGSTRIDE_ATTENTION=off, which leaves out longstride.attention"
        cmake = shutil.which("cmake")
        if cmake is None:
            raise SystemExit(f"longstride: there is no cmake; install cmake 3.25 by pip or your system, {without}")
        folder = scratch / "attention"
        options = ["-DLONGSTRIDE_ATTENTION_ONLY=ON", "-DLONGSTRIDE_WERROR=OFF", "-DCMAKE_BUILD_TYPE=Release"]
        for command in (["-S", root, "-B", folder, *options, *shlex.split(os.environ.get("CMAKE_ARGS", ""))],
                        ["--build", folder, "--parallel", str(os.cpu_count() or 1)]):
            if subprocess.run([cmake, *map(str, command)]).returncode != 0:
                raise SystemExit(f"longstride: cmake cannot build longstride_attention; mend what it says above, {without}")
        package = here if getattr(self, "editable_mode", False) else pathlib.Path(self.build_lib)
        shutil.copyfile(folder / library, package / "longstride" / library)


class WithLibrary(Distribution):
    """A package for one kind of machine."""

    def has_ext_modules(self):
        return True


scratch.mkdir(parents=True, exist_ok=True)
setup(
    version=version(),
    packages=["longstride", "longstride.model"],
    distclass=WithLibrary,
    cmdclass={"build_py": BuildWithLibrary},
    options={"build": {"build_base": str(scratch)}, "egg_info": {"egg_base": str(scratch)}},
)
