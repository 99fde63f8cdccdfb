"""The runtime of `relax.frontend.nn.KVCache`: elements that are appended one call after the other, and viewed as one
tensor."""

from __future__ import annotations

from collections.abc import Sequence

from ..error import InvalidValue, ShapeMismatch, TypeMismatch
from ..object import Object
from ..registry import register_func
from ..tensor import Tensor, empty


class KVCache(Object):
    """A tensor of shape (capacity, ...), of whose rows the first `filled` are in use.

    `position` is where a window goes on.
    """

    def __init__(self, data: Tensor, filled: int):
        self.data, self.filled, self.position = data, filled, filled

    def _expect_rows(self, value: Tensor) -> None:
        unit = self.data.shape[1:]
        if value.shape[1:] != unit or value.dtype != self.data.dtype:
            raise ShapeMismatch(
                f"the cache has elements of shape {unit} and dtype {self.data.dtype}, found a tensor of shape "
                f"{value.shape} and dtype {value.dtype}"
            )

    def _reserve(self, count: int) -> None:
        """Makes room for `count` rows; the capacity at least doubles when it is used up."""
        if count > self.data.shape[0]:
            unit = self.data.shape[1:]
            larger = empty((max(count, 2 * self.data.shape[0]), *unit), self.data.dtype, self.data.device)
            self._part(larger, 0, self.filled).copyfrom(self.view())
            self.data = larger

    def append(self, value: Tensor) -> None:
        """Appends rows."""
        self._expect_rows(value)
        count = self.filled + value.shape[0]
        self._reserve(count)
        self._part(self.data, self.filled, count).copyfrom(value)
        if self.position == self.filled:
            self.position = count
        self.filled = count

    def update(self, value: Tensor) -> None:
        """Replaces the rows in use, by as many."""
        self._expect_rows(value)
        if value.shape[0] != self.filled:
            raise ShapeMismatch(f"the cache holds {self.filled} elements, found {value.shape[0]} to replace them")
        self.view().copyfrom(value)

    def override(self, value: Tensor, size: int, sinks: int) -> None:
        """Appends rows to a window of `size` rows: behind the last one, it goes on after the first `sinks`."""
        self._expect_rows(value)
        count = value.shape[0]
        if count > size - sinks:
            raise ShapeMismatch(f"a window of {size} elements, {sinks} of which stay, cannot take {count} at once")
        self._reserve(min(self.filled + count, size))
        here = min(count, size - self.position)
        self._part(self.data, self.position, self.position + here).copyfrom(self._part(value, 0, here))
        self.filled, self.position = min(self.filled + count, size), self.position + here
        if here < count:
            self._part(self.data, sinks, sinks + count - here).copyfrom(self._part(value, here, count))
            self.position = sinks + count - here

    def pop(self, count: int) -> None:
        """Drops the last rows."""
        if not 0 <= count <= self.filled:
            raise InvalidValue(f"cannot drop {count} of {self.filled} elements")
        self.filled -= count

    def clear(self) -> None:
        """Drops all rows."""
        self.filled = self.position = 0

    def view(self) -> Tensor:
        """The rows in use, as a view of the cache's memory."""
        return self._part(self.data, 0, self.filled)

    @staticmethod
    def _part(data: Tensor, begin: int, end: int) -> Tensor:
        element = data.nbytes // data.shape[0] if data.shape[0] else 0
        return data._create_view((end - begin, *data.shape[1:]), relative_byte_offset=begin * element)


def _checked(cache: object) -> KVCache:
    if not isinstance(cache, KVCache):
        raise TypeMismatch(f"expected a cache that vm.builtin.attention_kv_cache_create made, found {cache!r}")
    return cache


@register_func("vm.builtin.attention_kv_cache_create")
def create(init_data: Tensor, reserve_shape: tuple[int, ...], init_fill_count: int) -> KVCache:
    """A cache of the capacity of `reserve_shape`, with the first rows of `init_data` (-1: all)."""
    count = init_data.shape[0] if init_fill_count < 0 else init_fill_count
    cache = KVCache(empty(tuple(reserve_shape), init_data.dtype, init_data.device), 0)
    if count:
        cache.append(KVCache(init_data, count).view())
    return cache


@register_func("vm.builtin.attention_kv_cache_append")
def append(cache: object, value: Tensor) -> KVCache:
    """Appends rows to a cache."""
    checked = _checked(cache)
    checked.append(value)
    return checked


@register_func("vm.builtin.attention_kv_cache_view")
def view(cache: object, shape: tuple[int, ...] | None = None) -> Tensor:
    """The rows in use. Raises `ShapeMismatch` if their shape is not `shape`."""
    checked = _checked(cache)
    if shape is not None and tuple(shape) != (checked.filled, *checked.data.shape[1:]):
        raise ShapeMismatch(
            f"a view of shape {tuple(shape)} is asked of a cache that holds {checked.filled} elements of shape "
            f"{checked.data.shape[1:]}"
        )
    return checked.view()


@register_func("vm.builtin.attention_kv_cache_update")
def update(cache: object, value: Tensor) -> KVCache:
    """Replaces the rows in use, by as many."""
    checked = _checked(cache)
    checked.update(value)
    return checked


@register_func("vm.builtin.attention_kv_cache_window_override")
def window_override(cache: object, value: Tensor, max_cache_size: int) -> KVCache:
    """Appends rows to a window: where it is full, they take the places of the oldest."""
    return window_override_with_sinks(cache, value, max_cache_size, 0)


@register_func("vm.builtin.attention_kv_cache_window_override_with_sinks")
def window_override_with_sinks(cache: object, value: Tensor, max_cache_size: int, num_attention_sinks: int) -> KVCache:
    """Appends rows to a window of which the first ones stay: where it is full, they take the places of the oldest."""
    checked = _checked(cache)
    checked.override(value, max_cache_size, num_attention_sinks)
    return checked


@register_func("vm.builtin.attention_kv_cache_array_popn")
def array_popn(caches: Sequence[object], count: int) -> None:
    """Drops the last rows of several caches."""
    for cache in caches:
        _checked(cache).pop(count)


@register_func("vm.builtin.attention_kv_cache_array_clear")
def array_clear(caches: Sequence[object]) -> None:
    """Drops all rows of several caches."""
    for cache in caches:
        _checked(cache).clear()
