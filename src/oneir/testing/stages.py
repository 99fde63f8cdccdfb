"""VerifyStages: checks, while a module is compiled, that each stage leaves what it promises."""

from __future__ import annotations

from ..driver.specs import SPECS, violations
from ..ir.instrument import PassInstrument
from ..ir.module import IRModule
from ..ir.transform import PassInfo
from ..runtime.error import WellFormedError


class VerifyStages(PassInstrument):
    """Raises `WellFormedError` after a stage of a compilation whose module has what its specification rules out.

        with PassContext(instruments=[VerifyStages()]):
            relax.build(mod, "llvm")

    `seen` lists the stages that were checked. The kernels are checked when the first pass over them begins.
    """

    def __init__(self) -> None:
        self.seen: list[str] = []

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        if info.name == "exact":
            self._check("kernels", mod)

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        if info.name in SPECS:
            self._check(info.name, mod)

    def _check(self, stage: str, mod: IRModule) -> None:
        self.seen.append(stage)
        wrong = violations(stage, mod)
        if wrong:
            raise WellFormedError(
                f"after the stage `{stage}` the module has {len(wrong)} faults: {'; '.join(wrong[:5])}"
            )
