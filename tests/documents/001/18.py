vm = relax.VirtualMachine(ex, tvm.cpu())
