; The way from Python into compiled code: a METH_FASTCALL function that turns Python arguments into packed values, calls
; native code without the GIL, and turns its answer back. Compiled once per process; every compiled function shares it
; and differs only in `self`. Below it stand what copies tensors to arrays, and what exported tensors need when they die.
;
; This is LLVM IR with three abbreviations, which entry_code.py expands:
;
;   %x = table NAME                 the pointer NAME of the table that entry_code.py provides
;   %x = load TYPE, %p + OFFSET     the value OFFSET bytes after %p
;   store TYPE VALUE, %p + OFFSET
;
; and with $$names for numbers that entry_code.py finds out: places inside Python objects, sizes, limits.
;
; Nothing here reports a mistake. An argument that is none of the frequent kinds, or is one but unfit, sends the whole
; call to the Python function `slow`, which converts the arguments and calls again, or raises; a nonzero return code
; sends it to the Python function `fail`, which raises.

%Value = type { i32, i32, i64 }                              ; code, flags, payload
%Slot = type [$slot_size x i8]                               ; a tensor made here, then its shape, then its strides

@oneir_entry_table = external global i8
@name = internal constant [9 x i8] c"dltensor\00"
@versioned_name = internal constant [19 x i8] c"dltensor_versioned\00"

@PyLong_Type = external global i8
@PyFloat_Type = external global i8
@PyBool_Type = external global i8
@PyUnicode_Type = external global i8
@_Py_NoneStruct = external global i8
@_Py_TrueStruct = external global i8
@_Py_FalseStruct = external global i8

; call(self, args, count): what Python calls.
define ptr @call(ptr %self, ptr %args, i64 %count) {
start:
  %answer = alloca %Value, align 16
  %fixed.values = alloca [$fixed_values x %Value], align 16
  %fixed.slots = alloca [$fixed_count x %Slot], align 16
  %record = load ptr, %self + $data_offset
  %few = icmp ule i64 %count, $fixed_count
  br i1 %few, label %convert, label %allocate

allocate:
  %values.size = mul i64 %count, 16
  %slots.size = mul i64 %count, $slot_size
  %size = add i64 %values.size, %slots.size
  %memory = call ptr @PyMem_RawMalloc(i64 %size)
  %memory.slots = getelementptr i8, ptr %memory, i64 %values.size
  %exhausted = icmp eq ptr %memory, null
  br i1 %exhausted, label %out.of.memory, label %convert

out.of.memory:
  %no.result = call ptr @PyErr_NoMemory()
  ret ptr null

convert:
  %block = phi ptr [ null, %start ], [ %memory, %allocate ]  ; what to free
  %values = phi ptr [ %fixed.values, %start ], [ %memory, %allocate ]
  %slots = phi ptr [ %fixed.slots, %start ], [ %memory.slots, %allocate ]
  br label %each

; One value for each argument.
each:
  %i = phi i64 [ 0, %convert ], [ %i.next, %next ]
  %converted = icmp eq i64 %i, %count
  br i1 %converted, label %run, label %which

which:
  %arg.at = getelementptr ptr, ptr %args, i64 %i
  %arg = load ptr, ptr %arg.at
  %value = getelementptr %Value, ptr %values, i64 %i
  %slot = getelementptr %Slot, ptr %slots, i64 %i
  %type = load ptr, %arg + $type_offset
  %Tensor = table Tensor
  %is.tensor = icmp eq ptr %type, %Tensor
  br i1 %is.tensor, label %a.tensor, label %which.2

which.2:
  %ndarray = table ndarray
  %is.ndarray = icmp eq ptr %type, %ndarray
  br i1 %is.ndarray, label %a.ndarray, label %which.3

which.3:
  %exchanged = call i32 @from_exchange(ptr %arg, ptr %type, ptr %slot)
  switch i32 %exchanged, label %which.4 [
    i32 0, label %store.tensor
    i32 -2, label %slow
  ]

which.4:
  %is.int = icmp eq ptr %type, @PyLong_Type
  br i1 %is.int, label %an.int, label %which.5

which.5:
  %is.float = icmp eq ptr %type, @PyFloat_Type
  br i1 %is.float, label %a.float, label %which.6

which.6:
  %is.bool = icmp eq ptr %type, @PyBool_Type
  br i1 %is.bool, label %a.bool, label %which.7

which.7:
  %is.none = icmp eq ptr %arg, @_Py_NoneStruct
  br i1 %is.none, label %a.none, label %which.8

which.8:
  %is.str = icmp eq ptr %type, @PyUnicode_Type
  br i1 %is.str, label %a.str, label %which.9

which.9:
  %c_void_p = table c_void_p
  %is.pointer = icmp eq ptr %type, %c_void_p
  br i1 %is.pointer, label %a.pointer, label %slow

; Our own tensor: its first slot holds the ctypes structure that is the DLTensor; flags follow it.
a.tensor:
  %structure = load ptr, %arg + $tensor_slot
  %unset = icmp eq ptr %structure, null
  br i1 %unset, label %slow, label %a.set.tensor

a.set.tensor:
  %dltensor = load ptr, %structure + $data_offset
  %dltensor.flags = load i32, %dltensor + $tensor_flags
  br label %store.tensor

a.ndarray:
  %numpy.flags = call i32 @from_numpy(ptr %arg, ptr %slot)
  %fits = icmp sge i32 %numpy.flags, 0
  br i1 %fits, label %store.tensor, label %slow

store.tensor:
  %tensor = phi ptr [ %dltensor, %a.set.tensor ], [ %slot, %a.ndarray ], [ %slot, %which.3 ]
  %tensor.flags = phi i32 [ %dltensor.flags, %a.set.tensor ], [ %numpy.flags, %a.ndarray ], [ 0, %which.3 ]
  store i32 7, %value + 0
  store i32 %tensor.flags, %value + 4
  store ptr %tensor, %value + 8
  br label %next

an.int:
  %integer = call i64 @PyLong_AsLongLong(ptr %arg)
  %doubtful = icmp eq i64 %integer, -1
  br i1 %doubtful, label %check.int, label %store.int

check.int:
  %overflow = call ptr @PyErr_Occurred()
  %in.range = icmp eq ptr %overflow, null
  br i1 %in.range, label %store.int, label %clear

store.int:
  store i32 1, %value + 0
  store i32 0, %value + 4
  store i64 %integer, %value + 8
  br label %next

a.float:
  %double = call double @PyFloat_AsDouble(ptr %arg)
  store i32 3, %value + 0
  store i32 0, %value + 4
  store double %double, %value + 8
  br label %next

a.bool:
  %is.true = icmp eq ptr %arg, @_Py_TrueStruct
  %truth = zext i1 %is.true to i64
  store i32 2, %value + 0
  store i32 0, %value + 4
  store i64 %truth, %value + 8
  br label %next

a.none:
  store i32 0, %value + 0
  store i32 0, %value + 4
  store i64 0, %value + 8
  br label %next

; The text lives as long as the argument, which the caller holds.
a.str:
  %text = call ptr @PyUnicode_AsUTF8AndSize(ptr %arg, ptr null)
  %no.text = icmp eq ptr %text, null
  br i1 %no.text, label %clear, label %store.str

store.str:
  store i32 8, %value + 0
  store i32 0, %value + 4
  store ptr %text, %value + 8
  br label %next

a.pointer:
  %pointer.at = load ptr, %arg + $data_offset
  %pointer = load ptr, %pointer.at + 0
  store i32 4, %value + 0
  store i32 0, %value + 4
  store ptr %pointer, %value + 8
  br label %next

next:
  %i.next = add nuw i64 %i, 1
  br label %each

run:
  store i32 0, %answer + 0
  store i64 0, %answer + 8
  %function = load ptr, %record + $record_function
  %context = load ptr, %record + $record_context
  %count.narrow = trunc i64 %count to i32
  %thread = call ptr @PyEval_SaveThread()
  %code = call i32 %function(ptr %context, ptr %values, i32 %count.narrow, ptr %answer)
  call void @PyEval_RestoreThread(ptr %thread)
  %answer.code = load i32, %answer + 0
  %answer.payload = load i64, %answer + 8
  %good = icmp eq i32 %code, 0
  br i1 %good, label %succeed, label %failed

failed:                                                      ; a handler of signals has raised (signals.py)
  %raised = call ptr @PyErr_Occurred()
  %unexplained = icmp eq ptr %raised, null
  br i1 %unexplained, label %fail, label %finish

succeed:
  switch i32 %answer.code, label %fail [
    i32 0, label %return.none
    i32 1, label %return.int
    i32 2, label %return.bool
    i32 3, label %return.float
    i32 4, label %return.pointer
    i32 8, label %return.str
  ]

return.none:
  call void @Py_IncRef(ptr @_Py_NoneStruct)
  br label %finish

return.int:
  %int.result = call ptr @PyLong_FromLongLong(i64 %answer.payload)
  br label %finish

return.bool:
  %is.nonzero = icmp ne i64 %answer.payload, 0
  %nonzero = select i1 %is.nonzero, i64 1, i64 0
  %bool.result = call ptr @PyBool_FromLong(i64 %nonzero)
  br label %finish

return.float:
  %answer.double = bitcast i64 %answer.payload to double
  %float.result = call ptr @PyFloat_FromDouble(double %answer.double)
  br label %finish

; c_void_p(address)
return.pointer:
  %address = call ptr @PyLong_FromLongLong(i64 %answer.payload)
  %no.address = icmp eq ptr %address, null
  br i1 %no.address, label %finish, label %wrap.pointer

wrap.pointer:
  %wrapper = table c_void_p
  store ptr %address, %values + 0
  %pointer.result = call ptr @PyObject_Vectorcall(ptr %wrapper, ptr %values, i64 1, ptr null)
  call void @Py_DecRef(ptr %address)
  br label %finish

return.str:
  %answer.text = inttoptr i64 %answer.payload to ptr
  %str.result = call ptr @PyUnicode_FromString(ptr %answer.text)
  br label %finish

clear:
  call void @PyErr_Clear()
  br label %slow

slow:
  %slow.function = table slow
  br label %hand.over

fail:
  %fail.function = table fail
  br label %hand.over

; function(self, code, payload, *args); the memory of the values, no longer needed, holds the arguments of this call.
hand.over:
  %python = phi ptr [ %slow.function, %slow ], [ %fail.function, %fail ]
  %reason = phi i32 [ 0, %slow ], [ %answer.code, %fail ]
  %detail = phi i64 [ 0, %slow ], [ %answer.payload, %fail ]
  %reason.wide = sext i32 %reason to i64
  %reason.object = call ptr @PyLong_FromLongLong(i64 %reason.wide)
  %detail.object = call ptr @PyLong_FromLongLong(i64 %detail)
  store ptr %self, %values + 0
  store ptr %reason.object, %values + 8
  store ptr %detail.object, %values + 16
  %no.reason = icmp eq ptr %reason.object, null
  %no.detail = icmp eq ptr %detail.object, null
  %unable = or i1 %no.reason, %no.detail
  br i1 %unable, label %finish, label %hand.over.args

hand.over.args:
  %rest = getelementptr i8, ptr %values, i64 24
  %rest.size = mul i64 %count, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %rest, ptr %args, i64 %rest.size, i1 false)
  %total = add i64 %count, 3
  %handed = call ptr @PyObject_Vectorcall(ptr %python, ptr %values, i64 %total, ptr null)
  call void @Py_DecRef(ptr %reason.object)
  call void @Py_DecRef(ptr %detail.object)
  br label %finish

finish:
  %result = phi ptr [ @_Py_NoneStruct, %return.none ], [ %int.result, %return.int ], [ %bool.result, %return.bool ],
                    [ %float.result, %return.float ], [ null, %return.pointer ], [ %pointer.result, %wrap.pointer ],
                    [ %str.result, %return.str ], [ null, %hand.over ], [ %handed, %hand.over.args ],
                    [ null, %failed ]
  %borrowed = icmp eq ptr %block, null
  br i1 %borrowed, label %leave, label %free

free:
  call void @PyMem_RawFree(ptr %block)
  br label %leave

leave:
  ret ptr %result
}

; A NumPy array of exact type -> the tensor in %slot. Returns its flags, or -1 when `slow` has to look at it.
; The layout of an array is part of NumPy's published C interface; entry_code.py checks it before it is relied on.
define internal i32 @from_numpy(ptr %array, ptr %slot) {
start:
  %ndim = load i32, %array + $array_ndim
  %descr = load ptr, %array + $array_descr
  %order = load i8, %descr + $descr_byteorder
  %number = load i32, %descr + $descr_number
  %few = icmp ule i32 %ndim, $fixed_ndim
  %known = icmp ult i32 %number, $dtype_count
  %native = icmp ne i8 %order, $foreign_order
  %fine.0 = and i1 %few, %known
  %fine = and i1 %fine.0, %native
  br i1 %fine, label %look.up, label %unfit

look.up:
  %dtypes = getelementptr i8, ptr @oneir_entry_table, i64 $table_numpy_dtypes
  %number.wide = zext i32 %number to i64
  %dtype.at = getelementptr i32, ptr %dtypes, i64 %number.wide
  %dtype = load i32, ptr %dtype.at
  %supported = icmp ne i32 %dtype, 0
  br i1 %supported, label %fill, label %unfit

fill:
  %data = load ptr, %array + $array_data
  %own.shape = getelementptr i8, ptr %slot, i64 $slot_shape
  %own.strides = getelementptr i8, ptr %slot, i64 $slot_strides
  store ptr %data, %slot + $tensor_data
  store i32 $device_cpu, %slot + $tensor_device_type
  store i32 0, %slot + $tensor_device_id
  store i32 %ndim, %slot + $tensor_ndim
  store i32 %dtype, %slot + $tensor_dtype
  store ptr %own.shape, %slot + $tensor_shape
  store ptr %own.strides, %slot + $tensor_strides
  store i64 0, %slot + $tensor_byte_offset
  %shape = load ptr, %array + $array_shape
  %strides = load ptr, %array + $array_strides
  ; NumPy counts strides in bytes, DLPack in items. Sizes of items are powers of two, so a shift divides; a stride that
  ; is no multiple (a field of a packed record) cannot be said in items. The second byte of a dtype is its size in bits.
  %bits = lshr i32 %dtype, 8
  %bits.low = and i32 %bits, 255
  %bytes = lshr i32 %bits.low, 3
  %log = call i32 @llvm.cttz.i32(i32 %bytes, i1 true)
  %shift = zext i32 %log to i64
  %bytes.wide = zext i32 %bytes to i64
  %mask = sub i64 %bytes.wide, 1
  %ndim.wide = zext i32 %ndim to i64
  br label %dimensions

dimensions:
  %i = phi i64 [ 0, %fill ], [ %i.next, %dimension ]
  %all = icmp eq i64 %i, %ndim.wide
  br i1 %all, label %done, label %dimension

dimension:
  %shape.at = getelementptr i64, ptr %shape, i64 %i
  %strides.at = getelementptr i64, ptr %strides, i64 %i
  %own.shape.at = getelementptr i64, ptr %own.shape, i64 %i
  %own.strides.at = getelementptr i64, ptr %own.strides, i64 %i
  %extent = load i64, ptr %shape.at
  %stride = load i64, ptr %strides.at
  %stride.items = ashr i64 %stride, %shift
  store i64 %extent, ptr %own.shape.at
  store i64 %stride.items, ptr %own.strides.at
  %rest = and i64 %stride, %mask
  %whole = icmp eq i64 %rest, 0
  %i.next = add nuw i64 %i, 1
  br i1 %whole, label %dimensions, label %unfit

done:
  %numpy.flags = load i32, %array + $array_flags
  %writeable = and i32 %numpy.flags, $array_writeable
  %locked = icmp eq i32 %writeable, 0
  %flags = zext i1 %locked to i32
  ret i32 %flags

unfit:
  ret i32 -1
}

; An object whose type offers DLPack's C exchange table -> the tensor in %slot. Returns 0; -1 for an unknown type; -2 when
; `slow` has to look: at a tensor that requires a gradient, one that DLPack cannot describe, one without memory.
define internal i32 @from_exchange(ptr %object, ptr %type, ptr %slot) {
start:
  %exchanges = getelementptr i8, ptr @oneir_entry_table, i64 $table_exchanges
  br label %search

search:                                                      ; the list ends with a type that is null
  %i = phi i64 [ 0, %start ], [ %i.next, %other ]
  %exchange = getelementptr [3 x ptr], ptr %exchanges, i64 %i
  %known = load ptr, %exchange + 0
  %same = icmp eq ptr %known, %type
  br i1 %same, label %found, label %other

other:
  %i.next = add nuw i64 %i, 1
  %end = icmp eq ptr %known, null
  br i1 %end, label %unknown, label %search

found:                                                       ; type, function, the name `requires_grad` or null
  %function = load ptr, %exchange + 8
  %name = load ptr, %exchange + 16
  %ungraded = icmp eq ptr %name, null
  br i1 %ungraded, label %export, label %ask

ask:
  %answer = call ptr @PyObject_GetAttr(ptr %object, ptr %name)
  %unanswered = icmp eq ptr %answer, null
  br i1 %unanswered, label %failed, label %answered

answered:
  %detached = icmp eq ptr %answer, @_Py_FalseStruct
  call void @Py_DecRef(ptr %answer)
  br i1 %detached, label %export, label %unfit

export:
  %code = call i32 %function(ptr %object, ptr %slot)
  %exported = icmp eq i32 %code, 0
  br i1 %exported, label %check.memory, label %failed

check.memory:                                                ; tensors that only pretend have none
  %data = load ptr, %slot + $tensor_data
  %absent = icmp eq ptr %data, null
  br i1 %absent, label %unfit, label %done

done:
  ret i32 0

failed:
  call void @PyErr_Clear()
  br label %unfit

unfit:
  ret i32 -2

unknown:
  ret i32 -1
}

; copy(self, args, count): a NumPy array of the values of args[0], one of our tensors, of the dtype args[1]; None where the
; tensor has no memory here, or gaps, or is large.
define ptr @copy(ptr %self, ptr %args, i64 %count) {
start:
  %tensor = load ptr, %args + 0
  %dtype = load ptr, %args + 8
  %structure = load ptr, %tensor + $tensor_slot
  %record = load ptr, %structure + $data_offset
  %data = load ptr, %record + $tensor_data
  %device = load i32, %record + $tensor_device_type
  %absent = icmp eq ptr %data, null
  %elsewhere = icmp ne i32 %device, $device_cpu
  %unfit = or i1 %absent, %elsewhere
  br i1 %unfit, label %decline, label %look

look:
  %ndim = load i32, %record + $tensor_ndim
  %shape = load ptr, %record + $tensor_shape
  %strides = load ptr, %record + $tensor_strides
  %code = load i32, %record + $tensor_dtype
  %bits = lshr i32 %code, 8
  %bits.low = and i32 %bits, 255
  %rounded = add i32 %bits.low, 7
  %item = lshr i32 %rounded, 3
  %item.wide = zext i32 %item to i64
  %last = sub i32 %ndim, 1
  br label %dimensions

dimensions:                                                  ; from the last one on
  %i = phi i32 [ %last, %look ], [ %i.next, %dimension ]
  %size = phi i64 [ 1, %look ], [ %size.next, %dimension ]
  %done = icmp slt i32 %i, 0
  br i1 %done, label %measure, label %dimension

dimension:
  %extent.at = getelementptr i64, ptr %shape, i32 %i
  %stride.at = getelementptr i64, ptr %strides, i32 %i
  %extent = load i64, ptr %extent.at
  %stride = load i64, ptr %stride.at
  %dense = icmp eq i64 %stride, %size
  %single = icmp eq i64 %extent, 1
  %fine = or i1 %dense, %single
  %size.next = mul i64 %size, %extent
  %i.next = sub i32 %i, 1
  br i1 %fine, label %dimensions, label %decline

measure:                                                     ; NumPy copies large ones without the GIL
  %bytes = mul i64 %size, %item.wide
  %large = icmp ugt i64 %bytes, $large_bytes
  br i1 %large, label %decline, label %make

make:
  %api = table new_array
  %ndarray = table ndarray
  call void @Py_IncRef(ptr %dtype)                           ; which the next call takes
  %array = call ptr %api(ptr %ndarray, ptr %dtype, i32 %ndim, ptr %shape, ptr null, ptr null, i32 0, ptr null)
  %failed = icmp eq ptr %array, null
  br i1 %failed, label %leave, label %fill

fill:
  %to = load ptr, %array + $array_data
  %offset = load i64, %record + $tensor_byte_offset
  %from = getelementptr i8, ptr %data, i64 %offset
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %bytes, i1 false)
  br label %leave

leave:
  ret ptr %array

decline:
  call void @Py_IncRef(ptr @_Py_NoneStruct)
  ret ptr @_Py_NoneStruct
}

; The deleters of exported tensors. Consumers call them from any thread, with or without the GIL, and even with a Python
; exception in flight, so they cannot be Python functions. Once the interpreter is gone there is nothing left to release.
define void @delete_managed(ptr %managed) {
  %context = load ptr, %managed + $managed_context
  call void @release(ptr %context, ptr %managed)
  ret void
}

define void @delete_managed_versioned(ptr %managed) {
  %context = load ptr, %managed + $versioned_context
  call void @release(ptr %context, ptr %managed)
  ret void
}

define internal void @release(ptr %object, ptr %memory) {
start:
  %alive = call i32 @Py_IsInitialized()
  %gone = icmp eq i32 %alive, 0
  br i1 %gone, label %leave, label %free

free:
  %state = call i32 @PyGILState_Ensure()
  call void @Py_DecRef(ptr %object)
  call void @PyGILState_Release(i32 %state)
  call void @PyMem_RawFree(ptr %memory)
  br label %leave

leave:
  ret void
}

; The destructors of capsules. A consumer renames the capsule that it takes; one that kept its name was never taken.
define void @delete_capsule(ptr %capsule) {
  call void @release_capsule(ptr %capsule, ptr @name, i64 $managed_deleter)
  ret void
}

define void @delete_capsule_versioned(ptr %capsule) {
  call void @release_capsule(ptr %capsule, ptr @versioned_name, i64 $versioned_deleter)
  ret void
}

define internal void @release_capsule(ptr %capsule, ptr %name, i64 %deleter.offset) {
start:
  %is.valid = call i32 @PyCapsule_IsValid(ptr %capsule, ptr %name)
  %taken = icmp eq i32 %is.valid, 0
  br i1 %taken, label %leave, label %delete

delete:
  %managed = call ptr @PyCapsule_GetPointer(ptr %capsule, ptr %name)
  %deleter.at = getelementptr i8, ptr %managed, i64 %deleter.offset
  %deleter = load ptr, ptr %deleter.at
  call void %deleter(ptr %managed)
  br label %leave

leave:
  ret void
}

declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare i32 @Py_IsInitialized()
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare i32 @PyGILState_Ensure()
declare void @PyGILState_Release(i32)
declare ptr @PyErr_Occurred()
declare void @PyErr_Clear()
declare ptr @PyErr_NoMemory()
declare ptr @PyMem_RawMalloc(i64)
declare void @PyMem_RawFree(ptr)
declare ptr @PyObject_GetAttr(ptr, ptr)
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare i64 @PyLong_AsLongLong(ptr)
declare ptr @PyLong_FromLongLong(i64)
declare ptr @PyBool_FromLong(i64)
declare double @PyFloat_AsDouble(ptr)
declare ptr @PyFloat_FromDouble(double)
declare ptr @PyUnicode_AsUTF8AndSize(ptr, ptr)
declare ptr @PyUnicode_FromString(ptr)
declare i32 @PyCapsule_IsValid(ptr, ptr)
declare ptr @PyCapsule_GetPointer(ptr, ptr)
declare i32 @llvm.cttz.i32(i32, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
