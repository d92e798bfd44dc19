#!/usr/bin/env python3
"""Compiles the kernels of two versions for a GPU and compares their machine code: what a move or a rename must not change.

  tests/same_machine_code.py OLD NEW [--arch sm_90a] [--only TEXT] [--jobs 2]

OLD, NEW: each a commit, or a folder such as `.` for the working tree. --only: the .cu files whose path contains TEXT.
Two kernels are the same when their instructions, registers, stack, shared memory, constants, and parameters' sizes are.
They are paired by name, those that are left by content: a renamed kernel is the same. Lists the other kernels, and exits
with 1 when one changed or is new (which one is that changed and was renamed). Needs nvcc, CMake and Ninja, but no GPU. build/same-machine-code keeps the builds.
"""
import argparse
import collections
import concurrent.futures
import hashlib
import json
import pathlib
import shlex
import struct
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORK = ROOT / "build" / "same-machine-code"
NO_BITS = 8  # the ELF type of a section that has a size but no bytes
FRAME, MIN_STACK, MAX_STACK, REGISTERS = 0x11, 0x12, 0x23, 0x2F  # attributes of .nv.info: a symbol and a number

Kernel = collections.namedtuple("Kernel", "name file instructions registers content")


def source_of(version):
    if (pathlib.Path(version) / "CMakeLists.txt").exists():
        source = pathlib.Path(version).resolve()
        return source, WORK / str(source).strip("/").replace("/", "-")
    found = subprocess.run(["git", "-C", ROOT, "rev-parse", "--verify", "--quiet", f"{version}^{{commit}}"],
                           capture_output=True, text=True)
    if found.returncode != 0:
        sys.exit(f"same_machine_code.py: {version} is neither a commit nor a folder with a CMakeLists.txt")
    folder = WORK / found.stdout.strip()
    if not (folder / "source").exists():
        unpacked = folder / "source.new"
        unpacked.mkdir(parents=True, exist_ok=True)
        archive = subprocess.run(["git", "-C", ROOT, "archive", found.stdout.strip()], capture_output=True, check=True)
        subprocess.run(["tar", "x", "-C", unpacked], input=archive.stdout, check=True)
        unpacked.rename(folder / "source")
    return folder / "source", folder


def cubin_command(command, arch, cubin):
    """The build's own command, for one architecture and without what differs by path."""
    words = shlex.split(command)
    kept, skip = [], False
    for word in words:
        if not skip and word not in ("-c", "-o", "-lineinfo") and not word.startswith("--generate-code"):
            kept.append(word)
        skip = not skip and word == "-o"
    return kept + ["-cubin", f"-arch={arch}", "-o", str(cubin)]


def compile_all(version, arch, only, jobs):
    source, folder = source_of(version)
    subprocess.run(["cmake", "-S", source, "-B", folder / "build", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                    "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", "-DLONGSTRIDE_TESTS=OFF"], check=True, stdout=subprocess.DEVNULL)
    commands = {}
    for entry in json.loads((folder / "build" / "compile_commands.json").read_text()):
        path = pathlib.Path(entry["file"])
        if path.suffix == ".cu" and only in str(path.relative_to(source)):
            commands[path.relative_to(source)] = entry

    def compile_one(item):
        path, entry = item
        cubin = folder / arch / path.with_suffix(".cubin")
        if source.parent == folder and cubin.exists():  # a commit does not change
            return cubin
        cubin.parent.mkdir(parents=True, exist_ok=True)
        if subprocess.run(cubin_command(entry["command"], arch, cubin), cwd=entry["directory"]).returncode != 0:
            raise SystemExit(f"same_machine_code.py: {path} of {version} does not compile")
        return cubin

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        return [kernel for cubin in pool.map(compile_one, sorted(commands.items())) for kernel in kernels_of(cubin)]


def text_at(table, at):
    return table[at:table.index(b"\0", at)].decode()


def attributes(info):
    at = 0
    while at + 4 <= len(info):
        form, attribute, size = struct.unpack_from("<BBH", info, at)
        long = form == 4  # otherwise the value is in the place of the size
        yield attribute, info[at + 4:at + 4 + size] if long else info[at + 2:at + 4]
        at += 4 + (size if long else 0)


def kernels_of(cubin):
    """Every .text.<kernel> section of an ELF file, with the sections of constants and of shared memory of its name."""
    elf = cubin.read_bytes()
    table, = struct.unpack_from("<Q", elf, 0x28)
    entry, count, names_index = struct.unpack_from("<HHH", elf, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", elf, table + i * entry) for i in range(count)]
    bodies = [b"" if h[1] == NO_BITS else elf[h[4]:h[4] + h[5]] for h in headers]
    names = [text_at(bodies[names_index], h[0]) for h in headers]
    section = {name: i for i, name in enumerate(names)}
    symtab = section[".symtab"]
    strings = bodies[headers[symtab][6]]
    symbols = [text_at(strings, name) for name, *_ in struct.iter_unpack("<IBBHQQ", bodies[symtab])]
    numbers = collections.defaultdict(dict)
    for attribute, value in attributes(bodies[section[".nv.info"]]) if ".nv.info" in section else ():
        if attribute in (FRAME, MIN_STACK, MAX_STACK, REGISTERS):
            symbol, number = struct.unpack("<II", value)
            numbers[symbols[symbol]][attribute] = number
    for name, header, code in zip(names, headers, bodies):
        if not name.startswith(".text."):
            continue
        kernel = name[len(".text."):]
        digest = hashlib.sha256(code)
        digest.update(str((sorted(numbers[kernel].items()), header[7] >> 24, header[8])).encode())
        for other, i in section.items():  # .nv.constant0.KERNEL, .nv.shared.KERNEL: their sizes count, and their bytes
            if other.endswith("." + kernel) and other.startswith((".nv.constant", ".nv.shared")):
                digest.update(f"{other[:-len(kernel)]} {headers[i][5]}".encode() + bodies[i])
        yield Kernel(kernel, cubin.stem, len(code) // 16, numbers[kernel].get(REGISTERS, 0), digest.hexdigest())


def demangled(kernels):
    shown = subprocess.run(["c++filt"], input="\n".join(k.name for k in kernels), capture_output=True, text=True, check=True)
    return [k._replace(name=name) for k, name in zip(kernels, shown.stdout.split("\n"))]


def pair(old, new, key):
    """Takes equal keys out of both lists."""
    waiting, pairs, left = collections.defaultdict(list), [], []
    for kernel in new:
        waiting[key(kernel)].append(kernel)
    for kernel in old:
        if waiting[key(kernel)]:
            pairs.append((kernel, waiting[key(kernel)].pop(0)))
        else:
            left.append(kernel)
    return pairs, left, [kernel for kernels in waiting.values() for kernel in kernels]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=2)
    o = parser.parse_args()
    old, new = (demangled(compile_all(version, o.arch, o.only, o.jobs)) for version in (o.old, o.new))
    if not old or not new:
        sys.exit("same_machine_code.py: a version has no kernel to compare")
    total = len(old), len(new)
    named, old, new = pair(old, new, lambda k: (k.file, k.name))
    same = [p for p in named if p[0].content == p[1].content]
    changed = [p for p in named if p[0].content != p[1].content]
    renamed, old, new = pair(old, new, lambda k: k.content)
    for a, b in changed:
        print(f"changed: {a.file}: {a.name}: {a.instructions} instructions, {a.registers} registers; "
              f"now {b.instructions}, {b.registers}")
    for title, kernels in (("gone", old), ("new", new)):
        for k in kernels:
            print(f"{title}: {k.file}: {k.name}: {k.instructions} instructions, {k.registers} registers")
    print(f"{total[0]} kernels, now {total[1]}: {len(same)} same, {len(renamed)} same under another name, "
          f"{len(changed)} changed, {len(old)} gone, {len(new)} new")
    sys.exit(bool(changed or new))


main()
