"""Files of language models: weights (safetensors, GGUF), configurations, tokenizers and chat templates.

All of it may come from anywhere: a file is checked before it is believed, and nothing in it is executed but a chat
template, which runs in a process that can neither open a file nor go on for long.
"""
