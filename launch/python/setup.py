"""Builds the Python package from the source tree: pip install ./launch/python"""
import pathlib
import re

from setuptools import setup

here = pathlib.Path(__file__).resolve().parent
root = here.parent.parent


def version():
    """The version that CMakeLists.txt states."""
    return re.search(r"^project\(longstride VERSION ([0-9.]+)", (root / "CMakeLists.txt").read_text(), re.M)[1]


# What is built goes to the build folder of the source tree, not next to the sources.
scratch = root / "build" / "python"
scratch.mkdir(parents=True, exist_ok=True)
setup(
    version=version(),
    packages=["longstride", "longstride.model"],
    options={"build": {"build_base": str(scratch)}, "egg_info": {"egg_base": str(scratch)}},
)
