; What a program that stands alone has in place of the runtime of a Python process: arguments of the packed convention,
; errors as codes and texts, weights. standalone.py puts the allocator of workspaces in front, and behind it a way to map
; a file. Functions return a code (`Status` in standalone.py) and, unless `text` is NULL, say why in *text.
;
; Above each block stands in C what it does.

%Tensor = type { ptr, i32, i32, i32, i32, ptr, ptr, i64 } ; data, device, dimensions, dtype, shape, strides, byte offset
%Model = type { ptr, i64 } ; weights, and the bytes of the file that is mapped, or 0

@no.model = private constant [61 x i8] c"the model is not initialized, or was freed; call _init first\00"
@no.memory = private constant [34 x i8] c"there is not enough memory for it\00"
@bad.weights = private constant [70 x i8] c"the file is not that of the weights with which the model was exported\00"
@no.weights = private constant [56 x i8] c"the file of weights cannot be read, or has another size\00"
@null = private constant [40 x i8] c"a pointer that must not be NULL is NULL\00"
@small = private constant [57 x i8] c"the workspace has fewer bytes than _plan says; or pass 0\00"
@extent = private constant [54 x i8] c"an extent of a shape is negative, or larger than 2^40\00"
@unknown = private constant [36 x i8] c"the call failed and did not say why\00"

; void oneir_drop_error(Value *value) {}  // texts of errors are constants here
define void @oneir_drop_error(ptr %value) {
  ret void
}

; int32_t fail(int32_t code, const char *why, const char **text) { if (text != NULL) *text = why; return code; }
define internal i32 @fail(i32 %code, ptr %why, ptr %text) {
  %unwanted = icmp eq ptr %text, null
  br i1 %unwanted, label %done, label %tell
tell:
  store ptr %why, ptr %text
  br label %done
done:
  ret i32 %code
}

define i32 @fail_null(ptr %text) {
  %code = call i32 @fail(i32 1, ptr @null, ptr %text)
  ret i32 %code
}
define i32 @fail_small(ptr %text) {
  %code = call i32 @fail(i32 1, ptr @small, ptr %text)
  ret i32 %code
}
define i32 @fail_extent(ptr %text) {
  %code = call i32 @fail(i32 1, ptr @extent, ptr %text)
  ret i32 %code
}
define i32 @fail_memory(ptr %text) {
  %code = call i32 @fail(i32 2, ptr @no.memory, ptr %text)
  ret i32 %code
}
define i32 @fail_model(ptr %text) {
  %code = call i32 @fail(i32 1, ptr @no.model, ptr %text)
  ret i32 %code
}

; int32_t fail_call(const Value *result, const char **text)
; The code and the text of an error of the packed convention. By the first letter of its kind: MemoryError, RuntimeError;
; all others speak of arguments.
define i32 @fail_call(ptr %result, ptr %text) {
; if (result->code != 64) return fail(FAILED, unknown, text);
entry:
  %what = load i32, ptr %result
  %is.record = icmp eq i32 %what, 64
  br i1 %is.record, label %record, label %strange
strange:
  %lost = call i32 @fail(i32 4, ptr @unknown, ptr %text)
  ret i32 %lost
; record = result->pointer; letter = record->kind[0];
; return fail(letter == 'M' ? NO_MEMORY : letter == 'R' ? FAILED : INVALID, record->message, text);
record:
  %place = getelementptr i8, ptr %result, i64 8
  %error = load ptr, ptr %place
  %kind = load ptr, ptr %error
  %message.at = getelementptr { ptr, ptr }, ptr %error, i32 0, i32 1
  %message = load ptr, ptr %message.at
  %letter = load i8, ptr %kind
  %is.memory = icmp eq i8 %letter, 77
  %is.run = icmp eq i8 %letter, 82
  %other = select i1 %is.run, i32 4, i32 1
  %code = select i1 %is.memory, i32 2, i32 %other
  %told = call i32 @fail(i32 %code, ptr %message, ptr %text)
  ret i32 %told
}

; Arguments ------------------------------------------------------------------------------------------------------------

; void put_number(Value *values, int64_t index, int32_t code, int64_t bits): values[index] = {code, 0, bits};
define void @put_number(ptr %values, i64 %index, i32 %code, i64 %bits) {
  %value = getelementptr [16 x i8], ptr %values, i64 %index
  store i32 %code, ptr %value
  %flags.at = getelementptr i8, ptr %value, i64 4
  store i32 0, ptr %flags.at
  %payload.at = getelementptr i8, ptr %value, i64 8
  store i64 %bits, ptr %payload.at
  ret void
}

; void put_tensor(values, int64_t index, DLTensor *tensors, void *data, int32_t ndim, int32_t dtype,
;                 const int64_t *shape, int32_t flags)
; tensors[index] = {data, {CPU, 0}, ndim, dtype, shape, NULL, 0}; values[index] = {TENSOR, flags, &tensors[index]};
define void @put_tensor(ptr %values, i64 %index, ptr %tensors, ptr %data, i32 %ndim, i32 %dtype, ptr %shape, i32 %flags) {
  %tensor = getelementptr %Tensor, ptr %tensors, i64 %index
  store ptr %data, ptr %tensor
  %kind.at = getelementptr %Tensor, ptr %tensor, i32 0, i32 1
  store i32 1, ptr %kind.at
  %device.at = getelementptr %Tensor, ptr %tensor, i32 0, i32 2
  store i32 0, ptr %device.at
  %ndim.at = getelementptr %Tensor, ptr %tensor, i32 0, i32 3
  store i32 %ndim, ptr %ndim.at
  %dtype.at = getelementptr %Tensor, ptr %tensor, i32 0, i32 4
  store i32 %dtype, ptr %dtype.at
  %shape.at = getelementptr %Tensor, ptr %tensor, i32 0, i32 5
  store ptr %shape, ptr %shape.at
  %strides.at = getelementptr %Tensor, ptr %tensor, i32 0, i32 6
  store ptr null, ptr %strides.at
  %offset.at = getelementptr %Tensor, ptr %tensor, i32 0, i32 7
  store i64 0, ptr %offset.at
  %value = getelementptr [16 x i8], ptr %values, i64 %index
  store i32 7, ptr %value
  %flags.at = getelementptr i8, ptr %value, i64 4
  store i32 %flags, ptr %flags.at
  %payload.at = getelementptr i8, ptr %value, i64 8
  store ptr %tensor, ptr %payload.at
  ret void
}

; void put_addresses(int64_t *table, const int64_t *offsets, int64_t count, const char *base)
; for (i = 0; i != count; i++) table[i] = (int64_t)(base + offsets[i]);
define void @put_addresses(ptr %table, ptr %offsets, i64 %count, ptr %base) {
entry:
  br label %each
each:
  %i = phi i64 [ 0, %entry ], [ %next, %one ]
  %done = icmp eq i64 %i, %count
  br i1 %done, label %out, label %one
one:
  %offset.at = getelementptr i64, ptr %offsets, i64 %i
  %offset = load i64, ptr %offset.at
  %address = getelementptr i8, ptr %base, i64 %offset
  %number = ptrtoint ptr %address to i64
  %slot = getelementptr i64, ptr %table, i64 %i
  store i64 %number, ptr %slot
  %next = add i64 %i, 1
  br label %each
out:
  ret void
}

; ptr aligned(ptr memory): memory, or the next byte whose address is a multiple of 64.
define ptr @aligned(ptr %memory) {
  %address = ptrtoint ptr %memory to i64
  %negative = sub i64 0, %address
  %gap = and i64 %negative, 63
  %next = getelementptr i8, ptr %memory, i64 %gap
  ret ptr %next
}

; Models ---------------------------------------------------------------------------------------------------------------

; int32_t init_embedded(Model *model, const void *weights, const char **text)
; if (model == NULL) return fail_null(text);
; *model = {weights, 0}; return 0;
define i32 @init_embedded(ptr %model, ptr %weights, ptr %text) {
  %nowhere = icmp eq ptr %model, null
  br i1 %nowhere, label %refuse, label %fill
refuse:
  %code = call i32 @fail_null(ptr %text)
  ret i32 %code
fill:
  store ptr %weights, ptr %model
  %bytes.at = getelementptr %Model, ptr %model, i32 0, i32 1
  store i64 0, ptr %bytes.at
  ret i32 0
}

; int32_t init_file(Model *model, const char *path, const int64_t header[8], int64_t bytes, const char **text)
; The weights are those of a file of so many bytes, which begins with `header`; behind it and as many zeros they lie.
define i32 @init_file(ptr %model, ptr %path, ptr %header, i64 %bytes, ptr %text) {
; if (model == NULL || path == NULL) return fail_null(text);
; *model = {NULL, 0}; memory = read_file(path, bytes);
; if (memory == NULL) return fail(BAD_WEIGHTS, no_weights, text);
entry:
  %no.place = icmp eq ptr %model, null
  %no.path = icmp eq ptr %path, null
  %missing = or i1 %no.place, %no.path
  br i1 %missing, label %refuse, label %begin
refuse:
  %code.null = call i32 @fail_null(ptr %text)
  ret i32 %code.null
begin:
  %bytes.at = getelementptr %Model, ptr %model, i32 0, i32 1
  store ptr null, ptr %model
  store i64 0, ptr %bytes.at
  %memory = call ptr @read_file(ptr %path, i64 %bytes)
  %unread = icmp eq ptr %memory, null
  br i1 %unread, label %lost, label %compare
lost:
  %code.lost = call i32 @fail(i32 3, ptr @no.weights, ptr %text)
  ret i32 %code.lost
; for (i = 0; i != 8; i++) if (((int64_t *)memory)[i] != header[i]) goto other;
compare:
  %i = phi i64 [ 0, %begin ], [ %next, %same ]
  %all = icmp eq i64 %i, 8
  br i1 %all, label %done, label %word
word:
  %found.at = getelementptr i64, ptr %memory, i64 %i
  %found = load i64, ptr %found.at
  %expected.at = getelementptr i64, ptr %header, i64 %i
  %expected = load i64, ptr %expected.at
  %equal = icmp eq i64 %found, %expected
  br i1 %equal, label %same, label %other
same:
  %next = add i64 %i, 1
  br label %compare
; close_file(memory, bytes); return fail(BAD_WEIGHTS, bad_weights, text);
other:
  call void @close_file(ptr %memory, i64 %bytes)
  %code.other = call i32 @fail(i32 3, ptr @bad.weights, ptr %text)
  ret i32 %code.other
; *model = {memory + 128, bytes}; return 0;
done:
  %weights = getelementptr i8, ptr %memory, i64 128
  store ptr %weights, ptr %model
  store i64 %bytes, ptr %bytes.at
  ret i32 0
}

; void free_file(Model *model)
; if (model != NULL && model->bytes != 0) close_file(model->weights - 128, model->bytes);
; free_model(model);
define void @free_file(ptr %model) {
entry:
  %nowhere = icmp eq ptr %model, null
  br i1 %nowhere, label %out, label %look
look:
  %bytes.at = getelementptr %Model, ptr %model, i32 0, i32 1
  %bytes = load i64, ptr %bytes.at
  %weights = load ptr, ptr %model
  %mapped = icmp ne i64 %bytes, 0
  br i1 %mapped, label %close, label %out
close:
  %memory = getelementptr i8, ptr %weights, i64 -128
  call void @close_file(ptr %memory, i64 %bytes)
  br label %out
out:
  call void @free_model(ptr %model)
  ret void
}

; void free_model(Model *model)
; Gives back the workspaces that are kept; whoever needs one takes it anew.
define void @free_model(ptr %model) {
; if (model != NULL) *model = {NULL, 0};
entry:
  %nowhere = icmp eq ptr %model, null
  br i1 %nowhere, label %each, label %clear
clear:
  store ptr null, ptr %model
  %bytes.at = getelementptr %Model, ptr %model, i32 0, i32 1
  store i64 0, ptr %bytes.at
  br label %each
; for (i = 0; i != 8; i++) {
;   block = exchange(&slots[i], NULL);
;   if (block != NULL) { forget(block); give_back(block); }
; }
each:
  %i = phi i64 [ 0, %entry ], [ 0, %clear ], [ %next, %on ]
  %done = icmp eq i64 %i, 8
  br i1 %done, label %out, label %one
one:
  %slot = getelementptr ptr, ptr @slots, i64 %i
  %block = atomicrmw xchg ptr %slot, ptr null acq_rel
  %empty = icmp eq ptr %block, null
  br i1 %empty, label %on, label %drop
drop:
  call void @forget(ptr %block)
  call void @give_back(ptr %block)
  br label %on
on:
  %next = add i64 %i, 1
  br label %each
out:
  ret void
}
