def te_relu(A: te.Tensor) -> te.Tensor:  # * used to unpack list
    return te.compute(A.shape, lambda *i: te.max(A(*i), 0), name="relu")
