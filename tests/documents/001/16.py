IPython.display.Code(MyModule.script(), language="python")
