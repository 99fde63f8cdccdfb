"""SPIR-V: from its assembly, which host code keeps as the text of a program, to the words that drivers of Vulkan take.

    words = assemble("OpCapability Shader\\n ... %sum = OpIAdd %uint %a %b ...")

The syntax is that of the published assembler; instructions and names are those that `codegen/spirv/` writes.
"""

from __future__ import annotations

import re
import struct

from .error import InternalError

_MAGIC, _VERSION = 0x07230203, 0x00010500
"""The first word of every module, and the version: 1.5, which Vulkan 1.2 takes."""

_OPCODES = {
    **{"OpName": 5, "OpExtension": 10, "OpExtInstImport": 11, "OpExtInst": 12, "OpMemoryModel": 14},
    **{"OpEntryPoint": 15, "OpExecutionMode": 16, "OpCapability": 17},
    **{"OpTypeVoid": 19, "OpTypeBool": 20, "OpTypeInt": 21, "OpTypeFloat": 22, "OpTypeVector": 23, "OpTypeArray": 28},
    **{"OpTypeRuntimeArray": 29, "OpTypeStruct": 30, "OpTypePointer": 32, "OpTypeFunction": 33},
    **{"OpConstantTrue": 41, "OpConstantFalse": 42, "OpConstant": 43, "OpFunction": 54, "OpFunctionParameter": 55},
    **{"OpFunctionEnd": 56, "OpFunctionCall": 57, "OpVariable": 59, "OpLoad": 61, "OpStore": 62, "OpAccessChain": 65},
    **{"OpDecorate": 71, "OpMemberDecorate": 72, "OpCompositeExtract": 81},
    **{"OpConvertFToU": 109, "OpConvertFToS": 110, "OpConvertSToF": 111, "OpConvertUToF": 112, "OpUConvert": 113},
    **{"OpSConvert": 114, "OpFConvert": 115, "OpBitcast": 124, "OpFNegate": 127, "OpIAdd": 128, "OpFAdd": 129},
    **{"OpISub": 130, "OpFSub": 131, "OpIMul": 132, "OpFMul": 133, "OpUDiv": 134, "OpSDiv": 135, "OpFDiv": 136},
    **{"OpUMod": 137, "OpIsNan": 156, "OpIsInf": 157, "OpLogicalEqual": 164, "OpLogicalNotEqual": 165},
    **{"OpLogicalOr": 166, "OpLogicalAnd": 167, "OpLogicalNot": 168, "OpSelect": 169, "OpIEqual": 170},
    **{"OpINotEqual": 171, "OpUGreaterThan": 172, "OpSGreaterThan": 173, "OpUGreaterThanEqual": 174},
    **{"OpSGreaterThanEqual": 175, "OpULessThan": 176, "OpSLessThan": 177, "OpULessThanEqual": 178},
    **{"OpSLessThanEqual": 179, "OpFOrdEqual": 180, "OpFUnordNotEqual": 183, "OpFOrdLessThan": 184},
    **{"OpFOrdGreaterThan": 186, "OpFOrdLessThanEqual": 188, "OpFOrdGreaterThanEqual": 190},
    **{"OpShiftRightLogical": 194, "OpShiftRightArithmetic": 195, "OpShiftLeftLogical": 196, "OpBitwiseOr": 197},
    **{"OpBitwiseXor": 198, "OpBitwiseAnd": 199, "OpNot": 200, "OpBitFieldSExtract": 202, "OpBitFieldUExtract": 203},
    **{"OpBitCount": 205, "OpControlBarrier": 224, "OpPhi": 245, "OpLoopMerge": 246, "OpSelectionMerge": 247},
    **{"OpLabel": 248, "OpBranch": 249, "OpBranchConditional": 250, "OpReturn": 253, "OpReturnValue": 254},
    **{"OpUnreachable": 255},
}
_NAMES = {
    # capabilities
    **{"Shader": 1, "Float64": 10, "Int64": 11, "Int16": 22, "Int8": 39},
    **{"StorageBuffer16BitAccess": 4433, "StorageBuffer8BitAccess": 4448},
    **{"SignedZeroInfNanPreserve": 4466, "PhysicalStorageBufferAddresses": 5347},
    # addressing and memory models, and the execution model
    **{"PhysicalStorageBuffer64": 5348, "GLSL450": 1, "GLCompute": 5},
    # storage classes, and what loads and stores say
    **{"Input": 1, "Workgroup": 4, "Function": 7, "PushConstant": 9, "PhysicalStorageBuffer": 5349, "Aligned": 2},
    # decorations, and what is built in
    **{"Block": 2, "ArrayStride": 6, "BuiltIn": 11, "Offset": 35, "NoContraction": 42},
    **{"WorkgroupId": 26, "LocalInvocationId": 27},
    # control of functions, selections and loops
    **{"None": 0, "Unroll": 1},
    # instructions of GLSL.std.450
    **{"RoundEven": 2, "Trunc": 3, "FAbs": 4, "Floor": 8, "Ceil": 9, "Sqrt": 31, "Fma": 50, "FindUMsb": 75},
}
_MODES = {"LocalSize": 17, "SignedZeroInfNanPreserve": 4461}
"""Execution modes, of which one has the name of a capability."""
_WITHOUT_TYPE = ("OpExtInstImport", "OpLabel")
_WIDE = {"0x1p+1024": 0x7FF0000000000000, "-0x1p+1024": 0xFFF0000000000000, "0x1.8p+1024": 0x7FF8000000000000}
_SINGLE = {"0x1p+128": 0x7F800000, "-0x1p+128": 0xFF800000, "0x1.8p+128": 0x7FC00000}
"""Infinities and NaN, as the assembler has them, and their bits."""
_TOKEN = re.compile(r'"[^"]*"|[^\s"]+')


def assemble(text: str) -> bytes:
    """The module of a program in assembly, in this machine's order of bytes; ids are numbered as they come."""
    ids: dict[str, int] = {}
    types: dict[str, tuple[str, int]] = {}
    """The instruction that declares a type of numbers, and its bits, by id."""
    words: list[int] = []
    for line in text.splitlines():
        tokens = _TOKEN.findall(line.partition(";")[0])
        if not tokens:
            continue
        result = tokens[0] if tokens[1:2] == ["="] else None
        name, *operands = tokens[2:] if result else tokens
        if result is not None:
            place = 0 if name in _WITHOUT_TYPE or name.startswith("OpType") else 1
            operands.insert(place, result)
            if name in ("OpTypeInt", "OpTypeFloat"):
                types[result] = (name, int(operands[1]))
        encoded: list[int] = []
        for operand in operands:
            if operand.startswith("%"):
                encoded.append(ids.setdefault(operand, len(ids) + 1))
            elif name == "OpConstant":
                encoded += _number(operand, *types[operands[0]])
            elif name == "OpExecutionMode" and operand in _MODES:
                encoded.append(_MODES[operand])
            else:
                encoded += _literal(operand)
        opcode = _OPCODES.get(name)
        if opcode is None:
            raise InternalError(f"SPIR-V: the assembler knows no {name}: {line.strip()}")
        words += [(len(encoded) + 1) << 16 | opcode, *encoded]
    header = [_MAGIC, _VERSION, 0, len(ids) + 1, 0]
    return struct.pack(f"={len(header) + len(words)}I", *header, *words)


def _literal(text: str) -> list[int]:
    """The words of a string, a name or an integer."""
    if text.startswith('"'):
        data = text[1:-1].encode() + b"\0"
        return list(struct.unpack(f"<{-(-len(data) // 4)}I", data.ljust(-(-len(data) // 4) * 4, b"\0")))
    if text.isdigit():
        return [int(text)]
    if text not in _NAMES:
        raise InternalError(f"SPIR-V: the assembler knows no {text!r}")
    return [_NAMES[text]]


def _number(text: str, kind: str, bits: int) -> list[int]:
    """The words of a constant, the low one first."""
    if kind == "OpTypeInt":
        value = int(text)
    elif bits == 32:
        value = _SINGLE[text] if text in _SINGLE else struct.unpack("<I", struct.pack("<f", _float(text)))[0]
    else:
        value = _WIDE[text] if text in _WIDE else struct.unpack("<Q", struct.pack("<d", _float(text)))[0]
    return [value & 0xFFFFFFFF] if bits <= 32 else [value & 0xFFFFFFFF, value >> 32 & 0xFFFFFFFF]


def _float(text: str) -> float:
    return float.fromhex(text) if "0x" in text else float(text)
