mod = mod_from_torch
print(mod.get_global_vars())
