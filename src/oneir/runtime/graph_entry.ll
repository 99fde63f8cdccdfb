; The way from Python into a compiled graph: a METH_FASTCALL function that makes what native code wants beside the
; user's arguments (results, an arena, the table of constants), calls it as Python would, and returns the results.
; Compiled with entry.ll, whose abbreviations and form it has; vm/native.py fills the record that is `self`.
;
; Where sizes depend on the arguments, a second function, the plan, computes numbers first. What to make for the numbers
; of the last call is kept as a Frame; only other numbers ask Python for another one.
;
; All of this runs with the GIL, which `call` gives up while native code runs. `objects` holds a reference to everything
; behind the user's arguments, and is given up as a whole at the end, however the call ends.

; PyObject *call_graph(PyObject *self, PyObject **args, int64_t count, PyObject *names)
; What Python calls. `self` is a GraphFunction (entry_code.py), whose fields are named here; `names` are those of the
; arguments behind the first `count`, or NULL.
define ptr @call_graph(ptr %self, ptr %args, i64 %count, ptr %names) {
; record = data of self; numbers = frame = NULL;
; if (names == NULL) goto positional;
start:
  %fixed = alloca [$fixed_objects x ptr], align 16
  %numbers.at = alloca ptr, align 8
  %frame.at = alloca ptr, align 8
  store ptr null, ptr %numbers.at
  store ptr null, ptr %frame.at
  %record = load ptr, %self + $data_offset
  %no.names = icmp eq ptr %names, null
  br i1 %no.names, label %positional, label %named

; return by_name(*args, **names);  // which calls this with the arguments in their order
named:
  %by.name = load ptr, %record + $graph_by_name
  %ordered = call ptr @PyObject_Vectorcall(ptr %by.name, ptr %args, i64 %count, ptr %names)
  ret ptr %ordered

; if (count == params) goto space;
positional:
  %params = load i64, %record + $graph_params
  %outputs = load i64, %record + $graph_outputs
  %right = icmp eq i64 %count, %params
  br i1 %right, label %space, label %wrong.count

; return recover(*args);  // which raises
wrong.count:
  %recover.early = load ptr, %record + $graph_recover
  %recovered.early = call ptr @PyObject_Vectorcall(ptr %recover.early, ptr %args, i64 %count, ptr null)
  ret ptr %recovered.early

; total = count + outputs + 2;  // arguments, results, arena, table of constants
; if (total <= $fixed_objects) { block = NULL; objects = fixed; goto fill; }
space:
  %last = add i64 %count, %outputs
  %total = add i64 %last, 2
  %size = mul i64 %total, 8
  %few = icmp ule i64 %total, $fixed_objects
  br i1 %few, label %fill, label %allocate

; block = objects = PyMem_RawMalloc(total * sizeof(PyObject *));
; if (objects != NULL) goto fill;
allocate:
  %memory = call ptr @PyMem_RawMalloc(i64 %size)
  %exhausted = icmp eq ptr %memory, null
  br i1 %exhausted, label %out.of.memory, label %fill

; return PyErr_NoMemory();
out.of.memory:
  %no.result = call ptr @PyErr_NoMemory()
  ret ptr null

; // `block` is what to free at the end.
; memset(objects, 0, total * sizeof(PyObject *)); memcpy(objects, args, count * sizeof(PyObject *));
; behind = &objects[count];
; if (plan == NULL) goto same.frame;
fill:
  %block = phi ptr [ null, %space ], [ %memory, %allocate ]
  %objects = phi ptr [ %fixed, %space ], [ %memory, %allocate ]
  call void @llvm.memset.p0.i64(ptr %objects, i8 0, i64 %size, i1 false)
  %args.size = mul i64 %count, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %objects, ptr %args, i64 %args.size, i1 false)
  %behind = getelementptr ptr, ptr %objects, i64 %count
  %plan = load ptr, %record + $graph_plan
  %unplanned = icmp eq ptr %plan, null
  br i1 %unplanned, label %same.frame, label %ask

; // The plan's numbers, and the frame for them.
; numbers = make_tensor(&record->numbers);
; if (numbers == NULL) { value = NULL; goto finish; }
ask:
  %numbers.model = getelementptr i8, ptr %record, i64 $graph_numbers
  %numbers = call ptr @make_tensor(ptr %numbers.model)
  store ptr %numbers, ptr %numbers.at
  %no.numbers = icmp eq ptr %numbers, null
  br i1 %no.numbers, label %finish, label %call.plan

; behind[0] = numbers; planned = call(plan, objects, count + 1); behind[0] = NULL;
; if (planned != NULL) goto compare;
call.plan:
  store ptr %numbers, ptr %behind
  %with.numbers = add i64 %count, 1
  %planned = call ptr @call(ptr %plan, ptr %objects, i64 %with.numbers)
  store ptr null, ptr %behind
  %unfit = icmp eq ptr %planned, null
  br i1 %unfit, label %refused, label %compare

; // The plan checks the arguments. The message is to speak of the function that was called, so who composes it is asked
; // again; what else was raised meanwhile (an interrupt, an error of an argument's own methods) is the call's answer.
; if (!PyErr_ExceptionMatches(OneIRError)) { value = NULL; goto finish; }
refused:
  %OneIRError = table OneIRError
  %explicable = call i32 @PyErr_ExceptionMatches(ptr %OneIRError)
  %is.explicable = icmp ne i32 %explicable, 0
  br i1 %is.explicable, label %recover, label %finish

; PyErr_Clear(); value = recover(*args); goto finish;
recover:
  call void @PyErr_Clear()
  %recover.function = load ptr, %record + $graph_recover
  %recovered = call ptr @PyObject_Vectorcall(ptr %recover.function, ptr %args, i64 %count, ptr null)
  br label %finish

; Py_DECREF(planned);
; // Nothing between this comparison and the reference that same.frame takes lets another thread replace the frame.
; if (memcmp((*frame)->numbers, data of numbers, numbers_size) == 0) goto same.frame;
compare:
  call void @Py_DecRef(ptr %planned)
  %known.cell = load ptr, %record + $graph_frame
  %known.frame = load ptr, %known.cell + 0
  %known = load ptr, %known.frame + $data_offset
  %known.numbers = load ptr, %known + $frame_numbers
  %found.structure = load ptr, %numbers + $tensor_slot
  %found = load ptr, %found.structure + $data_offset
  %found.numbers = load ptr, %found + $tensor_data
  %numbers.size = load i64, %record + $graph_numbers_size
  %difference = call i32 @memcmp(ptr %known.numbers, ptr %found.numbers, i64 %numbers.size)
  %same = icmp eq i32 %difference, 0
  br i1 %same, label %same.frame, label %other.frame

; frame = make_frame(numbers);  // which keeps it as the last one, too
; if (frame == NULL) { value = NULL; goto finish; }
; goto make;
other.frame:
  %make.frame = load ptr, %record + $graph_make_frame
  %new.frame = call ptr @PyObject_Vectorcall(ptr %make.frame, ptr %numbers.at, i64 1, ptr null)
  store ptr %new.frame, ptr %frame.at
  %no.frame = icmp eq ptr %new.frame, null
  br i1 %no.frame, label %finish, label %make

; // Another thread may replace the last frame while this one makes objects, so a reference is taken.
; frame = Py_NewRef(the last frame);
same.frame:
  %frame.cell = load ptr, %record + $graph_frame
  %last.frame = load ptr, %frame.cell + 0
  call void @Py_IncRef(ptr %last.frame)
  store ptr %last.frame, ptr %frame.at
  br label %make

; // Calls are counted for what may be compiled anew for these numbers; a count that begins at 0 never gets there again.
; if (--frame->calls != 0) goto outputs.of;
make:
  %frame.object = load ptr, ptr %frame.at
  %frame = load ptr, %frame.object + $data_offset
  %calls.before = load i64, %frame + $frame_calls
  %calls = sub i64 %calls.before, 1
  store i64 %calls, %frame + $frame_calls
  %enough = icmp eq i64 %calls, 0
  br i1 %enough, label %many.calls, label %outputs.of

; answer = often(numbers);
; if (answer == NULL) { value = NULL; goto finish; }
many.calls:
  %often = load ptr, %record + $graph_often
  %heard = call ptr @PyObject_Vectorcall(ptr %often, ptr %numbers.at, i64 1, ptr null)
  %unheard = icmp eq ptr %heard, null
  br i1 %unheard, label %finish, label %heard.it

; Py_DECREF(answer);
heard.it:
  call void @Py_DecRef(ptr %heard)
  br label %outputs.of

; run = frame->run; models = data of frame->models;
outputs.of:
  %run.function = load ptr, %frame + $frame_run
  %models = load ptr, %frame + $frame_models
  br label %each

; for (i = 0; i != outputs; i++) {  // after it, &models[outputs] is the model of the arena
each:
  %i = phi i64 [ 0, %outputs.of ], [ %i.next, %made ]
  %all = icmp eq i64 %i, %outputs
  %offset = mul i64 %i, $model_size
  %model.at = getelementptr i8, ptr %models, i64 %offset
  br i1 %all, label %arena, label %one

;   behind[i] = make_tensor(&models[i]);
;   if (behind[i] == NULL) { value = NULL; goto finish; }
one:
  %output = call ptr @make_tensor(ptr %model.at)
  %output.at = getelementptr ptr, ptr %behind, i64 %i
  store ptr %output, ptr %output.at
  %no.output = icmp eq ptr %output, null
  br i1 %no.output, label %finish, label %made

; }
made:
  %i.next = add nuw i64 %i, 1
  br label %each

; // An arena that no call uses, if it is large enough; else a new one. Calls use it again in the order of the default
; // stream; in another one, each call has its own.
; if (is_apart(&models[outputs])) goto new.arena;
; idle = PyList_Size(arenas);
; if (idle < 1) goto new.arena;
arena:
  %arena.at = getelementptr ptr, ptr %objects, i64 %last
  %arenas = load ptr, %record + $graph_arenas
  %apart = call i1 @is_apart(ptr %model.at)
  br i1 %apart, label %new.arena, label %kept.arenas
kept.arenas:
  %idle = call i64 @PyList_Size(ptr %arenas)
  %none = icmp slt i64 %idle, 1
  br i1 %none, label %new.arena, label %take

; objects[last] = kept = Py_NewRef(PyList_GetItem(arenas, idle - 1));
; if (PyList_SetSlice(arenas, idle - 1, idle, NULL) != 0) { value = NULL; goto finish; }
take:
  %top = sub i64 %idle, 1
  %kept = call ptr @PyList_GetItem(ptr %arenas, i64 %top)
  call void @Py_IncRef(ptr %kept)
  store ptr %kept, ptr %arena.at
  %taken = call i32 @PyList_SetSlice(ptr %arenas, i64 %top, i64 %idle, ptr null)
  %not.taken = icmp ne i32 %taken, 0
  br i1 %not.taken, label %finish, label %measure

; if (kept->shape[0] >= models[outputs].nbytes) goto table;
measure:
  %kept.structure = load ptr, %kept + $tensor_slot
  %kept.record = load ptr, %kept.structure + $data_offset
  %kept.shape = load ptr, %kept.record + $tensor_shape
  %kept.size = load i64, %kept.shape + 0
  %wanted = load i64, %model.at + $model_nbytes
  %fits = icmp sge i64 %kept.size, %wanted
  br i1 %fits, label %table, label %too.small

; objects[last] = NULL; Py_DECREF(kept);
too.small:
  store ptr null, ptr %arena.at
  call void @Py_DecRef(ptr %kept)
  br label %new.arena

; objects[last] = make_tensor(&models[outputs]);
; if (objects[last] == NULL) { value = NULL; goto finish; }
new.arena:
  %fresh = call ptr @make_tensor(ptr %model.at)
  store ptr %fresh, ptr %arena.at
  %no.arena = icmp eq ptr %fresh, null
  br i1 %no.arena, label %finish, label %table

; // The table of constants; None once a constant was replaced.
; if (*table == None) goto new.table;
table:
  %table.at = getelementptr ptr, ptr %arena.at, i64 1
  %cell = load ptr, %record + $graph_table
  %current = load ptr, %cell + 0
  %stale = icmp eq ptr %current, @_Py_NoneStruct
  br i1 %stale, label %new.table, label %same.table

; objects[last + 1] = Py_NewRef(*table); goto run;
same.table:
  call void @Py_IncRef(ptr %current)
  store ptr %current, ptr %table.at
  br label %run

; objects[last + 1] = make_table();
; if (objects[last + 1] == NULL) { value = NULL; goto finish; }
new.table:
  %make.table = load ptr, %record + $graph_make_table
  %made.table = call ptr @PyObject_Vectorcall(ptr %make.table, ptr %objects, i64 0, ptr null)
  store ptr %made.table, ptr %table.at
  %no.table = icmp eq ptr %made.table, null
  br i1 %no.table, label %finish, label %run

; ran = call(run, objects, total);
; if (ran == NULL) { value = NULL; goto finish; }  // the arena goes with the other objects
run:
  %ran = call ptr @call(ptr %run.function, ptr %objects, i64 %total)
  %failed = icmp eq ptr %ran, null
  br i1 %failed, label %finish, label %give.back

; Py_DECREF(ran);
; if (!is_apart(&models[outputs]) && PyList_Append(arenas, objects[last]) != 0) { value = NULL; goto finish; }
give.back:
  call void @Py_DecRef(ptr %ran)
  br i1 %apart, label %answer, label %keep.arena
keep.arena:
  %used = load ptr, ptr %arena.at
  %appended = call i32 @PyList_Append(ptr %arenas, ptr %used)
  %not.appended = icmp ne i32 %appended, 0
  br i1 %not.appended, label %finish, label %answer

; // One result, or what Python makes of all of them.
; if (single < 0) goto compose;
answer:
  %single = load i64, %record + $graph_single
  %is.single = icmp sge i64 %single, 0
  br i1 %is.single, label %return.one, label %compose

; value = Py_NewRef(behind[single]); goto finish;
return.one:
  %result.at = getelementptr ptr, ptr %behind, i64 %single
  %result = load ptr, ptr %result.at
  call void @Py_IncRef(ptr %result)
  br label %finish

; value = compose(*objects[0 : last]);
compose:
  %compose.function = load ptr, %record + $graph_compose
  %composed = call ptr @PyObject_Vectorcall(ptr %compose.function, ptr %objects, i64 %last, ptr null)
  br label %finish

; // The arguments are the caller's; all behind them goes. A slot that was not reached is NULL, which Py_DecRef takes.
finish:
  %value = phi ptr [ null, %ask ], [ null, %refused ], [ %recovered, %recover ], [ null, %other.frame ],
                   [ null, %many.calls ], [ null, %one ], [ null, %take ], [ null, %new.arena ], [ null, %new.table ],
                   [ null, %run ], [ null, %keep.arena ], [ %result, %return.one ], [ %composed, %compose ]
  br label %release

; for (j = count; j != total; j++)
release:
  %j = phi i64 [ %count, %finish ], [ %j.next, %release.one ]
  %released = icmp eq i64 %j, %total
  br i1 %released, label %leave, label %release.one

;   Py_XDECREF(objects[j]);
release.one:
  %object.at = getelementptr ptr, ptr %objects, i64 %j
  %object = load ptr, ptr %object.at
  call void @Py_DecRef(ptr %object)
  %j.next = add nuw i64 %j, 1
  br label %release

; Py_XDECREF(numbers); Py_XDECREF(frame); PyMem_RawFree(block);
; return value;
leave:
  %old.numbers = load ptr, ptr %numbers.at
  call void @Py_DecRef(ptr %old.numbers)
  %old.frame = load ptr, ptr %frame.at
  call void @Py_DecRef(ptr %old.frame)
  call void @PyMem_RawFree(ptr %block)
  ret ptr %value
}

; int is_apart(Model* model) { return kind != CPU && oneir_current_stream(kind, device of model->tensor) != NULL; }
define internal i1 @is_apart(ptr %model) {
begin:
  %like = load ptr, %model + $model_tensor
  %like.structure = load ptr, %like + $tensor_slot
  %from = load ptr, %like.structure + $data_offset
  %kind = load i32, %from + $tensor_device_type
  %here = icmp eq i32 %kind, $device_cpu
  br i1 %here, label %no, label %look
look:
  %device = load i32, %from + $tensor_device_id
  %stream = call ptr @oneir_current_stream(i32 %kind, i32 %device)
  %chosen = icmp ne ptr %stream, null
  ret i1 %chosen
no:
  ret i1 false
}

; PyObject *make_tensor(Model *model)
; A new tensor like that of a model, or NULL and an exception. Its memory is a bytearray, which Python does not clear;
; large ones, and those on devices, are made by Python.
define internal ptr @make_tensor(ptr %model) {
; if (model->tensor == NULL) goto by.python;  // tensors of another library
start:
  %nbytes = load i64, %model + $model_nbytes
  %large = icmp ugt i64 %nbytes, $large_bytes
  %like = load ptr, %model + $model_tensor
  %others = icmp eq ptr %like, null
  br i1 %others, label %by.python, label %ours

; if (nbytes <= $large_bytes && model->tensor->device_type == CPU) goto here;
ours:
  %like.structure = load ptr, %like + $tensor_slot
  %from = load ptr, %like.structure + $data_offset
  %kind = load i32, %from + $tensor_device_type
  %away = icmp ne i32 %kind, $device_cpu
  %elsewhere = or i1 %large, %away
  br i1 %elsewhere, label %by.python, label %here

; return make();
by.python:
  %make = load ptr, %model + $model_make
  %made = call ptr @PyObject_Vectorcall(ptr %make, ptr null, i64 0, ptr null)
  ret ptr %made

; memory = PyByteArray_FromStringAndSize(NULL, nbytes + ALIGNMENT);
; if (memory == NULL) { structure = NULL; goto fail; }
here:
  %Tensor = table Tensor
  %Record = table Record
  %size = add i64 %nbytes, $alignment
  %memory = call ptr @PyByteArray_FromStringAndSize(ptr null, i64 %size)
  %no.memory = icmp eq ptr %memory, null
  br i1 %no.memory, label %fail, label %structure.for

; structure = Record();
; if (structure == NULL) goto fail;
structure.for:
  %structure = call ptr @PyObject_Vectorcall(ptr %Record, ptr null, i64 0, ptr null)
  %no.structure = icmp eq ptr %structure, null
  br i1 %no.structure, label %fail, label %tensor.for

; tensor = PyType_GenericAlloc(Tensor, 0);
; if (tensor != NULL) goto fill;
tensor.for:
  %tensor = call ptr @PyType_GenericAlloc(ptr %Tensor, i64 0)
  %no.tensor = icmp eq ptr %tensor, null
  br i1 %no.tensor, label %fail, label %fill

; Py_XDECREF(structure); Py_XDECREF(memory); return NULL;
fail:
  %unused = phi ptr [ null, %here ], [ null, %structure.for ], [ %structure, %tensor.for ]
  call void @Py_DecRef(ptr %unused)
  call void @Py_DecRef(ptr %memory)
  ret ptr null

; // The references to `structure` and `memory` become the tensor's.
; *data of structure = *data of model->tensor->_record;
; data of structure->data = PyByteArray_AsString(memory), rounded up to a multiple of ALIGNMENT;
; tensor->_record = structure; tensor->_owner = memory;
; tensor->{_layout, _dtype, _device} = Py_NewRef(those of model->tensor);
; return tensor;
fill:
  %to = load ptr, %structure + $data_offset
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 $record_size, i1 false)
  %begin = call ptr @PyByteArray_AsString(ptr %memory)
  %begin.number = ptrtoint ptr %begin to i64
  %beyond = add i64 %begin.number, $below_alignment
  %aligned = and i64 %beyond, $alignment_mask
  store i64 %aligned, %to + $tensor_data
  store ptr %structure, %tensor + $tensor_slot
  store ptr %memory, %tensor + $tensor_owner
  %layout = load ptr, %like + $tensor_layout
  call void @Py_IncRef(ptr %layout)
  store ptr %layout, %tensor + $tensor_layout
  %name = load ptr, %like + $tensor_dtype_name
  call void @Py_IncRef(ptr %name)
  store ptr %name, %tensor + $tensor_dtype_name
  %device = load ptr, %like + $tensor_device_object
  call void @Py_IncRef(ptr %device)
  store ptr %device, %tensor + $tensor_device_object
  ret ptr %tensor
}

declare ptr @oneir_current_stream(i32, i32)
declare ptr @PyByteArray_FromStringAndSize(ptr, i64)
declare ptr @PyByteArray_AsString(ptr)
declare ptr @PyType_GenericAlloc(ptr, i64)
declare i64 @PyList_Size(ptr)
declare ptr @PyList_GetItem(ptr, i64)
declare i32 @PyList_SetSlice(ptr, i64, i64, ptr)
declare i32 @PyList_Append(ptr, ptr)
declare i32 @PyErr_ExceptionMatches(ptr)
declare i32 @memcmp(ptr, ptr, i64)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
