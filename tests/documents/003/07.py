# 通过全局变量名索引
print(mod["main"])
# 通过 GlobalVar 索引，并验证它们是相同的函数
(gv,) = mod.get_global_vars()
assert mod[gv] == mod["main"]
