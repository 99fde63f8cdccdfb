mod = relax.get_pipeline("zero")(mod)
mod.show()
