"""What compiled programs need while they run: tensors, devices, packed functions, loaded programs, worker threads.

Nothing here knows of the compiler.
"""
