"""Builds the Python package from the source tree: pip install ./launch/python

It compiles the library longstride_attention and puts it into the package. Kernels for GPUs, which take most of the time,
are compiled where there is a GPU and a CUDA toolkit; LONGSTRIDE_CUDA=1 compiles them anyway, and LONGSTRIDE_CUDA=0 does
not. LONGSTRIDE_NATIVE=OFF compiles for other processors too. CMAKE_ARGS holds further options for CMake.
LONGSTRIDE_ATTENTION=off leaves the library out, and with it longstride.attention; LONGSTRIDE_ATTENTION=FILE takes one
that is built (launch/scripts/wheel.sh).
"""
import os
import pathlib
import re
import shlex
import shutil
import subprocess

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

here = pathlib.Path(__file__).resolve().parent
root = here.parent.parent
# The build folder of the source tree takes everything that is built, so that nothing lands next to the sources.
scratch = root / "build" / "python"
library = "liblongstride_attention.so.0"


def version():
    """The version that CMakeLists.txt states."""
    return re.search(r"^project\(longstride VERSION ([0-9.]+)", (root / "CMakeLists.txt").read_text(), re.M)[1]


def has_gpu():
    """Whether the driver sees one."""
    try:
        return subprocess.run(["nvidia-smi"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0
    except OSError:
        return False


def for_gpus():
    """Whether to compile kernels for GPUs."""
    asked = os.environ.get("LONGSTRIDE_CUDA", "")
    if asked not in ("", "0", "1"):
        raise SystemExit(f"longstride: LONGSTRIDE_CUDA is {asked}, but must be 1, to compile kernels for GPUs, or 0; leave "
                         "it out to compile them where there is a GPU")
    if asked:
        return asked == "1"
    if has_gpu():
        return True
    if shutil.which("nvcc"):
        print("longstride: there is no GPU here, so kernels for GPUs are left out; LONGSTRIDE_CUDA=1 compiles them")
    return False


class BuildWithLibrary(build_py):
    def run(self):
        editable = getattr(self, "editable_mode", False)
        package = (here if editable else pathlib.Path(self.build_lib)) / "longstride"
        # Files of an earlier build would be installed as well: the library, and modules that are gone.
        if editable:
            (package / library).unlink(missing_ok=True)
        else:
            shutil.rmtree(package, ignore_errors=True)
        super().run()
        asked = os.environ.get("LONGSTRIDE_ATTENTION", "")
        if asked and asked != "off":
            if not pathlib.Path(asked).is_file():
                raise SystemExit(f"longstride: LONGSTRIDE_ATTENTION is {asked}, but must be off or the file of a library; "
                                 "leave it out to compile one")
            shutil.copyfile(asked, package / library)
        elif not asked:
            self.build_library(package / library)

    def build_library(self, path):
        without = "or set LONGSTRIDE_ATTENTION=off, which leaves out longstride.attention"
        cmake = shutil.which("cmake")
        if cmake is None:
            raise SystemExit(f"longstride: there is no cmake; install cmake 3.25 by pip or your system, {without}")
        folder = scratch / "attention"
        # Either way, because CMake remembers what an earlier build was given.
        without_cuda = "OFF" if for_gpus() else "ON"
        options = ["-DLONGSTRIDE_ATTENTION_ONLY=ON", "-DLONGSTRIDE_WERROR=OFF", "-DCMAKE_BUILD_TYPE=Release",
                   f"-DLONGSTRIDE_NATIVE={os.environ.get('LONGSTRIDE_NATIVE', 'ON')}",
                   f"-DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit={without_cuda}"]
        for command in (["-S", root, "-B", folder, *options, *shlex.split(os.environ.get("CMAKE_ARGS", ""))],
                        ["--build", folder, "--parallel", str(os.cpu_count() or 1)]):
            if subprocess.run([cmake, *map(str, command)]).returncode != 0:
                raise SystemExit(f"longstride: cmake cannot build longstride_attention; mend what it says above, {without}")
        shutil.copyfile(folder / library, path)


class NoSourceDistribution(sdist):
    def run(self):
        raise SystemExit("longstride: a source distribution would lack the sources of the library, which are outside "
                         "of launch/python; make a wheel in the source tree: pip wheel --no-deps ./launch/python")


class WithLibrary(Distribution):
    """A package for one kind of machine."""

    def has_ext_modules(self):
        return True


if not (root / "kernels" / "c_api").is_dir():
    raise SystemExit(f"longstride: {here} is not in Longstride's source tree, which the package is built from; run pip "
                     "install ./launch/python in that tree")
try:
    scratch.mkdir(parents=True, exist_ok=True)
except OSError as error:
    raise SystemExit(f"longstride: {scratch}: cannot be made, but is where the package is built: {error.strerror}; "
                     "install from a copy of the source tree that can be written to")
setup(
    version=version(),
    packages=["longstride", "longstride.model"],
    package_data={"longstride.model": ["*.json"]},
    distclass=WithLibrary,
    cmdclass={"build_py": BuildWithLibrary, "sdist": NoSourceDistribution},
    options={"build": {"build_base": str(scratch)}, "egg_info": {"egg_base": str(scratch)}},
)
