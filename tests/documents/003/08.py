mod = mod_from_torch
mod = relax.transform.LegalizeOps()(mod)
mod.show()
