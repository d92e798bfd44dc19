"""Shared by the scripts here that turn packaged data into what `longstride prepare bytes` reads."""
import argparse
import gzip
import lzma
import os
import random
import sys
import zlib


def refuse(message):
    print(f"longstride: {message}", file=sys.stderr)
    sys.exit(2)


def parser_of(script):
    return argparse.ArgumentParser(description=script, formatter_class=argparse.RawDescriptionHelpFormatter)


def opened(path):
    """The bytes of a file that may be packed by gzip or xz."""
    try:
        with open(path, "rb") as file:
            head = file.read(6)
        return gzip.open(path) if head[:2] == b"\x1f\x8b" else lzma.open(path) if head == b"\xfd7zXZ\0" else open(path, "rb")
    except OSError as error:
        refuse(f"{path}: {error.strerror}; name a file that is there")


def lines_of(path):
    """Numbers, from 1, and lines without their ends."""
    try:
        with opened(path) as file:
            for number, line in enumerate(file, 1):
                yield number, line.rstrip(b"\r\n").decode("utf-8", "replace")
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        refuse(f"{path}: is damaged ({error}); copy or download it again")


def fasta_of(path):
    """Letters by name."""
    found, name = {}, None
    for number, line in lines_of(path):
        if line.startswith(">"):
            name = line[1:].split(None, 1)[0] if line[1:].strip() else ""
            if name in found:
                refuse(f"{path}:{number}: is the second record named '{name}'; rename one")
            found[name] = []
        elif name is None and line.strip():
            refuse(f"{path}:{number}: has letters before the first line '>name'; give a FASTA file")
        elif line.strip():
            found[name].append(line.strip().upper())
    if not found:
        refuse(f"{path}: has no line '>name'; give a FASTA file")
    return {name: "".join(lines) for name, lines in found.items()}


def shuffled(items, seed):
    items = list(items)
    random.Random(seed).shuffle(items)
    return items


def write_table(path, rows):
    """Labels, for `--labels`: a name and its labels by line."""
    try:
        with open(path + ".tmp", "w", encoding="utf-8") as file:
            file.writelines(f"{name}\t{labels}\n" for name, labels in rows)
        os.replace(path + ".tmp", path)
    except OSError as error:
        refuse(f"{path}: {error.strerror}; give --labels a file that can be written")


def say(text):
    print(text, file=sys.stderr)
