bb = relax.BlockBuilder()
with bb.function("main"):
    with bb.dataflow():
        # Each intermediate result is a relax.Var`
        # corresponding to a variable that stores the result of the computation.
        # DataflowVar indicates that the var is an intermediate step inside a dataflow block (computational graph).
        C = bb.emit_te(te_matmul, A, B) # tvm.relax.expr.DataflowVar
        D = bb.emit_te(te_relu, C)
        R = bb.emit_output(D) # marks that D is a variable that can be referred to outside of the dataflow block.
    bb.emit_func_output(R, params=[A, B]) # We can only call `emit_func_output` once in each function scope.

MyModule = bb.get()
MyModule.show()
