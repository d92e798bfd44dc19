#!/usr/bin/env python3
"""Times, trains and checks other implementations of what Longstride does, its peers, on one frame.

    run.py time PEER [options]        a training step: ms, joules, bytes          run.py time PEER --help
    run.py train PEER FILE [options]  training for some seconds, then a score
    run.py check PEER [options]       losses and gradients next to tests/golden, on a CPU
    run.py steps [options]            steps of Longstride and of peers in turn, and their ratios
    run.py runs TABLE [options]       trainings of some minutes, side by side: published rows, or text with memories
    run.py parity [options]           the same weights and batches for 200 steps, and the loss of every step
    run.py op [options]               longstride.attention next to FlashAttention 4, cuDNN and FlexAttention
    run.py evaluate RUN [options]     what `longstride eval RUN` prints, from the files alone

PEER: sparse, transformer_xl, compressive, adaptive_span, longformer, scan; to time, also encoder (Longformer and BigBird of
Hugging Face); to check, also transfo_xl (Hugging Face's), relative (the kernels in Triton; without a GPU with
TRITON_INTERPRET=1), etc and global_rows (cases of op in small, on a CPU).
"""
import importlib
import pathlib
import sys

PEERS = ["sparse", "transformer_xl", "compressive", "adaptive_span", "longformer", "scan", "transfo_xl", "encoder"]
COMMANDS = ["steps", "runs", "parity", "op", "evaluate"]


def main(verb="", *arguments):
    if verb in COMMANDS:
        return importlib.import_module(verb).main(list(arguments))
    if verb in ("", "--help", "-h"):
        print(__doc__.strip())
        return 0 if verb else 2
    if verb not in ("time", "train", "check"):
        sys.exit(f"run.py: there is no command '{verb}'; see run.py --help")
    if verb == "check" and arguments in (("relative",), ("etc",), ("global_rows",)):
        return importlib.import_module(f"attention.{arguments[0]}").check()
    if not arguments or arguments[0] not in PEERS:
        sys.exit(f"run.py {verb}: needs a peer, one of {', '.join(PEERS)}")
    from frame import command

    system = importlib.import_module(f"systems.{arguments[0]}").SYSTEM
    return command.main(verb, system, list(arguments[1:]))


if __name__ == "__main__":
    sys.path[0] = str(pathlib.Path(__file__).resolve().parent)
    try:
        sys.exit(main(*sys.argv[1:]))
    except ModuleNotFoundError as absent:
        sys.exit(f"run.py: needs the Python package '{absent.name}'; install it, or give this script a Python that has it")
