#!/usr/bin/env python3
"""Takes C files of some folders of a source archive, as a tar archive, for `longstride prepare bytes`.

    kernel_sources.py linux-source-6.1.tar.xz [--folders arch,drivers,..] [--bytes 3000000] [--seed 1] > sources.tar
    longstride prepare bytes --input sources.tar --documents files --labels folder --split 0.8,0.1,0.1 \\
        --output data/sources.h5

Debian's linux-source-6.1 has the archive in /usr/src. Files of 1 to 500 kB are taken in an order drawn by --seed, until a
folder has --bytes.
"""
import hashlib
import heapq
import io
import lzma
import sys
import tarfile
import zlib

import packaged_data as data


class Folder:
    """The first files by their numbers, at most so many bytes."""

    def __init__(self, most):
        self.most, self.bytes, self.files = most, 0, []

    def wants(self, number, size):
        return self.bytes + size <= self.most or (bool(self.files) and -self.files[0][0] > number)

    def add(self, number, name, content):
        heapq.heappush(self.files, (-number, name, content))
        self.bytes += len(content)
        while self.bytes > self.most:
            self.bytes -= len(heapq.heappop(self.files)[2])


def main():
    parser = data.parser_of(__doc__)
    parser.add_argument("archive")
    parser.add_argument("--folders", default="arch,crypto,drivers,fs,kernel,net,sound,tools")
    parser.add_argument("--bytes", type=int, default=3_000_000)
    parser.add_argument("--seed", type=int, default=1)
    o = parser.parse_args()
    folders = {name: Folder(o.bytes) for name in o.folders.split(",")}
    try:
        with data.opened(o.archive) as packed, tarfile.open(fileobj=packed, mode="r|") as archive:
            for file in archive:
                path = file.name.removeprefix("./").split("/")
                if not file.isfile() or len(path) < 3 or path[1] not in folders or path[-1][-2:] not in (".c", ".h"):
                    continue
                number = int.from_bytes(hashlib.sha256(f"{o.seed} {file.name}".encode()).digest()[:8], "big")
                if 1000 <= file.size <= 500_000 and folders[path[1]].wants(number, file.size):
                    folders[path[1]].add(number, "/".join(path[1:]), archive.extractfile(file).read())
    except (OSError, EOFError, tarfile.TarError, lzma.LZMAError, zlib.error) as error:
        data.refuse(f"{o.archive}: is no archive of sources that can be read ({error}); copy or download it again")
    lacking = [name for name, folder in folders.items() if not folder.files]
    if lacking:
        data.refuse(f"{o.archive}: has no C files of 1 to 500 kB in {', '.join(lacking)}; name other --folders")
    with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as out:
        # In the order of their numbers, so that parts of the archive are alike.
        for _, name, content in sorted((file for folder in folders.values() for file in folder.files), reverse=True):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            out.addfile(entry, io.BytesIO(content))
    for name, folder in folders.items():
        data.say(f"{name}: {len(folder.files):,} files of {folder.bytes:,} bytes")


if __name__ == "__main__":
    main()
