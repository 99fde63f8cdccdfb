"""Programs from PyTorch: `torch.export`'s exported programs, and modules traced by `torch.fx`.

from oneir.relax.frontend.torch import from_exported_program

exported = torch.export.export(model.eval(), (torch.randn(1, 784),))
mod = from_exported_program(exported, keep_params_as_input=True)
mod, params = relax.frontend.detach_params(mod)

`torch.compile(model, backend="oneir")` compiles what TorchDynamo finds (`dynamo.py`).

PyTorch is imported only by what converts, when it does.
"""

from .dynamo import dynamo_capture_subgraphs, relax_dynamo
from .exported_program_translator import from_exported_program
from .fx_translator import from_fx
