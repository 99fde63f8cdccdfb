ex = relax.vm.build(MyModule, target="llvm")
type(ex)
