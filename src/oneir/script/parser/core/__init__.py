"""What tools that read scripts import: a program's text with its place, the classes of syntax nodes, a parser.

source = diagnostics.Source(function)
source.as_ast().body[0].name
entry.parse("@T.prim_func\\ndef f(): ...")
"""

from . import diagnostics, dispatch, doc, doc_core, entry, evaluator, parser, utils
