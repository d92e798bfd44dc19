"""What the PyTorch peers share to run a training step: its CUDA graph, and its time and memory."""
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


def median_ms(step, steps, warm=3):
    """Of `steps` steps, after `warm` that do not count."""
    times = []
    for _ in range(steps + warm):
        synchronize()
        begin = time.perf_counter()
        step()
        synchronize()
        times.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(times[warm:])


def peak_gib():
    return torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_available() else 0.0


def release():
    """What nothing refers to any more, for the next model."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
