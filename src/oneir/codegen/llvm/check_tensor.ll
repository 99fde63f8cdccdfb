; int32_t oneir_check_tensor(const Value *value, const int64_t *expected, const Failure *failures, Value *result)
;
; Compares an argument of a packed function with what is expected of a tensor: its dtype; the device's type; its number,
; or -1 for any; the flags that the value must not have; the alignment of its memory in bytes, a power of two; 1 if
; elements are row-major without gaps, else 0; the number of dimensions; and their extents, -1 for any. Where there are no
; elements, strides and memory do not matter, nor does a stride where an extent is 1. Returns 0, or -1 with the failure
; that is numbered below in the result.
define internal i32 @oneir_check_tensor(ptr %value, ptr %expected, ptr %failures, ptr %result) $attributes {
begin:
  %code = load i32, ptr %value, align 8
  %is.tensor = icmp eq i32 %code, $tensor
  br i1 %is.tensor, label %tensor, label %no.tensor

tensor:
  %tensor.at = getelementptr i8, ptr %value, i64 $value_handle
  %t = load ptr, ptr %tensor.at, align 8
  %dtype.at = getelementptr i8, ptr %t, i64 $tensor_dtype
  %dtype.i32 = load i32, ptr %dtype.at, align 4
  %dtype = zext i32 %dtype.i32 to i64
  %dtype.expected = load i64, ptr %expected, align 8
  %is.dtype = icmp eq i64 %dtype, %dtype.expected
  br i1 %is.dtype, label %place, label %wrong.dtype

place:
  %kind.at = getelementptr i8, ptr %t, i64 $tensor_device_type
  %kind.i32 = load i32, ptr %kind.at, align 4
  %kind = zext i32 %kind.i32 to i64
  %kind.expected.at = getelementptr i64, ptr %expected, i64 1
  %kind.expected = load i64, ptr %kind.expected.at, align 8
  %is.kind = icmp eq i64 %kind, %kind.expected
  %number.at = getelementptr i8, ptr %t, i64 $tensor_device_id
  %number.i32 = load i32, ptr %number.at, align 4
  %number = zext i32 %number.i32 to i64
  %number.expected.at = getelementptr i64, ptr %expected, i64 2
  %number.expected = load i64, ptr %number.expected.at, align 8
  %is.any = icmp slt i64 %number.expected, 0
  %is.equal = icmp eq i64 %number, %number.expected
  %is.number = or i1 %is.any, %is.equal
  %is.there = and i1 %is.kind, %is.number
  br i1 %is.there, label %permission, label %wrong.device

permission:
  %flags.at = getelementptr i8, ptr %value, i64 $value_flags
  %flags.i32 = load i32, ptr %flags.at, align 4
  %flags = zext i32 %flags.i32 to i64
  %forbidden.at = getelementptr i64, ptr %expected, i64 3
  %forbidden = load i64, ptr %forbidden.at, align 8
  %found = and i64 %flags, %forbidden
  %is.allowed = icmp eq i64 %found, 0
  br i1 %is.allowed, label %dimensions, label %is.read.only

dimensions:
  %ndim.at = getelementptr i8, ptr %t, i64 $tensor_ndim
  %ndim.i32 = load i32, ptr %ndim.at, align 4
  %ndim = sext i32 %ndim.i32 to i64
  %ndim.expected.at = getelementptr i64, ptr %expected, i64 6
  %ndim.expected = load i64, ptr %ndim.expected.at, align 8
  %is.ndim = icmp eq i64 %ndim, %ndim.expected
  br i1 %is.ndim, label %memory, label %wrong.shape

memory:
  %shape.at = getelementptr i8, ptr %t, i64 $tensor_shape
  %shape = load ptr, ptr %shape.at, align $pointer
  %strides.at = getelementptr i8, ptr %t, i64 $tensor_strides
  %strides = load ptr, ptr %strides.at, align $pointer
  %extents = getelementptr i64, ptr %expected, i64 7
  %has.strides = icmp ne ptr %strides, null
  %steps = select i1 %has.strides, ptr %strides, ptr %shape  ; something to read, in any case
  br label %axes

axes:  ; from the last one, with the number of elements inside of it
  %after = phi i64 [ %ndim, %memory ], [ %axis, %next ]
  %size = phi i64 [ 1, %memory ], [ %larger, %next ]
  %has.gaps = phi i1 [ false, %memory ], [ %gaps, %next ]
  %is.empty = phi i1 [ false, %memory ], [ %empty, %next ]
  %more = icmp sgt i64 %after, 0
  br i1 %more, label %each, label %end

each:
  %axis = sub i64 %after, 1
  %extent.at = getelementptr i64, ptr %shape, i64 %axis
  %extent = load i64, ptr %extent.at, align 8
  %extent.expected.at = getelementptr i64, ptr %extents, i64 %axis
  %extent.expected = load i64, ptr %extent.expected.at, align 8
  %any = icmp slt i64 %extent.expected, 0
  %equal = icmp eq i64 %extent, %extent.expected
  %fits = or i1 %any, %equal
  br i1 %fits, label %next, label %wrong.shape

next:
  %step.at = getelementptr i64, ptr %steps, i64 %axis
  %step = load i64, ptr %step.at, align 8
  %elsewhere = icmp ne i64 %step, %size
  %several = icmp ne i64 %extent, 1
  %gap = and i1 %elsewhere, %several
  %gaps = or i1 %has.gaps, %gap
  %none = icmp eq i64 %extent, 0
  %empty = or i1 %is.empty, %none
  %larger = mul i64 %size, %extent
  br label %axes

end:
  br i1 %is.empty, label %good, label %elements

elements:
  %compact.at = getelementptr i64, ptr %expected, i64 5
  %compact = load i64, ptr %compact.at, align 8
  %is.compact = icmp ne i64 %compact, 0
  %gaps.matter = and i1 %is.compact, %has.strides
  %wrong.gaps = and i1 %gaps.matter, %has.gaps
  br i1 %wrong.gaps, label %wrong.strides, label %pointer

pointer:
  %data = load ptr, ptr %t, align $pointer
  %is.null = icmp eq ptr %data, null
  br i1 %is.null, label %no.memory, label %address

address:
  %offset.at = getelementptr i8, ptr %t, i64 $tensor_byte_offset
  %offset = load i64, ptr %offset.at, align 8
  %base = ptrtoint ptr %data to i64
  %first = add i64 %base, %offset
  %alignment.at = getelementptr i64, ptr %expected, i64 4
  %alignment = load i64, ptr %alignment.at, align 8
  %mask = sub i64 %alignment, 1
  %rest = and i64 %first, %mask
  %is.aligned = icmp eq i64 %rest, 0
  br i1 %is.aligned, label %good, label %misaligned

good:
  ret i32 0

no.tensor:
  br label %fail
wrong.dtype:
  br label %fail
wrong.device:
  br label %fail
is.read.only:
  br label %fail
wrong.shape:
  br label %fail
wrong.strides:
  br label %fail
no.memory:
  br label %fail
misaligned:
  br label %fail

fail:
  %which = phi i64 [ 0, %no.tensor ], [ 1, %wrong.dtype ], [ 2, %wrong.device ], [ 3, %is.read.only ],
                   [ 4, %wrong.shape ], [ 5, %wrong.strides ], [ 6, %no.memory ], [ 7, %misaligned ]
  %failure = getelementptr [2 x ptr], ptr %failures, i64 %which
  store i64 $failure, ptr %result, align 8
  %payload = getelementptr i8, ptr %result, i64 $value_handle
  store ptr %failure, ptr %payload, align 8
  ret i32 -1
}
