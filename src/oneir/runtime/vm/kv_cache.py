"""The runtime of `relax.frontend.nn.KVCache`: elements that are appended one call after the other, and viewed as one
tensor."""

from __future__ import annotations

from ..error import ShapeMismatch, TypeMismatch
from ..object import Object
from ..registry import register_func
from ..tensor import Tensor, empty


class KVCache(Object):
    """A tensor of shape (capacity, ...), of whose rows the first `filled` are in use."""

    def __init__(self, data: Tensor, filled: int):
        self.data, self.filled = data, filled

    def append(self, value: Tensor) -> None:
        """Appends rows; the capacity doubles when it is used up."""
        unit = self.data.shape[1:]
        if value.shape[1:] != unit or value.dtype != self.data.dtype:
            raise ShapeMismatch(
                f"the cache has elements of shape {unit} and dtype {self.data.dtype}, found a tensor of shape "
                f"{value.shape} and dtype {value.dtype}"
            )
        count = self.filled + value.shape[0]
        if count > self.data.shape[0]:
            larger = empty((max(count, 2 * self.data.shape[0]), *unit), self.data.dtype, self.data.device)
            self._part(larger, 0, self.filled).copyfrom(self.view())
            self.data = larger
        self._part(self.data, self.filled, count).copyfrom(value)
        self.filled = count

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
def view(cache: object, shape: tuple[int, ...]) -> Tensor:
    """The rows in use. Raises `ShapeMismatch` if their shape is not `shape`."""
    checked = _checked(cache)
    if tuple(shape) != (checked.filled, *checked.data.shape[1:]):
        raise ShapeMismatch(
            f"a view of shape {tuple(shape)} is asked of a cache that holds {checked.filled} elements of shape "
            f"{checked.data.shape[1:]}"
        )
    return checked.view()
