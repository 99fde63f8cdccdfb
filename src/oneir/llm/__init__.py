"""Language models: read from files, compiled, and served to many users at once.

from oneir.llm import LLM
LLM("folder").generate("Once upon a time", max_tokens=64).text
"""

from .llm import LLM, Answer
