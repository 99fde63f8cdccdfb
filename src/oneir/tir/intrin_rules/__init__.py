"""Lowering of mathematical calls to arithmetic that code generation can emit; one family of functions a file.

On the target kind "llvm", a float32 function, scalar or of any number of lanes, is a polynomial with an error of at
most 4 ulp for every argument, denormals, infinities and NaN included. float16 and bfloat16 are computed in float32.
float64 calls the C library, lane by lane.

    lower = Op.get("tir.exp").get_attr("llvm.FLowerIntrinsic")
    lower(exp(x))  # Let-bound temporaries around fused multiply-adds
"""

from . import exponential, floats, inverse_trigonometric, logarithm, power, quantized, trigonometric

__all__ = ["exponential", "floats", "inverse_trigonometric", "logarithm", "power", "quantized", "trigonometric"]
