"""Time evaluators: how long a function takes.

time_evaluator(lib["gemm"], number=100)(a, b, c).mean
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from .device import Device
from .driver import Driver, driver_of, find_driver
from .error import InvalidValue
from .registry import get_global_func


class BenchmarkResult:
    """Times of repeated measurements, in seconds."""

    def __init__(self, results: Sequence[float]):
        self.results = tuple(results)
        self.mean = statistics.fmean(self.results)
        self.median = statistics.median(self.results)
        self.min, self.max = min(self.results), max(self.results)
        self.std = statistics.pstdev(self.results)

    def __repr__(self) -> str:
        return (
            f"BenchmarkResult(min={self.min}, mean={self.mean}, median={self.median}, max={self.max}, std={self.std})"
        )

    def __str__(self) -> str:
        names = ("mean", "median", "max", "min", "std")
        header = "".join(f"{name + ' (ms)':^14}" for name in names)
        values = "".join(f"{getattr(self, name) * 1e3:^14.4f}" for name in names)
        return f"Execution time summary:\n{header}\n{values}"


class Clock:
    """Measures what is done on the CPU, or waited for at the end."""

    @contextlib.contextmanager
    def measured(self) -> Iterator[Callable[[], float]]:
        """Around what is measured; afterwards, the function that it gives returns the seconds that it took."""
        start = time.perf_counter()
        yield lambda: end - start
        self.wait()
        end = time.perf_counter()

    def wait(self) -> None:
        """Until what was begun is done."""


class DeviceClock(Clock):
    """Measures what is done on a device, by its events; by the processor's clock on a device that has none."""

    def __init__(self, driver: Driver, device_id: int) -> None:
        self.driver, self.device_id = driver, device_id

    def wait(self) -> None:
        self.driver.sync(self.device_id)

    @contextlib.contextmanager
    def measured(self) -> Iterator[Callable[[], float]]:
        driver, number = self.driver, self.device_id
        if not driver.has_events:
            with super().measured() as seconds:
                yield seconds
            return
        self.wait()
        begin = driver.record_event(number)
        try:
            yield lambda: elapsed
            end = driver.record_event(number)
            try:
                elapsed = driver.elapsed(number, begin, end)
            finally:
                driver.free_event(number, end)
        finally:
            driver.free_event(number, begin)


def clock_of(device: Device | None) -> Clock:
    """What measures times on a device; None is the CPU. Raises `DeviceError` where the device is not there."""
    if device is None or find_driver(device.device_type) is None:
        return Clock()
    return DeviceClock(driver_of(device.device_type, device.device_id, str(device)), device.device_id)


def time_evaluator(
    function: Callable[..., object],
    number: int = 10,
    repeat: int = 1,
    min_repeat_ms: int = 0,
    limit_zero_time_iterations: int = 100,
    cooldown_interval_ms: int = 0,
    repeats_to_cooldown: int = 1,
    cache_flush_bytes: int = 0,
    f_preproc: str = "",
    device: Device | None = None,
) -> Callable[..., BenchmarkResult]:
    """A function that calls another and returns `repeat` means of `number` calls each, in seconds.

    The calls' work on `device` counts, by the device's own events where it has such; None is the CPU.

    With `min_repeat_ms`, `number` grows until one measurement takes that long, unless it takes no measurable time for
    `limit_zero_time_iterations` times. One call before is not counted. After every `repeats_to_cooldown` measurements
    comes a rest of `cooldown_interval_ms`; before each, `cache_flush_bytes` of other memory are written, which puts
    the arguments out of the caches. The function registered as `f_preproc` is called with the arguments before each.
    """
    if min(number, repeat, repeats_to_cooldown) < 1:
        raise InvalidValue(
            "number, repeat and repeats_to_cooldown must be at least 1, "
            f"found {number}, {repeat} and {repeats_to_cooldown}"
        )
    prepare = get_global_func(f_preproc) if f_preproc else None

    clock = clock_of(device)

    def measure(count: int, args: tuple[object, ...]) -> float:
        with clock.measured() as seconds:
            for _ in range(count):
                function(*args)
        return seconds()

    def evaluate(*args: object) -> BenchmarkResult:
        function(*args)
        count, zeros, results = number, 0, []
        while min_repeat_ms and zeros < limit_zero_time_iterations:
            seconds = measure(count, args)
            if seconds * 1e3 >= min_repeat_ms:
                break
            zeros += seconds == 0
            count = max(count * 2, int(count * min_repeat_ms / max(seconds * 1e3, 1e-3)) + 1)
        for index in range(repeat):
            if cache_flush_bytes:
                np.zeros(cache_flush_bytes, "uint8").fill(1)
            if prepare is not None:
                prepare(*args)
            results.append(measure(count, args) / count)
            if cooldown_interval_ms and (index + 1) % repeats_to_cooldown == 0:
                time.sleep(cooldown_interval_ms * 1e-3)
        return BenchmarkResult(results)

    return evaluate
