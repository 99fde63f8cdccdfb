print(mod.get_global_vars())
