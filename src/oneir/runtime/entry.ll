; The way from Python into compiled code: a METH_FASTCALL function that turns Python arguments into packed values, calls
; native code without the GIL, and turns its answer back. Compiled once per process; every compiled function shares it
; and differs only in `self`. Below it stands what copies tensors to arrays.
;
; Above each block stands in C what it does, with its labels and names.
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

@PyLong_Type = external global i8
@PyFloat_Type = external global i8
@PyBool_Type = external global i8
@PyUnicode_Type = external global i8
@_Py_NoneStruct = external global i8
@_Py_TrueStruct = external global i8
@_Py_FalseStruct = external global i8

; PyObject *call(PyObject *self, PyObject **args, int64_t count)
; What Python calls. `self` is a NativeFunction (entry_code.py), `args` are borrowed.
define ptr @call(ptr %self, ptr %args, i64 %count) {
; record = data of self;
; if (count <= $fixed_count) { block = NULL; values = fixed.values; slots = fixed.slots; goto convert; }
start:
  %answer = alloca %Value, align 16
  %raised.at = alloca [3 x ptr], align 8
  %text.size.at = alloca i64, align 8
  %fixed.values = alloca [$fixed_values x %Value], align 16
  %fixed.slots = alloca [$fixed_count x %Slot], align 16
  %record = load ptr, %self + $data_offset
  %few = icmp ule i64 %count, $fixed_count
  br i1 %few, label %convert, label %allocate

; // One block for both: count values, then count slots.
; memory = PyMem_RawMalloc(count * sizeof(Value) + count * sizeof(Slot));
; if (memory != NULL) { block = values = memory; slots = (Slot *)(values + count); goto convert; }
allocate:
  %values.size = mul i64 %count, 16
  %slots.size = mul i64 %count, $slot_size
  %size = add i64 %values.size, %slots.size
  %memory = call ptr @PyMem_RawMalloc(i64 %size)
  %memory.slots = getelementptr i8, ptr %memory, i64 %values.size
  %exhausted = icmp eq ptr %memory, null
  br i1 %exhausted, label %out.of.memory, label %convert

; return PyErr_NoMemory();
out.of.memory:
  %no.result = call ptr @PyErr_NoMemory()
  ret ptr null

; // `block` is what to free at the end; NULL if all is on the stack.
convert:
  %block = phi ptr [ null, %start ], [ %memory, %allocate ]
  %values = phi ptr [ %fixed.values, %start ], [ %memory, %allocate ]
  %slots = phi ptr [ %fixed.slots, %start ], [ %memory.slots, %allocate ]
  br label %each

; for (i = 0; i != count; i++) {  // the body ends at `next`; after it comes `run`
each:
  %i = phi i64 [ 0, %convert ], [ %i.next, %next ]
  %converted = icmp eq i64 %i, %count
  br i1 %converted, label %run, label %which

;   arg = args[i]; value = &values[i]; slot = &slots[i]; type = Py_TYPE(arg);
;   if (type == Tensor) goto a.tensor;
which:
  %arg.at = getelementptr ptr, ptr %args, i64 %i
  %arg = load ptr, ptr %arg.at
  %value = getelementptr %Value, ptr %values, i64 %i
  %slot = getelementptr %Slot, ptr %slots, i64 %i
  %type = load ptr, %arg + $type_offset
  %Tensor = table Tensor
  %is.tensor = icmp eq ptr %type, %Tensor
  br i1 %is.tensor, label %a.tensor, label %which.2

;   if (type == ndarray) goto a.ndarray;
which.2:
  %ndarray = table ndarray
  %is.ndarray = icmp eq ptr %type, %ndarray
  br i1 %is.ndarray, label %a.ndarray, label %which.3

;   // `slow` for -2, `which.4` for -1
;   if (from_exchange(arg, type, slot) == 0) { tensor = slot; flags = 0; goto store.tensor; }
which.3:
  %exchanged = call i32 @from_exchange(ptr %arg, ptr %type, ptr %slot)
  switch i32 %exchanged, label %which.4 [
    i32 0, label %store.tensor
    i32 -2, label %slow
  ]

;   if (type == int) goto an.int;
which.4:
  %is.int = icmp eq ptr %type, @PyLong_Type
  br i1 %is.int, label %an.int, label %which.5

;   if (type == float) goto a.float;
which.5:
  %is.float = icmp eq ptr %type, @PyFloat_Type
  br i1 %is.float, label %a.float, label %which.6

;   if (type == bool) goto a.bool;
which.6:
  %is.bool = icmp eq ptr %type, @PyBool_Type
  br i1 %is.bool, label %a.bool, label %which.7

;   if (arg == None) goto a.none;
which.7:
  %is.none = icmp eq ptr %arg, @_Py_NoneStruct
  br i1 %is.none, label %a.none, label %which.8

;   if (type == str) goto a.str;
which.8:
  %is.str = icmp eq ptr %type, @PyUnicode_Type
  br i1 %is.str, label %a.str, label %which.9

;   if (type == c_void_p) goto a.pointer; else goto slow;
which.9:
  %c_void_p = table c_void_p
  %is.pointer = icmp eq ptr %type, %c_void_p
  br i1 %is.pointer, label %a.pointer, label %slow

;   // Our own tensor: its first slot holds the ctypes structure that is the DLTensor; flags follow it.
;   // The slot is NULL where __init__ has not run.
;   structure = arg->_record;
;   if (structure == NULL) goto slow;
a.tensor:
  %structure = load ptr, %arg + $tensor_slot
  %unset = icmp eq ptr %structure, null
  br i1 %unset, label %slow, label %a.set.tensor

;   tensor = data of structure; flags = tensor->flags; goto store.tensor;
a.set.tensor:
  %dltensor = load ptr, %structure + $data_offset
  %dltensor.flags = load i32, %dltensor + $tensor_flags
  br label %store.tensor

;   flags = from_numpy(arg, slot);
;   if (flags < 0) goto slow;
;   tensor = slot;
a.ndarray:
  %numpy.flags = call i32 @from_numpy(ptr %arg, ptr %slot)
  %fits = icmp sge i32 %numpy.flags, 0
  br i1 %fits, label %store.tensor, label %slow

;   *value = (Value){TENSOR, flags, tensor}; continue;
store.tensor:
  %tensor = phi ptr [ %dltensor, %a.set.tensor ], [ %slot, %a.ndarray ], [ %slot, %which.3 ]
  %tensor.flags = phi i32 [ %dltensor.flags, %a.set.tensor ], [ %numpy.flags, %a.ndarray ], [ 0, %which.3 ]
  store i32 7, %value + 0
  store i32 %tensor.flags, %value + 4
  store ptr %tensor, %value + 8
  br label %next

;   integer = PyLong_AsLongLong(arg);  // -1 is also the answer to what does not fit
;   if (integer != -1) goto store.int;
an.int:
  %integer = call i64 @PyLong_AsLongLong(ptr %arg)
  %doubtful = icmp eq i64 %integer, -1
  br i1 %doubtful, label %check.int, label %store.int

;   if (PyErr_Occurred()) goto clear;
check.int:
  %overflow = call ptr @PyErr_Occurred()
  %in.range = icmp eq ptr %overflow, null
  br i1 %in.range, label %store.int, label %clear

;   *value = (Value){INT, 0, integer}; continue;
store.int:
  store i32 1, %value + 0
  store i32 0, %value + 4
  store i64 %integer, %value + 8
  br label %next

;   *value = (Value){FLOAT, 0, PyFloat_AsDouble(arg)}; continue;
a.float:
  %double = call double @PyFloat_AsDouble(ptr %arg)
  store i32 3, %value + 0
  store i32 0, %value + 4
  store double %double, %value + 8
  br label %next

;   *value = (Value){BOOL, 0, arg == True}; continue;
a.bool:
  %is.true = icmp eq ptr %arg, @_Py_TrueStruct
  %truth = zext i1 %is.true to i64
  store i32 2, %value + 0
  store i32 0, %value + 4
  store i64 %truth, %value + 8
  br label %next

;   *value = (Value){NONE, 0, 0}; continue;
a.none:
  store i32 0, %value + 0
  store i32 0, %value + 4
  store i64 0, %value + 8
  br label %next

;   // The text lives as long as the argument, which the caller holds. Native code sees where it ends by its zero byte,
;   // so one with a zero inside goes to `slow`, which raises.
;   text = PyUnicode_AsUTF8AndSize(arg, &size);
;   if (text == NULL) goto clear;
a.str:
  %text = call ptr @PyUnicode_AsUTF8AndSize(ptr %arg, ptr %text.size.at)
  %no.text = icmp eq ptr %text, null
  br i1 %no.text, label %clear, label %measure.str

;   if (strlen(text) != size) goto slow;
measure.str:
  %text.size = load i64, ptr %text.size.at
  %length = call i64 @strlen(ptr %text)
  %is.whole = icmp eq i64 %length, %text.size
  br i1 %is.whole, label %store.str, label %slow

;   *value = (Value){STR, 0, text}; continue;
store.str:
  store i32 8, %value + 0
  store i32 0, %value + 4
  store ptr %text, %value + 8
  br label %next

;   *value = (Value){POINTER, 0, *(void **)data of arg}; continue;
a.pointer:
  %pointer.at = load ptr, %arg + $data_offset
  %pointer = load ptr, %pointer.at + 0
  store i32 4, %value + 0
  store i32 0, %value + 4
  store ptr %pointer, %value + 8
  br label %next

; }
next:
  %i.next = add nuw i64 %i, 1
  br label %each

; answer = (Value){NONE, 0, 0};
; thread = PyEval_SaveThread();  // gives up the GIL
; code = record->function(record->context, values, (int32_t)count, &answer);
; PyEval_RestoreThread(thread);
; if (code == 0) goto succeed;
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

; // A handler of signals may have raised in this thread (signals.py): then its exception is the call's. An exception of
; // a callback in another thread, waiting under a token in `answer`, is dropped.
; if (!PyErr_Occurred()) goto fail;
failed:
  %raised = call ptr @PyErr_Occurred()
  %unexplained = icmp eq ptr %raised, null
  br i1 %unexplained, label %fail, label %keep.raised

; if (answer.code != EXCEPTION) { result = NULL; goto finish; }
keep.raised:
  %is.stashed = icmp eq i32 %answer.code, $exception_code
  br i1 %is.stashed, label %drop.answer, label %finish

; PyErr_Fetch(&raised.type, &raised.value, &raised.traceback);  // callback.py is Python, which must not find it set
; oneir_drop_error(&answer);
; PyErr_Restore(raised.type, raised.value, raised.traceback); result = NULL; goto finish;
drop.answer:
  %raised.value.at = getelementptr ptr, ptr %raised.at, i64 1
  %raised.traceback.at = getelementptr ptr, ptr %raised.at, i64 2
  call void @PyErr_Fetch(ptr %raised.at, ptr %raised.value.at, ptr %raised.traceback.at)
  call void @oneir_drop_error(ptr %answer)
  %raised.type = load ptr, ptr %raised.at
  %raised.value = load ptr, ptr %raised.value.at
  %raised.traceback = load ptr, ptr %raised.traceback.at
  call void @PyErr_Restore(ptr %raised.type, ptr %raised.value, ptr %raised.traceback)
  br label %finish

; switch (answer.code) {  // `fail` for an unknown one
succeed:
  switch i32 %answer.code, label %fail [
    i32 0, label %return.none
    i32 1, label %return.int
    i32 2, label %return.bool
    i32 3, label %return.float
    i32 4, label %return.pointer
    i32 8, label %return.str
  ]

; case NONE: result = Py_NewRef(None); goto finish;
return.none:
  call void @Py_IncRef(ptr @_Py_NoneStruct)
  br label %finish

; case INT: result = PyLong_FromLongLong(answer.payload); goto finish;
return.int:
  %int.result = call ptr @PyLong_FromLongLong(i64 %answer.payload)
  br label %finish

; case BOOL: result = PyBool_FromLong(answer.payload != 0); goto finish;
return.bool:
  %is.nonzero = icmp ne i64 %answer.payload, 0
  %nonzero = select i1 %is.nonzero, i64 1, i64 0
  %bool.result = call ptr @PyBool_FromLong(i64 %nonzero)
  br label %finish

; case FLOAT: result = PyFloat_FromDouble(bits of answer.payload); goto finish;
return.float:
  %answer.double = bitcast i64 %answer.payload to double
  %float.result = call ptr @PyFloat_FromDouble(double %answer.double)
  br label %finish

; case POINTER:  // c_void_p(address)
;   address = PyLong_FromLongLong(answer.payload);
;   if (address == NULL) { result = NULL; goto finish; }
return.pointer:
  %address = call ptr @PyLong_FromLongLong(i64 %answer.payload)
  %no.address = icmp eq ptr %address, null
  br i1 %no.address, label %finish, label %wrap.pointer

;   result = c_void_p(address); Py_DECREF(address); goto finish;
wrap.pointer:
  %wrapper = table c_void_p
  store ptr %address, %values + 0
  %pointer.result = call ptr @PyObject_Vectorcall(ptr %wrapper, ptr %values, i64 1, ptr null)
  call void @Py_DecRef(ptr %address)
  br label %finish

; case STR: result = PyUnicode_FromString((char *)answer.payload); goto finish; }
return.str:
  %answer.text = inttoptr i64 %answer.payload to ptr
  %str.result = call ptr @PyUnicode_FromString(ptr %answer.text)
  br label %finish

; PyErr_Clear();
clear:
  call void @PyErr_Clear()
  br label %slow

; python = slow; reason = detail = 0; goto hand.over;
slow:
  %slow.function = table slow
  br label %hand.over

; python = fail; reason = answer.code; detail = answer.payload;
fail:
  %fail.function = table fail
  br label %hand.over

; // result = python(self, reason, detail, *args); the memory of the values, no longer needed, holds these arguments.
; values[...] = {self, PyLong_FromLongLong(reason), PyLong_FromLongLong(detail)};
; if (either number is NULL) { result = NULL; goto finish; }
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

; memcpy(behind these three, args, count * sizeof(PyObject *));
; result = PyObject_Vectorcall(python, values, count + 3, NULL);
; Py_DECREF(both numbers);
hand.over.args:
  %rest = getelementptr i8, ptr %values, i64 24
  %rest.size = mul i64 %count, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %rest, ptr %args, i64 %rest.size, i1 false)
  %total = add i64 %count, 3
  %handed = call ptr @PyObject_Vectorcall(ptr %python, ptr %values, i64 %total, ptr null)
  call void @Py_DecRef(ptr %reason.object)
  call void @Py_DecRef(ptr %detail.object)
  br label %finish

; if (block != NULL)
finish:
  %result = phi ptr [ @_Py_NoneStruct, %return.none ], [ %int.result, %return.int ], [ %bool.result, %return.bool ],
                    [ %float.result, %return.float ], [ null, %return.pointer ], [ %pointer.result, %wrap.pointer ],
                    [ %str.result, %return.str ], [ null, %hand.over ], [ %handed, %hand.over.args ],
                    [ null, %keep.raised ], [ null, %drop.answer ]
  %borrowed = icmp eq ptr %block, null
  br i1 %borrowed, label %leave, label %free

;   PyMem_RawFree(block);
free:
  call void @PyMem_RawFree(ptr %block)
  br label %leave

; return result;
leave:
  ret ptr %result
}

; int32_t from_numpy(PyArrayObject *array, Slot *slot)
; A NumPy array of exact type -> the tensor in `slot`. Returns its flags, or -1 when `slow` has to look at it.
; The layout of an array is part of NumPy's published C interface; entry_code.py checks it before it is relied on.
define internal i32 @from_numpy(ptr %array, ptr %slot) {
; number = array->descr->type_num;
; if (ndim > $fixed_ndim || number >= $dtype_count || array->descr->byteorder is foreign) return -1;
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

; dtype = table.numpy_dtypes[number];
; if (dtype == 0) return -1;
look.up:
  %dtypes = getelementptr i8, ptr @oneir_entry_table, i64 $table_numpy_dtypes
  %number.wide = zext i32 %number to i64
  %dtype.at = getelementptr i32, ptr %dtypes, i64 %number.wide
  %dtype = load i32, ptr %dtype.at
  %supported = icmp ne i32 %dtype, 0
  br i1 %supported, label %fill, label %unfit

; slot->tensor = {data, {CPU, 0}, ndim, dtype, shape: slot->shape, strides: slot->strides, byte_offset: 0};
; // NumPy counts strides in bytes, DLPack in items. Sizes of items are powers of two, so a shift divides; a stride that
; // is no multiple (a field of a packed record) cannot be said in items. The second byte of a dtype is its bits.
; bytes = (dtype >> 8 & 255) / 8; shift = log2(bytes); mask = bytes - 1;
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

; for (i = 0; i != ndim; i++) {
dimensions:
  %i = phi i64 [ 0, %fill ], [ %i.next, %dimension ]
  %all = icmp eq i64 %i, %ndim.wide
  br i1 %all, label %done, label %dimension

;   slot->shape[i] = array->shape[i];
;   slot->strides[i] = array->strides[i] >> shift;  // strides may be negative: an arithmetic shift
;   if (array->strides[i] & mask) return -1;
; }
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

; return array->flags & WRITEABLE ? 0 : READ_ONLY;
done:
  %numpy.flags = load i32, %array + $array_flags
  %writeable = and i32 %numpy.flags, $array_writeable
  %locked = icmp eq i32 %writeable, 0
  %flags = zext i1 %locked to i32
  ret i32 %flags

; return -1;
unfit:
  ret i32 -1
}

; int32_t from_exchange(PyObject *object, PyTypeObject *type, Slot *slot)
; An object whose type offers DLPack's C exchange table -> the tensor in `slot`. Returns 0; -1 for an unknown type; -2
; when `slow` has to look: at a tensor that requires a gradient, one that DLPack cannot describe, one without memory.
define internal i32 @from_exchange(ptr %object, ptr %type, ptr %slot) {
; exchanges = table.exchanges;  // of {type, function, the name `requires_grad` or NULL}; the last type is NULL
start:
  %exchanges = getelementptr i8, ptr @oneir_entry_table, i64 $table_exchanges
  br label %search

; for (i = 0;; i++) {
;   if (exchanges[i].type == type) goto found;
search:
  %i = phi i64 [ 0, %start ], [ %i.next, %other ]
  %exchange = getelementptr [3 x ptr], ptr %exchanges, i64 %i
  %known = load ptr, %exchange + 0
  %same = icmp eq ptr %known, %type
  br i1 %same, label %found, label %other

;   if (exchanges[i].type == NULL) return -1;
; }
other:
  %i.next = add nuw i64 %i, 1
  %end = icmp eq ptr %known, null
  br i1 %end, label %unknown, label %search

; if (exchanges[i].name == NULL) goto export;
found:
  %function = load ptr, %exchange + 8
  %name = load ptr, %exchange + 16
  %ungraded = icmp eq ptr %name, null
  br i1 %ungraded, label %export, label %ask

; answer = PyObject_GetAttr(object, name);
; if (answer == NULL) goto failed;
ask:
  %answer = call ptr @PyObject_GetAttr(ptr %object, ptr %name)
  %unanswered = icmp eq ptr %answer, null
  br i1 %unanswered, label %failed, label %answered

; Py_DECREF(answer);
; if (answer != False) return -2;
answered:
  %detached = icmp eq ptr %answer, @_Py_FalseStruct
  call void @Py_DecRef(ptr %answer)
  br i1 %detached, label %export, label %unfit

; if (exchanges[i].function(object, &slot->tensor) != 0) goto failed;
export:
  %code = call i32 %function(ptr %object, ptr %slot)
  %exported = icmp eq i32 %code, 0
  br i1 %exported, label %check.memory, label %failed

; if (slot->tensor.data == NULL) return -2;  // tensors that only pretend have no memory
check.memory:
  %data = load ptr, %slot + $tensor_data
  %absent = icmp eq ptr %data, null
  br i1 %absent, label %unfit, label %done

; return 0;
done:
  ret i32 0

; PyErr_Clear();
failed:
  call void @PyErr_Clear()
  br label %unfit

; return -2;
unfit:
  ret i32 -2

; return -1;
unknown:
  ret i32 -1
}

; PyObject *copy(PyObject *self, PyObject **args, int64_t count)
; A NumPy array of the values of args[0], one of our tensors, of the dtype args[1]; None where the tensor has no memory
; here, or gaps, or is large.
define ptr @copy(ptr %self, ptr %args, i64 %count) {
; tensor = the DLTensor of args[0]; dtype = args[1];
; if (tensor->data == NULL || tensor->device_type != CPU) return None;
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

; item = (bits of tensor->dtype + 7) / 8; size = 1;
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

; for (i = ndim - 1; i >= 0; i--) {
dimensions:
  %i = phi i32 [ %last, %look ], [ %i.next, %dimension ]
  %size = phi i64 [ 1, %look ], [ %size.next, %dimension ]
  %done = icmp slt i32 %i, 0
  br i1 %done, label %measure, label %dimension

;   if (strides[i] != size && shape[i] != 1) return None;
;   size *= shape[i];
; }
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

; if (size * item > $large_bytes) return None;  // NumPy copies large ones without the GIL
measure:
  %bytes = mul i64 %size, %item.wide
  %large = icmp ugt i64 %bytes, $large_bytes
  br i1 %large, label %decline, label %make

; Py_INCREF(dtype);  // which the next call takes, whether it succeeds or not
; array = PyArray_NewFromDescr(ndarray, dtype, ndim, shape, NULL, NULL, 0, NULL);
; if (array == NULL) return NULL;
make:
  %api = table new_array
  %ndarray = table ndarray
  call void @Py_IncRef(ptr %dtype)                           ; which the next call takes
  %array = call ptr %api(ptr %ndarray, ptr %dtype, i32 %ndim, ptr %shape, ptr null, ptr null, i32 0, ptr null)
  %failed = icmp eq ptr %array, null
  br i1 %failed, label %leave, label %fill

; memcpy(array->data, (char *)tensor->data + tensor->byte_offset, size * item);
fill:
  %to = load ptr, %array + $array_data
  %offset = load i64, %record + $tensor_byte_offset
  %from = getelementptr i8, ptr %data, i64 %offset
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %bytes, i1 false)
  br label %leave

; return array;
leave:
  ret ptr %array

; return Py_NewRef(None);
decline:
  call void @Py_IncRef(ptr @_Py_NoneStruct)
  ret ptr @_Py_NoneStruct
}

declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @PyErr_Occurred()
declare void @PyErr_Clear()
declare void @PyErr_Fetch(ptr, ptr, ptr)
declare void @PyErr_Restore(ptr, ptr, ptr)
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
declare i64 @strlen(ptr)
declare void @oneir_drop_error(ptr)
declare i32 @llvm.cttz.i32(i32, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
