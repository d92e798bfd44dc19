#!/usr/bin/env python3
"""Writes tests/golden/pictures: small pictures as other programs write them, such as wide.jpg, and what Pillow makes
of them at 16 x 16 pixels, wide.jpg.crop.png and wide.jpg.pad.png.

    python3 tests/golden/pictures.py            write all
    python3 tests/golden/pictures.py --check    only compare the expected pictures with the committed ones

Needs NumPy and Pillow 9.1 to 12: Pillow 13 scales the columns of some pictures before their rows, which rounds
differently. Pictures with alpha are put on white. --check decodes the committed pictures, so it does not depend on the
encoders of Pillow's version.
"""
import argparse
import pathlib
import sys

import numpy
from PIL import Image, ImageOps

FOLDER = pathlib.Path(__file__).parent / "pictures"
SIDE = 16


def pixels(width, height, channels, seed):
    """Waves, an edge and noise, over the whole range."""
    y, x = numpy.mgrid[0:height, 0:width]
    rng = numpy.random.default_rng(seed)
    planes = []
    for channel in range(channels):
        wave = 128 + 90 * numpy.sin((x * (channel + 1) + 2 * y) * 0.21 + channel)
        wave += 70 * ((x + y * (channel + 1)) % 23 < 9) + rng.normal(0, 12, (height, width))
        planes.append(numpy.clip(wave, 0, 255).astype(numpy.uint8))
    return numpy.stack(planes, -1)


def picture(width, height, mode, seed):
    stacked = pixels(width, height, len(mode), seed)
    return Image.fromarray(stacked[..., 0] if len(mode) == 1 else stacked)


def write_inputs():
    turned = Image.Exif()
    turned[0x0112] = 6
    picture(45, 71, "RGB", 1).save(FOLDER / "turned.jpg", quality=88, subsampling=2, progressive=True, exif=turned)
    picture(90, 33, "RGB", 2).save(FOLDER / "wide.jpg", quality=70, subsampling=1)
    picture(30, 30, "L", 3).save(FOLDER / "grey.jpg", quality=90)
    picture(39, 70, "RGB", 4).save(FOLDER / "tall.webp", quality=80)
    picture(50, 41, "RGBA", 5).save(FOLDER / "clear.webp", lossless=True)
    picture(7, 9, "RGB", 6).save(FOLDER / "small.png")
    picture(61, 40, "RGBA", 7).save(FOLDER / "clear.png")
    palette = picture(24, 37, "RGB", 8).quantize(12)
    palette.save(FOLDER / "palette.png", transparency=3)


def expected(path):
    image = ImageOps.exif_transpose(Image.open(path))
    if image.mode == "P":
        image = image.convert("RGBA")
    if image.mode == "RGBA":
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    image = image if image.mode == "L" else image.convert("RGB")
    fit = {"crop": ImageOps.fit, "pad": ImageOps.pad}
    return {name: f(image, (SIDE, SIDE), method=Image.Resampling.BICUBIC).convert("RGB") for name, f in fit.items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    FOLDER.mkdir(exist_ok=True)
    if not check:
        write_inputs()
    differences = 0
    for path in sorted(FOLDER.iterdir()):
        if path.name.count(".") != 1:
            continue
        for fit, image in expected(path).items():
            result = path.with_name(f"{path.name}.{fit}.png")
            if not check:
                image.save(result)
            elif not numpy.array_equal(numpy.asarray(image), numpy.asarray(Image.open(result))):
                print(f"{result} differs")
                differences += 1
    sys.exit(1 if differences else 0)


if __name__ == "__main__":
    main()
