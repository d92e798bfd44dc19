#!/usr/bin/env python3
"""Follows RUN/metrics.jsonl of a running or finished run and logs its figures to Weights & Biases or MLflow.

    follow_metrics.py RUN --to wandb|mlflow [--project NAME] [--name NAME] [--once] [--interval SECONDS]

It logs the file from its beginning, then what is added, until it is interrupted; with --once it ends at the end of the
file. Figures have the names that they have in TensorBoard (train/loss, valid/bits_per_byte). The
configuration is the recipe, key by key (train.lr), and environment.json is kept with it. A resumed run takes some steps again: those that are logged already are left out. Where the figures go
is set as usual for the service: WANDB_MODE=offline, MLFLOW_TRACKING_URI.
"""
import argparse
import datetime
import importlib
import json
import math
import os
import pathlib
import signal
import stat
import sys
import time

LONGEST_LINE = 1 << 20  # bytes


def refuse(message):
    print(f"longstride: {message}", file=sys.stderr)
    sys.exit(2)


class Wandb:
    def __init__(self, module, project, name, recipe, environment):
        self.run = module.init(project=project, name=name, config=environment | recipe)

    def log(self, step, figures):
        self.run.log(figures, step=step)

    def finish(self):
        self.run.finish()


class Mlflow:
    longest = 5000  # characters of a tag or of a parameter
    most = 100  # parameters in a call

    def __init__(self, module, project, name, recipe, environment):
        self.mlflow = module
        module.set_experiment(project)
        module.start_run(run_name=name)
        parameters = [(key, str(value)[:self.longest]) for key, value in recipe.items()]
        for begin in range(0, len(parameters), self.most):
            module.log_params(dict(parameters[begin:begin + self.most]))
        module.set_tags({key: str(value)[:self.longest] for key, value in environment.items()})

    def log(self, step, figures):
        self.mlflow.log_metrics(figures, step=step)

    def finish(self):
        self.mlflow.end_run()


SERVICES = {"wandb": Wandb, "mlflow": Mlflow}


def opened(path):
    """A file of the run. The run may be somebody else's: a link in it may lead to any file, and a pipe never end."""
    mode = os.lstat(path).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # opening a folder says that it is one
        refuse(f"{path}: is a link, which is not followed; put the file itself there" if stat.S_ISLNK(mode) else
               f"{path}: is not a regular file; give the directory of a run")
    return path.open("rb")


class Lines:
    """The whole lines of a file that grows, or is replaced by a shorter one when a run resumes."""

    def __init__(self, path):
        self.path, self.offset, self.end = path, 0, b""  # end: the last bytes before the offset

    def new(self):
        """Bytes of the lines since the last call, one by one; all of them if the file is another one."""
        try:
            with opened(self.path) as file:
                file.seek(self.offset - len(self.end))
                if file.read(len(self.end)) != self.end:
                    self.offset, self.end = 0, b""
                while True:
                    file.seek(self.offset)
                    content = file.read(LONGEST_LINE)
                    whole = content[:content.rfind(b"\n") + 1]
                    if not whole and len(content) == LONGEST_LINE:
                        refuse(f"{self.path}: has a line of more than {LONGEST_LINE} bytes, which is no line of metrics")
                    if not whole:
                        return
                    self.offset += len(whole)
                    self.end = (self.end + whole)[-4096:]
                    yield from whole.splitlines()
        except FileNotFoundError:
            return
        except OSError as error:
            refuse(f"{self.path}: cannot be read: {error.strerror}")


def figure(value):
    try:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # a whole number that no float holds
        return False


def figures_of(line):
    """(step, kind, figures by name) of a line; None for one that is not the program's."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict) or type(entry.get("step")) is not int or entry["step"] >= 2**63:
        return None
    kind = entry["split"] if isinstance(entry.get("split"), str) else "train" if "lr" in entry else "memory"
    figures = {f"{kind}/{key}": value for key, value in entry.items() if key not in ("step", "time") and figure(value)}
    if isinstance(entry.get("auxiliary"), dict):
        figures |= {f"{kind}/auxiliary/{key}": value for key, value in entry["auxiliary"].items() if figure(value)}
    try:
        figures["time"] = datetime.datetime.fromisoformat(entry["time"].replace("Z", "+00:00")).timestamp()
    except (KeyError, AttributeError, ValueError):
        pass
    return entry["step"], kind, figures


class Follower:
    def __init__(self, path, service):
        self.lines, self.service = Lines(path), service
        self.step, self.kinds = -1, set()  # the last step logged, and what was logged of it

    def follow(self):
        """Logs what is new."""
        for line in self.lines.new():
            found = figures_of(line)
            if found is None:
                continue
            step, kind, figures = found
            if not figures or step < self.step or (step == self.step and kind in self.kinds):
                continue
            if step > self.step:
                self.step, self.kinds = step, set()
            self.kinds.add(kind)
            self.service.log(step, figures)


def value_of(text):
    """A value of a recipe: a number or a truth value as such, everything else as text."""
    try:
        value = json.loads(text)
        return text if isinstance(value, (list, dict)) else value
    except (ValueError, RecursionError):
        return text


def newest_record(run, stem, ending):
    """RUN/recipe.yaml, or recipe-2.yaml and so on, which later starts of the run have written."""
    numbers = [path.name[len(stem) + 1:-len(ending)] for path in run.glob(f"{stem}-*{ending}")]
    newest = max((int(number) for number in numbers if number.isdecimal() and len(number) < 9), default=1)
    return run / (f"{stem}-{newest}{ending}" if newest > 1 else f"{stem}{ending}")


def recipe_of(run):
    """The recipe as the run keeps it, every key on a line of its own and sections indented: values by dotted key."""
    try:
        with opened(newest_record(run, "recipe", ".yaml")) as file:
            lines = file.read(LONGEST_LINE).decode().splitlines()
    except (OSError, ValueError):
        return {}
    recipe, sections = {}, []
    for line in lines:
        key, colon, value = line.strip().partition(":")
        if not colon or key.startswith("#"):
            continue
        sections = sections[:(len(line) - len(line.lstrip())) // 2]
        if value.strip():
            recipe[".".join([*sections, key])] = value_of(value.strip())
        else:
            sections.append(key)
    return recipe


def environment_of(run):
    try:
        with opened(newest_record(run, "environment", ".json")) as file:
            environment = json.loads(file.read(LONGEST_LINE).decode())
    except (OSError, ValueError, RecursionError):
        return {}
    return environment if isinstance(environment, dict) else {}


class Options(argparse.ArgumentParser):
    def error(self, message):
        refuse(f"{message}; see {self.prog} --help")


def positive(text):
    value = float(text)
    if not 0 < value <= 86400:
        raise argparse.ArgumentTypeError(f"{text} is not from above 0 to 86400 seconds")
    return value


def options_of(arguments):
    parser = Options(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=pathlib.Path, help="run directory")
    parser.add_argument("--to", choices=SERVICES, required=True, help="service to log to")
    parser.add_argument("--project", default="longstride", help="project, or experiment of MLflow")
    parser.add_argument("--name", help="name of the run there; default: that of the directory")
    parser.add_argument("--once", action="store_true", help="end at the end of the file")
    parser.add_argument("--interval", type=positive, default=10, metavar="SECONDS", help="between looks; default: 10")
    return parser.parse_args(arguments)


def main():
    options = options_of(sys.argv[1:])
    path = options.run / "metrics.jsonl"
    if not options.run.is_dir():
        refuse(f"{options.run}: is not a directory; give the directory of a run")
    if path.is_dir():
        refuse(f"{path}: is a folder, not a file of metrics; give the directory of a run")
    if options.once and not path.is_file():
        refuse(f"{options.run}: holds no metrics.jsonl; give the directory of a run that has trained")
    try:
        module = importlib.import_module(options.to)
    except ModuleNotFoundError as error:
        if error.name != options.to:
            raise
        refuse(f"the Python package {options.to} is not installed; run: pip install {options.to}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    name = options.name or options.run.resolve().name
    service = SERVICES[options.to](module, options.project, name, recipe_of(options.run), environment_of(options.run))
    follower = Follower(path, service)
    try:
        follower.follow()
        while not options.once:
            time.sleep(options.interval)
            follower.follow()
    except KeyboardInterrupt:
        pass
    finally:
        service.finish()


if __name__ == "__main__":
    main()
