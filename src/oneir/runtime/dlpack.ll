; The deleters of tensors that were exported through DLPack, and the destructors of the capsules that they travel in.
; Consumers call them from any thread, with or without the GIL, and even with a Python exception in flight, so they
; cannot be Python functions. Once the interpreter is gone there is nothing left to release.
;
; Above each block stands in C what it does, with its labels and names. dlpack.py gives the $$names, which are offsets
; of fields.

@name = internal constant [9 x i8] c"dltensor\00"
@versioned_name = internal constant [19 x i8] c"dltensor_versioned\00"

; void delete_managed(DLManagedTensor *managed), void delete_managed_versioned(DLManagedTensorVersioned *managed)
; release(managed->context, managed);
define void @delete_managed(ptr %managed) {
  %context.at = getelementptr i8, ptr %managed, i64 $managed_context
  %context = load ptr, ptr %context.at
  call void @release(ptr %context, ptr %managed)
  ret void
}

define void @delete_managed_versioned(ptr %managed) {
  %context.at = getelementptr i8, ptr %managed, i64 $versioned_context
  %context = load ptr, ptr %context.at
  call void @release(ptr %context, ptr %managed)
  ret void
}

; void release(PyObject *object, void *memory)
define internal void @release(ptr %object, ptr %memory) {
; if (!Py_IsInitialized()) return;
start:
  %alive = call i32 @Py_IsInitialized()
  %gone = icmp eq i32 %alive, 0
  br i1 %gone, label %leave, label %free

; state = PyGILState_Ensure(); Py_DECREF(object); PyGILState_Release(state);
; PyMem_RawFree(memory);
free:
  %state = call i32 @PyGILState_Ensure()
  call void @Py_DecRef(ptr %object)
  call void @PyGILState_Release(i32 %state)
  call void @PyMem_RawFree(ptr %memory)
  br label %leave

; return;
leave:
  ret void
}

; void delete_capsule(PyObject *capsule), void delete_capsule_versioned(PyObject *capsule)
; The destructors of capsules. A consumer renames the capsule that it takes; one that kept its name was never taken.
define void @delete_capsule(ptr %capsule) {
  call void @release_capsule(ptr %capsule, ptr @name, i64 $managed_deleter)
  ret void
}

define void @delete_capsule_versioned(ptr %capsule) {
  call void @release_capsule(ptr %capsule, ptr @versioned_name, i64 $versioned_deleter)
  ret void
}

; void release_capsule(PyObject *capsule, char *name, int64_t deleter.offset)
define internal void @release_capsule(ptr %capsule, ptr %name, i64 %deleter.offset) {
; if (!PyCapsule_IsValid(capsule, name)) return;
start:
  %is.valid = call i32 @PyCapsule_IsValid(ptr %capsule, ptr %name)
  %taken = icmp eq i32 %is.valid, 0
  br i1 %taken, label %leave, label %delete

; managed = PyCapsule_GetPointer(capsule, name);
; managed->deleter(managed);
delete:
  %managed = call ptr @PyCapsule_GetPointer(ptr %capsule, ptr %name)
  %deleter.at = getelementptr i8, ptr %managed, i64 %deleter.offset
  %deleter = load ptr, ptr %deleter.at
  call void %deleter(ptr %managed)
  br label %leave

; return;
leave:
  ret void
}

declare void @Py_DecRef(ptr)
declare i32 @Py_IsInitialized()
declare i32 @PyGILState_Ensure()
declare void @PyGILState_Release(i32)
declare void @PyMem_RawFree(ptr)
declare i32 @PyCapsule_IsValid(ptr, ptr)
declare ptr @PyCapsule_GetPointer(ptr, ptr)
