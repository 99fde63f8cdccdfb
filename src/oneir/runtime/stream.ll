; The streams that threads have chosen: what a thread launches and copies goes into its stream of the device.
;
;   struct Choice { int32_t type, device; void* stream; } choices[16];    of each thread; type 0: the rest is empty

%Choice = type { i32, i32, ptr }

; Whether any thread has ever chosen a stream: most programs do not, and their launches look no further.
@chosen = internal global i32 0
@key = internal global i32 0

declare i32 @pthread_key_create(ptr, ptr)
declare ptr @pthread_getspecific(i32)
declare i32 @pthread_setspecific(i32, ptr)
declare ptr @calloc(i64, i64)
declare void @free(ptr)

; int32_t oneir_make_streams(void) { return pthread_key_create(&key, free); }    called once, before all others
define i32 @oneir_make_streams() {
  %code = call i32 @pthread_key_create(ptr @key, ptr @free)
  ret i32 %code
}

; Choice* find(Choice* choices, int32_t type, int32_t device)    the place of a device's stream, or an empty one, or null
define internal ptr @find(ptr %choices, i32 %type, i32 %device) {
begin:
  br label %look
; for (i = 0; i != 16; ++i)
;   if (choices[i].type == 0 || choices[i].type == type && choices[i].device == device) return &choices[i];
look:
  %i = phi i64 [ 0, %begin ], [ %next, %onward ]
  %choice = getelementptr %Choice, ptr %choices, i64 %i
  %found.type = load i32, ptr %choice, align 8
  %device.at = getelementptr %Choice, ptr %choices, i64 %i, i32 1
  %found.device = load i32, ptr %device.at, align 4
  %empty = icmp eq i32 %found.type, 0
  %same.type = icmp eq i32 %found.type, %type
  %same.device = icmp eq i32 %found.device, %device
  %same = and i1 %same.type, %same.device
  %here = or i1 %empty, %same
  br i1 %here, label %found, label %onward
found:
  ret ptr %choice
onward:
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, 16
  br i1 %more, label %look, label %none
none:
  ret ptr null
}

; void* oneir_current_stream(int32_t type, int32_t device)    null where the thread has not chosen one
define ptr @oneir_current_stream(i32 %type, i32 %device) {
; if (!chosen) return NULL;
begin:
  %some = load atomic i32, ptr @chosen monotonic, align 4
  %none = icmp eq i32 %some, 0
  br i1 %none, label %default, label %look, !prof !0
default:
  ret ptr null

; choices = pthread_getspecific(key);
; return choices && (choice = find(choices, type, device)) ? choice->stream : NULL;
look:
  %number = load i32, ptr @key, align 4
  %choices = call ptr @pthread_getspecific(i32 %number)
  %nothing = icmp eq ptr %choices, null
  br i1 %nothing, label %default, label %search
search:
  %choice = call ptr @find(ptr %choices, i32 %type, i32 %device)
  %full = icmp eq ptr %choice, null
  br i1 %full, label %default, label %known
known:
  %stream.at = getelementptr %Choice, ptr %choice, i64 0, i32 2
  %stream = load ptr, ptr %stream.at, align 8
  ret ptr %stream
}

; int32_t oneir_choose_stream(int32_t type, int32_t device, void* stream)    1 where there is no place for another one
define i32 @oneir_choose_stream(i32 %type, i32 %device, ptr %stream) {
; choices = pthread_getspecific(key);
; if (!choices) { if (!(choices = calloc(16, sizeof(Choice)))) return 1; pthread_setspecific(key, choices); }
begin:
  %number = load i32, ptr @key, align 4
  %had = call ptr @pthread_getspecific(i32 %number)
  %missing = icmp eq ptr %had, null
  br i1 %missing, label %make, label %look
make:
  %made = call ptr @calloc(i64 16, i64 16)
  %failed = icmp eq ptr %made, null
  br i1 %failed, label %no, label %keep
keep:
  %kept = call i32 @pthread_setspecific(i32 %number, ptr %made)
  br label %look

; if (!(choice = find(choices, type, device))) return 1;
; *choice = (Choice){type, device, stream}; chosen = 1; return 0;
look:
  %choices = phi ptr [ %had, %begin ], [ %made, %keep ]
  %choice = call ptr @find(ptr %choices, i32 %type, i32 %device)
  %full = icmp eq ptr %choice, null
  br i1 %full, label %no, label %write
write:
  store i32 %type, ptr %choice, align 8
  %device.at = getelementptr %Choice, ptr %choice, i64 0, i32 1
  store i32 %device, ptr %device.at, align 4
  %stream.at = getelementptr %Choice, ptr %choice, i64 0, i32 2
  store ptr %stream, ptr %stream.at, align 8
  store atomic i32 1, ptr @chosen monotonic, align 4
  ret i32 0
no:
  ret i32 1
}

!0 = !{!"branch_weights", i32 2000, i32 1}
