#!/usr/bin/env python3
"""The data, runs and comparisons of tests/same_bits.sh.

    same_bits.py inputs FOLDER            writes text, pictures and sound, the same on every machine
    same_bits.py runs ROOT FOLDER         writes a recipe per golden model and prints every run as
                                          NAME|RANKS|THREADS|RECIPE|SAMPLES|SETTINGS, the recipe relative to ROOT
    same_bits.py datasets NAME OLD NEW    compares the checksums in the output of `longstride info`
    same_bits.py compare OLD NEW          compares two runs
"""
import json
import os
import pathlib
import random
import re
import struct
import sys
import wave
import zlib

LITTLE = "train.warmup=1 train.log_every=1 train.evaluate_windows=2"
SHORT, PICTURE = "--count 2 --length 12", "--count 1"  # options of `sample`; pictures are drawn whole


def text(count, seed):
    """Words with a skewed distribution: learnable, so that weights and samples change."""
    draw = random.Random(seed)
    words = ["".join(draw.choices("etaoinshrdlu", k=draw.randint(1, 9))) for _ in range(400)]
    made = bytearray()
    while len(made) < count:
        made += words[min(int(draw.expovariate(0.03)), 399)].encode() + draw.choice([b" ", b" ", b", ", b".\n"])
    return bytes(made[:count])


def npy(path, shape, values):
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (63 - (len(header) + 10) % 64) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + values)


def write_inputs(folder):
    (folder / "cifar").mkdir(parents=True)
    (folder / "sound").mkdir()
    (folder / "text.bin").write_bytes(text(120000, 1))
    (folder / "short.bin").write_bytes(text(20000 + 161 + 221, 2))
    draw = random.Random(3)
    for name in [f"data_batch_{k}.bin" for k in range(1, 6)] + ["test_batch.bin"]:
        picture = bytes((k // 32 * 5 + k % 32 * 3) % 256 for k in range(3072))
        shifts = [draw.randrange(256) for _ in range(10000)]
        tables = [bytes((value + shift) % 256 for value in range(256)) for shift in range(256)]
        (folder / "cifar" / name).write_bytes(b"".join(bytes([k % 10]) + picture.translate(tables[s])
                                                       for k, s in enumerate(shifts)))
    npy(folder / "tiny.npy", (400, 4, 4, 3), draw.randbytes(400 * 48))
    npy(folder / "pictures64.npy", (20, 64, 64, 3), bytes(draw.randrange(64) + k // 192 % 128 for k in range(20 * 12288)))
    for k in range(12):
        with wave.open(str(folder / "sound" / f"{k}.wav"), "wb") as sound:
            sound.setparams((1, 2, 12000, 0, "NONE", ""))
            level, samples = 0, []
            for _ in range(20000):
                level = max(-20000, min(20000, level + draw.randint(-900, 900)))
                samples.append(level)
            sound.writeframes(struct.pack(f"<{len(samples)}h", *samples))


def golden_runs(root, folder):
    """A recipe per golden model. Pictures in a recipe are square, so that model reads 4 x 4 x 3 bytes. A stride is at most
    the context, which is therefore longer for models with a longer stride."""
    sys.path.insert(0, str(root / "tests" / "golden"))
    import cases

    for name, case in {**cases.CASES, **cases.TRAINING, **cases.INITIAL}.items():
        picture = "rows" in case["data"]
        data = {"kind": "images" if picture else "bytes", "path": "old/tiny.h5" if picture else "old/short.h5",
                "context": 48 if picture else max(case["data"]["context"], case["model"]["attention"]["stride"])}
        train = dict(case.get("train", {"steps": 4, "lr": 3e-3, "seed": case.get("seed", 1)}))
        kind = train.pop("optimizer", "adam")
        train.update(global_batch=4, micro_batch=2, seed=min(train["seed"], 9 * 10**15))  # the largest in a recipe
        path = folder / f"{name}.yaml"
        model = {**case["model"], "kind": "sparse_transformer"}  # the name that earlier versions know too
        path.write_text(json.dumps({"name": name, "data": data, "model": model, "train": train,
                                    "optimizer": {"kind": kind}}))
        settings = LITTLE if "train" not in case else "train.log_every=1"
        yield f"golden-{name}", 1, 1, path, PICTURE if picture else SHORT, settings


def toy_settings(path):
    """What makes a recipe train in a second: few layers, a short context, and no window or table longer than it."""
    text = path.read_text()
    base = re.search(r"^base: *(\S+)", text, re.M)
    if base:
        text += (path.parent / base[1]).read_text()
    kind = re.search(r"kind: *(bytes|cifar10|images|audio)", text)[1]
    out = ["model.width=64", "train.steps=3", "train.stages=[]", "train.global_batch=2", "train.micro_batch=0",
           "model.heads=2" if kind == "cifar10" else "model.heads=4", "model.layers=2"]
    distance = "distance:" in text
    if kind in ("bytes", "audio"):
        out.append(f"data.context={64 if distance else 256}")
        if not distance:
            out.append("model.attention.stride=32")
    for pattern, setting in ((r"table: learned", "model.distance.distances=64"),
                             (r"span:", "model.distance.span.longest=64"), (r"dilation: *\[", "model.distance.dilation=2"),
                             (r"memory:", "model.memory.length=64"),
                             (r"feed_forward_ratio: *\d+\.\d\d\d", "model.feed_forward_ratio=4")):
        if re.search(pattern, text):
            out.append(setting)
    parts = re.search(r"parts: *\[(.*?)\]", text)  # a recipe's own before those of its base
    if parts and "fixed_summary" in parts[1]:
        out.append("model.attention.summary=8")
    if distance and re.search(r"window:", text):
        out.append("model.distance.window=32")
    if "compressed:" in text:
        out += ["model.memory.compressed=40", "model.memory.rate=4"]
    return kind, " ".join(out)


def recipe_runs(root):
    """Every recipe but those of quickstart, at toy size."""
    data = {"bytes": "text", "audio": "sound", "cifar10": "cifar10", "images": "pictures64"}
    for path in sorted((root / "recipes").glob("*/*.yaml")):
        if path.parent.name == "quickstart":
            continue
        kind, settings = toy_settings(path)
        sample = SHORT if kind in ("bytes", "audio") else PICTURE
        yield f"{path.parent.name}-{path.stem}", 1, 2, path, sample, f"data.path=old/{data[kind]}.h5 {settings} {LITTLE}"


def runs(root, folder):
    recipes = root / "recipes" / "quickstart"
    data = {"audio": "sound", "pixels": "cifar10"}
    for path in sorted(recipes.glob("*.yaml")):
        where = f"data.path=old/{data.get(path.stem, 'text')}.h5"
        yield path.stem, 1, 2, path, PICTURE if path.stem == "pixels" else SHORT, f"{where} train.steps=4 {LITTLE}"
    small = f"data.path=old/text.h5 train.steps=6 {LITTLE}"
    adam = f"{small} optimizer.kind=adam train.ema=0.9 model.dropout=0.2"
    text_recipe = recipes / "text.yaml"
    yield "text-adam", 1, 2, text_recipe, SHORT, f"{adam} train.checkpoint_every=2 train.keep=0"
    yield "text-two-ranks", 2, 1, text_recipe, SHORT, small
    yield "text-sharded", 2, 1, text_recipe, SHORT, f"{adam} optimizer.shard=true"
    yield "text-divided-sequences", 2, 1, text_recipe, SHORT, f"{adam} parallel.sequence_ranks=2"
    yield "text-micro-batches", 1, 2, text_recipe, SHORT, f"{adam} train.micro_batch=1"
    for recompute in ("block", "attention_and_feed_forward"):
        yield f"text-recompute-{recompute}", 1, 2, text_recipe, SHORT, f"{adam} model.recompute={recompute}"
    yield "text-stages", 1, 2, text_recipe, SHORT, small + " train.stages=[{\"until\":3,\"context\":128}]"
    yield from recipe_runs(root)
    yield from golden_runs(root, folder)


def tensors(path):
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    return {name: (item["dtype"], item["shape"], data[8 + length:][slice(*item["data_offsets"])])
            for name, item in header.items()}


def pixels(path):
    """The header of an 8-bit PNG without interlacing, and the bytes of its rows."""
    data, at, header, packed = path.read_bytes(), 8, b"", b""
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at:at + 8])
        header += data[at + 8:at + 8 + size] if kind == b"IHDR" else b""
        packed += data[at + 8:at + 8 + size] if kind == b"IDAT" else b""
        at += 12 + size
    width, height, depth, colour = struct.unpack(">IIBB", header[:10])
    step = {0: 1, 2: 3, 6: 4}[colour]
    raw, above, rows = zlib.decompress(packed), bytes(width * step), []
    for y in range(height):
        kind, row = raw[y * (width * step + 1)], bytearray(raw[y * (width * step + 1) + 1:][:width * step])
        for x in range(width * step):
            a, b, c = row[x - step] if x >= step else 0, above[x], above[x - step] if x >= step else 0
            nearest = min((a, b, c), key=lambda value: abs(a + b - c - value))
            row[x] = (row[x] + (0, a, b, (a + b) // 2, nearest)[kind]) % 256
        rows.append(bytes(row))
        above = row
    return header, b"".join(rows)


def content(path):
    if path.suffix == ".png":
        return pixels(path)
    if path.suffix == ".wav":
        with wave.open(str(path), "rb") as sound:
            return sound.getparams(), sound.readframes(sound.getnframes())
    return path.read_bytes()


MEASURED = ("seconds", "tokens_per_second", "mfu", "planned_bytes", "used_bytes", "peak_bytes", "time")
DERIVED = ("mean_loss", "tokens")  # from what is compared; earlier versions lack them


def computed(line):
    """A line without measurements and paths, with numbers as written, which preserves every bit."""
    value = json.loads(line, parse_float=str)
    return {key: item for key, item in value.items() if not key.endswith(MEASURED) and key not in ("run", "data", *DERIVED)}


def facts(run):
    """Everything that a run computed, by name."""
    found = {}
    for line in (run / "metrics.jsonl").read_text().splitlines():
        value = computed(line)
        found[f"metrics of step {value['step']} {value.get('split', '')} {sorted(value)}"] = value
    for path in sorted(run.rglob("*.safetensors")):
        for name, tensor in tensors(path).items():
            found[f"{path.relative_to(run)} {name}"] = tensor
    for path in sorted((run / "samples").rglob("*")):
        if path.is_file():
            found[f"sample {path.name}"] = content(path)
    for split in ("valid", "test"):
        found[f"evaluation {split}"] = computed((run / f"{split}.json").read_text())
    return found


def report(name, old, new):
    """Prints one line; returns 1 if anything differs or nothing was compared."""
    wrong = [key for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)]
    if not old:
        wrong = ["nothing to compare"]
    print(f"equal      {name}: {len(old)} values" if not wrong else
          f"DIFFERENT  {name}: {len(wrong)} of {len(old)} values: {'; '.join(wrong[:4])}")
    return 1 if wrong else 0


def checksums(path):
    lines = pathlib.Path(path).read_text().splitlines()
    return {line.split()[0]: line.split("sha256")[1] for line in lines if "sha256" in line and not line.lstrip().startswith("from")}


def compare(old, new):
    ours, theirs = facts(old), facts(new)
    for kind in ("metrics", "checkpoints", "sample", "evaluation"):
        if not any(key.startswith(kind) for key in ours):
            print(f"DIFFERENT  {old.name}: no {kind} to compare")
            return 1
    return report(old.name, ours, theirs)


def main(command, *arguments):
    if command == "inputs":
        write_inputs(pathlib.Path(arguments[0]))
    elif command == "runs":
        root, folder = (pathlib.Path(argument).resolve() for argument in arguments)
        for name, ranks, threads, path, samples, settings in runs(root, folder):
            print(f"{name}|{ranks}|{threads}|{os.path.relpath(path, root)}|{samples}|{settings}")
    elif command == "datasets":
        return report(f"dataset {arguments[0]}", checksums(arguments[1]), checksums(arguments[2]))
    elif command == "compare":
        return compare(*(pathlib.Path(argument) for argument in arguments))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
