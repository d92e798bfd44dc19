"""The one way to time: rounds in turn, between events on a GPU and by the clock elsewhere, with the card's joules."""
import ctypes
import gc
import statistics
import time

import torch


def captured(step, warm_up, times=3):
    """A function that replays `step` as one CUDA graph. warm_up() runs before, on the stream that captures."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(times):
            warm_up()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def synchronize():
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def peak_gib():
    return torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_available() else 0.0


def release():
    """Frees what nothing refers to any more, for the next model."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


class Energy:
    """The counter of the first visible card, in joules; it moves every few hundredths of a second."""

    def __init__(self):
        self.card = None
        if not torch.cuda.is_available():
            return
        try:
            self.nvml, card = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p()
            uuid = f"GPU-{torch.cuda.get_device_properties(0).uuid}".encode()
            if self.nvml.nvmlInit_v2() == 0 and self.nvml.nvmlDeviceGetHandleByUUID(uuid, ctypes.byref(card)) == 0:
                self.card = card
        except (OSError, AttributeError):
            pass  # no driver's library, or a PyTorch that does not tell which card it uses

    def read(self):
        millijoules = ctypes.c_ulonglong()
        if self.card is None or self.nvml.nvmlDeviceGetTotalEnergyConsumption(self.card, ctypes.byref(millijoules)) != 0:
            return None
        return millijoules.value / 1e3


def wall(run):
    """Milliseconds of the host, from an idle GPU until it has called all."""
    synchronize()
    begin = time.perf_counter()
    run()
    return 1e3 * (time.perf_counter() - begin)


def milliseconds(run, calls, ahead=False):
    """Those of each call. `ahead`: the GPU begins when the host has called all of them, or it would wait for a slow host."""
    if not torch.cuda.is_available():
        at = [time.perf_counter()]
        for _ in range(calls):
            run()
            at.append(time.perf_counter())
        return [1e3 * (after - before) for before, after in zip(at, at[1:])]
    events = [torch.cuda.Event(enable_timing=True) for _ in range(calls + 1)]
    torch.cuda.synchronize()
    if ahead:
        torch.cuda._sleep(100_000_000)  # clocks, about 50 ms
    events[0].record()
    for event in events[1:]:
        run()
        event.record()
    torch.cuda.synchronize()
    return [before.elapsed_time(after) for before, after in zip(events, events[1:])]


def in_turn(runs, calls, rounds=1, warm=3, ahead=False):
    """{name: figures} of `runs`, {name: function}. In every round each is called `calls` times, so that a machine whose
    speed changes changes it for all. Figures are the median and the fastest call, processor time and joules of a call."""
    energy, times = Energy(), {name: [] for name in runs}
    cpu, joules = dict.fromkeys(runs, 0.0), dict.fromkeys(runs, 0.0)
    for run in runs.values():
        milliseconds(run, warm)
    for _ in range(rounds):
        for name, run in runs.items():
            before = time.process_time(), energy.read()
            times[name] += milliseconds(run, calls, ahead)
            cpu[name] += time.process_time() - before[0]
            joules[name] = None if before[1] is None else joules[name] + energy.read() - before[1]
    made = calls * rounds
    return {name: {"ms": statistics.median(times[name]), "fastest_ms": min(times[name]), "cpu_ms": 1e3 * cpu[name] / made,
                   "joules": None if joules[name] is None else joules[name] / made} for name in runs}


def timed(run, calls, warm=3):
    return in_turn({"": run}, calls, warm=warm)[""]
