model = MyModel()
fx_module = fx.symbolic_trace(model)
fx_module.graph.print_tabular()
'''
opcode name target args kwargs
------------- ------ ------------------------------------------------------------- ----------- --------
placeholder x x () {}
get_attr weight weight () {}
call_function matmul <built-in method matmul of type object at 0x00007FFC426359D0> (x, weight) {}
call_function relu <built-in method relu of type object at 0x00007FFC426359D0> (matmul,) {}
output output output (relu,) {}
'''
