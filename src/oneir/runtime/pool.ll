; The worker pool: one parallel loop at a time, shared by its caller and by however many workers turn up.
;
;   int32_t oneir_parallel_for(int32_t (*body)(void* env, int64_t begin, int64_t end), void* env,
;                              int64_t extent, int32_t max_threads)
;
; How a region (one parallel loop) runs:
;
;   - The caller owns the pool while @busy is 1. Whoever finds it busy, a nested loop included, runs its loop alone.
;   - [0, extent) is cut into one range a participant. A participant takes pieces of its own range, half of what is left
;     each time, and then pieces of the others' ranges. So memory stays with the thread that used it last, yet the
;     caller never waits for a worker that has not begun: it does that worker's share itself.
;   - The first pieces are small, and no piece is to take more than 0.1 s: between them the main thread looks for
;     signals, which end the loop when Python's handler raises (signals.py).
;   - A worker must pass the gate before it looks at @region, and the caller writes @region only when nobody is inside:
;       gate = asleep << 31 | free places << 16 | workers inside
;     The caller opens the gate by setting the free places, closes it by clearing them, and waits until nobody is
;     inside.
;   - @epoch counts the regions. Workers watch it: spinning for a short while after each region, then asleep on it.
;   - A worker that finds itself on the caller's processor moves to another one: there it could only take turns with the
;     caller. Schedulers wake threads where they ran before, workers and callers, and a worker that is wanted again and
;     again never sleeps; taking turns costs a loop no time against running alone, so `judge` would not notice.
;   - Where other threads want the processors too, a worker may lose its own in the middle of a piece, for milliseconds,
;     while its caller waits. The caller estimates from its own pieces how long the loop would have taken alone. What it
;     lost against that, twice, is for how long the next loops run alone, so that loops which do not profit from workers
;     take at most half as long again as without. Loops of few iterations run longer alone than that, so a small part
;     of a loop's time, as that of asking workers who come too late, is no loss.
;   - In a process where another library has threads of its own, as PyTorch's OpenMP has, two pools would want the same
;     processors: threads of either one spin for milliseconds after each region. There loops of the main thread can run
;     on the threads of that library, its team; nobody is published to, and its barrier takes the place of the gate.
;
; pool.py appends what differs between machines:
;   @wait_on, @wake_up (sleep while a word has a value; wake sleepers), @now (nanoseconds), @pause, @processor,
;   @leave_processor, @get_fp_mode, @set_fp_mode (rounding and denormals), @worker_stack_bytes, @detached,
;   @blocked_signals, @sig_setmask.
;
; Above each block stands in C what it does, with its labels and names.

; Mutable words lie on cache lines of their own (128 bytes: processors fetch lines in pairs).
@busy     = internal global [32 x i32] zeroinitializer, align 128
@gate     = internal global [32 x i32] zeroinitializer, align 128
@epoch    = internal global [32 x i32] zeroinitializer, align 128
@sleepers = internal global [32 x i32] zeroinitializer, align 128

; Rarely written: the size asked for, the workers there are, and for how long a worker and a waiting caller spin.
@size    = internal global i32 1, align 128
@started = internal global i32 0
@spin_ns = internal global i64 0

%Region = type { ptr, ptr, i64, i64, i32, i32 } ; body, env, smallest piece, floating point mode, ranges, result
@region = internal global %Region zeroinitializer, align 128
@caller.processor = internal global i32 -1
@caller.work = internal global [3 x i64] zeroinitializer ; when the caller began and ended its pieces, and iterations
@alone_ns = internal global i64 0 ; for how much longer loops run alone

; OpenMP's GOMP_parallel and omp_get_thread_num, of the library whose threads are taken; null where none are.
@team.parallel = internal global ptr null
@team.number   = internal global ptr null

%Range = type { i64, i64, [14 x i64] } ; next, end
@ranges = internal global [256 x %Range] zeroinitializer, align 128

declare i32 @pthread_attr_init(ptr)
declare i32 @pthread_attr_setstacksize(ptr, i64)
declare i32 @pthread_attr_setdetachstate(ptr, i32)
declare i32 @pthread_attr_destroy(ptr)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @sched_yield()
declare i32 @llvm.smin.i32(i32, i32)
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
declare i32 @oneir_poll_signals_at(i64)
declare i1 @oneir_is_main_thread()
declare i64 @oneir_coarse_time()

; Settings -------------------------------------------------------------------------------------------------------------

; void oneir_pool_configure(int32_t new_size, int64_t new_spin_ns): size = min(new_size, 256); spin_ns = new_spin_ns;
define void @oneir_pool_configure(i32 %size, i64 %spin_ns) {
  %capped = call i32 @llvm.smin.i32(i32 %size, i32 256)
  store atomic i32 %capped, ptr @size monotonic, align 4
  store atomic i64 %spin_ns, ptr @spin_ns monotonic, align 8
  ret void
}

; void oneir_pool_use_team(void (*parallel)(void (*)(void *), void *, unsigned, unsigned), int32_t (*number)(void))
;   team.number = number; team.parallel = parallel;  // release: who sees the one sees the other
define void @oneir_pool_use_team(ptr %parallel, ptr %number) {
  store atomic ptr %number, ptr @team.number monotonic, align 8
  store atomic ptr %parallel, ptr @team.parallel release, align 8
  ret void
}

; void oneir_pool_after_fork(void): team.parallel = NULL; started = sleepers = gate = busy = 0;
; In a child of fork: workers and teams stayed with the parent, and a region that was running has lost them.
define void @oneir_pool_after_fork() {
  store atomic ptr null, ptr @team.parallel monotonic, align 8
  store atomic i32 0, ptr @started monotonic, align 4
  store atomic i32 0, ptr @sleepers seq_cst, align 4
  store atomic i32 0, ptr @gate seq_cst, align 4
  store atomic i32 0, ptr @busy seq_cst, align 4
  ret void
}

; The loop -------------------------------------------------------------------------------------------------------------

define i32 @oneir_parallel_for(ptr %body, ptr %env, i64 %extent, i32 %max_threads) {
; if (extent >= 1) goto count;
entry:
  %empty = icmp slt i64 %extent, 1
  br i1 %empty, label %nothing, label %count

; return 0;
nothing:
  ret i32 0

; wanted = min(max_threads < 1 ? size : max_threads, 256, extent);
; least = first_piece(extent); first = 0;
; if (wanted < 2) goto alone;
count:
  %size = load atomic i32, ptr @size monotonic, align 4
  %default = icmp slt i32 %max_threads, 1
  %asked = select i1 %default, i32 %size, i32 %max_threads
  %capped = call i32 @llvm.smin.i32(i32 %asked, i32 256)
  %capped.wide = sext i32 %capped to i64
  %wanted.wide = call i64 @llvm.smin.i64(i64 %capped.wide, i64 %extent)
  %wanted = trunc i64 %wanted.wide to i32
  %least = call i64 @first_piece(i64 %extent)
  %single = icmp slt i32 %wanted, 2
  br i1 %single, label %alone, label %doubt

; // After a region that lost time (see judge), a sixteenth at a time runs alone, until no doubt is left: a long loop
; // must not run alone for a short one's loss.
; for (first = 0, limit = least; alone_ns > 0;) {  // after it, `look`
doubt:
  %first = phi i64 [ 0, %count ], [ %stop.timed, %on ]
  %limit = phi i64 [ %least, %count ], [ %limit.next, %on ]
  %doubt.ns = load atomic i64, ptr @alone_ns monotonic, align 8
  %doubtful = icmp sgt i64 %doubt.ns, 0
  br i1 %doubtful, label %timed, label %look

;   stop = first + min(max(extent / 16, 1), limit, extent - first);
;   before = now(); result = body(env, first, stop); spent = now() - before;
;   limit = next_limit(limit, spent); alone_ns -= spent;
;   if (result != 0) return result;
timed:
  %sixteenth = lshr i64 %extent, 4
  %large = call i64 @llvm.smax.i64(i64 %sixteenth, i64 1)
  %step = call i64 @llvm.smin.i64(i64 %large, i64 %limit)
  %ahead = sub i64 %extent, %first
  %some = call i64 @llvm.smin.i64(i64 %step, i64 %ahead)
  %stop.timed = add i64 %first, %some
  %before = call i64 @now()
  %result.timed = call i32 %body(ptr %env, i64 %first, i64 %stop.timed)
  %after = call i64 @now()
  %spent = sub i64 %after, %before
  %limit.next = call i64 @next_limit(i64 %limit, i64 %spent)
  %negative = sub i64 %before, %after
  %o0 = atomicrmw add ptr @alone_ns, i64 %negative monotonic
  %well = icmp eq i32 %result.timed, 0
  br i1 %well, label %on, label %over

;   if (stop == extent) return result;
;   first = stop;
; }
on:
  %finished = icmp eq i64 %stop.timed, %extent
  br i1 %finished, label %over, label %doubt

; return result;
over:
  ret i32 %result.timed

; // One iteration cannot be shared.
; // Read before writing, so that callers who lose do not take the cache line from the one who runs.
; if (extent - first < 2 || busy != 0) goto alone;
look:
  %remaining = sub i64 %extent, %first
  %several = icmp sgt i64 %remaining, 1
  %seen = load atomic i32, ptr @busy monotonic, align 4
  %idle = icmp eq i32 %seen, 0
  %free = and i1 %several, %idle
  br i1 %free, label %take, label %alone

; if (!compare_exchange(&busy, 0, 1)) goto alone;  // acquire: what the last owner wrote is seen
take:
  %pair = cmpxchg ptr @busy, i32 0, i32 1 acquire monotonic
  %taken = extractvalue { i32, i1 } %pair, 1
  br i1 %taken, label %whose, label %alone

; parallel = team.parallel;
; if (parallel == NULL) goto staff;
whose:
  %parallel = load atomic ptr, ptr @team.parallel acquire, align 8
  %none.else = icmp eq ptr %parallel, null
  br i1 %none.else, label %staff, label %who

; // OpenMP has a team for each thread that it is called by, which would want the same processors.
; if (!oneir_is_main_thread()) goto staff;
who:
  %is.main = call i1 @oneir_is_main_thread()
  br i1 %is.main, label %team, label %staff

; begun = now();
; fill_region(body, env, first, extent, wanted);
; parallel(member, NULL, 0, 0);  // as many as it likes: it ends threads when it is asked for fewer than before
; goto done;
team:
  %t.team = call i64 @now()
  call void @fill_region(ptr %body, ptr %env, i64 %first, i64 %extent, i32 %wanted)
  call void %parallel(ptr @member, ptr null, i32 0, i32 0)
  br label %done

; return run_alone(body, env, first, extent);
alone:
  %begin.alone = phi i64 [ 0, %count ], [ %first, %look ], [ %first, %take ], [ %first, %give.up ]
  %result.alone = tail call i32 @run_alone(ptr %body, ptr %env, i64 %begin.alone, i64 %extent)
  ret i32 %result.alone

; helpers = wanted - 1;  // workers are started when first wanted
; if (started >= helpers) goto publish;
staff:
  %helpers = sub i32 %wanted, 1
  %present = load atomic i32, ptr @started monotonic, align 4
  %enough = icmp sge i32 %present, %helpers
  br i1 %enough, label %publish, label %hire

; start_workers(helpers);
; if (started >= 1) goto publish;
hire:
  call void @start_workers(i32 %helpers)
  %hired = load atomic i32, ptr @started monotonic, align 4
  %none = icmp slt i32 %hired, 1
  br i1 %none, label %give.up, label %publish

; busy = 0; goto alone;  // no thread can be created
give.up:
  store atomic i32 0, ptr @busy release, align 4
  br label %alone

; begun = now(); places = min(helpers, workers);
; fill_region(body, env, first, extent, places + 1);
; gate = places << 16;  // release: who enters sees the region
; epoch++;
; // Both sequentially consistent, as in `drowsy`: either this sees the sleeper, or the sleeper sees the new epoch.
; asleep = sleepers; lacking = places - (workers - asleep);
; if (lacking <= 0) goto run;
publish:
  %workers = phi i32 [ %present, %staff ], [ %hired, %hire ]
  %t.publish = call i64 @now()
  %places = call i32 @llvm.smin.i32(i32 %helpers, i32 %workers)
  %participants = add i32 %places, 1
  call void @fill_region(ptr %body, ptr %env, i64 %first, i64 %extent, i32 %participants)
  %open = shl i32 %places, 16
  store atomic i32 %open, ptr @gate release, align 4
  %old.epoch = atomicrmw add ptr @epoch, i32 1 seq_cst
  %asleep = load atomic i32, ptr @sleepers seq_cst, align 4
  %awake = sub i32 %workers, %asleep
  %lacking = sub i32 %places, %awake
  %must.wake = icmp sgt i32 %lacking, 0
  br i1 %must.wake, label %wake, label %run

; wake_up(&epoch, lacking);
wake:
  call void @wake_up(ptr @epoch, i32 %lacking)
  br label %run

; run_callers();
; join();
run:
  call void @run_callers()
  call void @join()
  br label %done

; judge(begun, extent - first);
; result = region.result; busy = 0;  // release: the next owner may write the region
; return result;
done:
  %begun = phi i64 [ %t.team, %team ], [ %t.publish, %run ]
  %shared = sub i64 %extent, %first
  call void @judge(i64 %begun, i64 %shared)
  %result.at = getelementptr %Region, ptr @region, i32 0, i32 5
  %result = load atomic i32, ptr %result.at monotonic, align 4
  store atomic i32 0, ptr @busy release, align 4
  ret i32 %result
}

; int32_t run_alone(body, void *env, int64_t first, int64_t extent)
; A loop in its caller; in pieces, if that is the thread that handles signals.
define internal i32 @run_alone(ptr %body, ptr %env, i64 %first, i64 %extent) {
; if (oneir_is_main_thread()) goto begin;
entry:
  %interruptible = call i1 @oneir_is_main_thread()
  br i1 %interruptible, label %begin, label %whole

; return body(env, first, extent);
whole:
  %result.whole = tail call i32 %body(ptr %env, i64 %first, i64 %extent)
  ret i32 %result.whole

; from = first; limit = first_piece(extent - first); since = oneir_coarse_time();
begin:
  %count = sub i64 %extent, %first
  %least = call i64 @first_piece(i64 %count)
  %t.begin = call i64 @oneir_coarse_time()
  br label %piece

; for (;;) {
;   to = from + min(extent - from, limit);
;   result = body(env, from, to);
;   if (result != 0 || to == extent) return result;
piece:
  %from = phi i64 [ %first, %begin ], [ %to, %go.on ]
  %limit = phi i64 [ %least, %begin ], [ %limit.next, %go.on ]
  %since = phi i64 [ %t.begin, %begin ], [ %now, %go.on ]
  %left = sub i64 %extent, %from
  %take = call i64 @llvm.smin.i64(i64 %left, i64 %limit)
  %to = add i64 %from, %take
  %result = call i32 %body(ptr %env, i64 %from, i64 %to)
  %failed = icmp ne i32 %result, 0
  %finished = icmp eq i64 %to, %extent
  %stop = or i1 %failed, %finished
  br i1 %stop, label %done, label %poll

;   now = oneir_coarse_time(); raised = oneir_poll_signals_at(now);
;   if (raised != 0) return raised;
poll:
  %now = call i64 @oneir_coarse_time()
  %raised = call i32 @oneir_poll_signals_at(i64 %now)
  %interrupted = icmp ne i32 %raised, 0
  br i1 %interrupted, label %done, label %go.on

;   limit = next_limit(limit, now - since); since = now; from = to;
; }
go.on:
  %spent = sub i64 %now, %since
  %limit.next = call i64 @next_limit(i64 %limit, i64 %spent)
  br label %piece

; return value;
done:
  %value = phi i32 [ %result, %piece ], [ %raised, %poll ]
  ret i32 %value
}

; int64_t first_piece(int64_t count): return max(count / 512, 1);
; How many iterations to run first, of so many, when nothing is known of the time that they take.
define internal i64 @first_piece(i64 %count) {
  %part = lshr i64 %count, 9
  %some = call i64 @llvm.smax.i64(i64 %part, i64 1)
  ret i64 %some
}

; int64_t next_limit(int64_t limit, int64_t spent)
;   return spent < 8 ms && limit < 2^58 ? limit * 16 : spent > 128 ms ? max(limit / 2, 1) : limit;
; How many iterations to run at most after a piece of `limit` took `spent` nanoseconds.
define internal i64 @next_limit(i64 %limit, i64 %spent) {
  %short = icmp slt i64 %spent, 8000000
  %small = icmp ult i64 %limit, 288230376151711744 ; 2^58
  %grows = and i1 %short, %small
  %more = shl i64 %limit, 4
  %long = icmp sgt i64 %spent, 128000000
  %half = lshr i64 %limit, 1
  %less = call i64 @llvm.smax.i64(i64 %half, i64 1)
  %shrunk = select i1 %long, i64 %less, i64 %limit
  %next = select i1 %grows, i64 %more, i64 %shrunk
  ret i64 %next
}

; void fill_region(body, void *env, int64_t first, int64_t last, int32_t participants)
; Plain stores: the caller owns the region, and opens the gate, which publishes it, afterwards.
define internal void @fill_region(ptr %body, ptr %env, i64 %first, i64 %last, i32 %participants) {
; share = (last - first) / participants; rest = (last - first) % participants;
; caller.processor = processor();
; region = {body, env, piece: max(share / 16, 1), mode: get_fp_mode(), ranges: participants, result: 0};
; begin = first;
entry:
  %n = zext i32 %participants to i64
  %extent = sub i64 %last, %first
  %share = udiv i64 %extent, %n
  %rest = urem i64 %extent, %n
  %sixteenth = lshr i64 %share, 4
  %piece = call i64 @llvm.smax.i64(i64 %sixteenth, i64 1)
  %mode = call i64 @get_fp_mode()
  %processor = call i32 @processor()
  store atomic i32 %processor, ptr @caller.processor monotonic, align 4
  store ptr %body, ptr @region
  %env.at = getelementptr %Region, ptr @region, i32 0, i32 1
  store ptr %env, ptr %env.at
  %piece.at = getelementptr %Region, ptr @region, i32 0, i32 2
  store i64 %piece, ptr %piece.at
  %mode.at = getelementptr %Region, ptr @region, i32 0, i32 3
  store i64 %mode, ptr %mode.at
  %ranges.at = getelementptr %Region, ptr @region, i32 0, i32 4
  store i32 %participants, ptr %ranges.at
  %result.at = getelementptr %Region, ptr @region, i32 0, i32 5
  store i32 0, ptr %result.at
  br label %loop

; for (i = 0; i < participants; i++) {
;   end = begin + share + (i < rest);  // the first `rest` ranges are one longer
;   ranges[i] = {begin, end}; begin = end;
; }
loop:
  %i = phi i64 [ 0, %entry ], [ %i.next, %loop ]
  %begin = phi i64 [ %first, %entry ], [ %end, %loop ]
  %longer = icmp ult i64 %i, %rest
  %one = zext i1 %longer to i64
  %length = add i64 %share, %one
  %end = add i64 %begin, %length
  %range = getelementptr %Range, ptr @ranges, i64 %i
  store i64 %begin, ptr %range
  %end.at = getelementptr %Range, ptr %range, i32 0, i32 1
  store i64 %end, ptr %end.at
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, %n
  br i1 %more, label %loop, label %done

; return;
done:
  ret void
}

; void judge(int64_t begun, int64_t extent)
; What a region lost against running alone, going by the time its caller took for its own of `extent` iterations,
; decides how long to run alone now. At most 20 ms at once, so that one bad moment does not last.
;
; {start, stop, own} = caller.work;
; took = now() - begun;
; alone = (stop - start) * extent / own;  // nothing of its own: infinite, or nan, and so no loss
; loss = took - alone;
; if (!(loss > alone / 16)) return;
define internal void @judge(i64 %begun, i64 %extent) {
  %start = load i64, ptr @caller.work
  %stop.at = getelementptr i64, ptr @caller.work, i64 1
  %stop = load i64, ptr %stop.at
  %own.at = getelementptr i64, ptr @caller.work, i64 2
  %own = load i64, ptr %own.at
  %now = call i64 @now()
  %took = sub i64 %now, %begun
  %busy = sub i64 %stop, %start
  %took.real = sitofp i64 %took to double
  %busy.real = sitofp i64 %busy to double
  %own.real = sitofp i64 %own to double
  %extent.real = sitofp i64 %extent to double
  %all = fmul double %busy.real, %extent.real
  %alone = fdiv double %all, %own.real
  %loss = fsub double %took.real, %alone
  %small = fmul double %alone, 0.0625
  %large = fcmp ogt double %loss, %small
  br i1 %large, label %lost, label %done
; alone_ns = min(2 * loss, 20 ms);
lost:
  %twice = fmul double %loss, 2.0
  %most = fcmp ogt double %twice, 2.0e7
  %capped = select i1 %most, double 2.0e7, double %twice
  %ns = fptosi double %capped to i64
  store atomic i64 %ns, ptr @alone_ns monotonic, align 8
  br label %done
; return;
done:
  ret void
}

; void run_callers(void): start = now(); own = participate(0); caller.work = {start, stop: now(), own};
define internal void @run_callers() {
  %start = call i64 @now()
  %own = call i64 @participate(i64 0)
  %stop = call i64 @now()
  store i64 %start, ptr @caller.work
  %stop.at = getelementptr i64, ptr @caller.work, i64 1
  store i64 %stop, ptr %stop.at
  %own.at = getelementptr i64, ptr @caller.work, i64 2
  store i64 %own, ptr %own.at
  ret void
}

; void member(void *nothing): what each thread of another library's team runs; the caller is its thread 0.
define internal void @member(ptr %nothing) {
; number = team.number();
; if (number == 0) { run_callers(); return; }
entry:
  %number.of = load atomic ptr, ptr @team.number monotonic, align 8
  %number = call i32 %number.of()
  %is.caller = icmp eq i32 %number, 0
  br i1 %is.caller, label %caller, label %other
caller:
  call void @run_callers()
  ret void

; if (number >= region.ranges) return;  // the loop wants fewer threads than the team has
other:
  %n.at = getelementptr %Region, ptr @region, i32 0, i32 4
  %n = load i32, ptr %n.at
  %needed = icmp slt i32 %number, %n
  br i1 %needed, label %work, label %nobody
nobody:
  ret void

; mode = get_fp_mode(); set_fp_mode(region.mode);
; participate(number);
; set_fp_mode(mode);  // the thread is the library's
work:
  %own.mode = call i64 @get_fp_mode()
  %mode.at = getelementptr %Region, ptr @region, i32 0, i32 3
  %mode = load i64, ptr %mode.at
  call void @set_fp_mode(i64 %mode)
  %home = zext i32 %number to i64
  %run = call i64 @participate(i64 %home)
  call void @set_fp_mode(i64 %own.mode)
  ret void
}

; int64_t participate(int64_t home)
; Runs pieces of the region, own range first, until none is left or a body has failed; the number of iterations run.
define internal i64 @participate(i64 %home) {
; limit = max(piece / 32, 1);  // `piece` is a sixteenth of the own range
; run = 0; since = oneir_coarse_time();
entry:
  %body = load ptr, ptr @region
  %env.at = getelementptr %Region, ptr @region, i32 0, i32 1
  %env = load ptr, ptr %env.at
  %piece.at = getelementptr %Region, ptr @region, i32 0, i32 2
  %piece = load i64, ptr %piece.at
  %n.at = getelementptr %Region, ptr @region, i32 0, i32 4
  %n.narrow = load i32, ptr %n.at
  %n = zext i32 %n.narrow to i64
  %result.at = getelementptr %Region, ptr @region, i32 0, i32 5
  %least = lshr i64 %piece, 5 ; of a sixteenth of the own range
  %limit.first = call i64 @llvm.smax.i64(i64 %least, i64 1)
  %t.first = call i64 @oneir_coarse_time()
  br label %next.range

; for (visited = 0; visited < n; visited++) {
;   range = &ranges[(home + visited) % n];
next.range:
  %visited = phi i64 [ 0, %entry ], [ %visited.next, %exhausted ]
  %run.range = phi i64 [ 0, %entry ], [ %run, %exhausted ]
  %limit.range = phi i64 [ %limit.first, %entry ], [ %limit, %exhausted ]
  %since.range = phi i64 [ %t.first, %entry ], [ %since, %exhausted ]
  %sum = add i64 %home, %visited
  %index = urem i64 %sum, %n
  %range = getelementptr %Range, ptr @ranges, i64 %index
  %end.at = getelementptr %Range, ptr %range, i32 0, i32 1
  %end = load i64, ptr %end.at
  br label %next.piece

;   for (;;) {
;     if (region.result != 0) return run;  // somebody has failed
next.piece:
  %run = phi i64 [ %run.range, %next.range ], [ %run.next, %measure ]
  %limit = phi i64 [ %limit.range, %next.range ], [ %limit.next, %measure ]
  %since = phi i64 [ %since.range, %next.range ], [ %now, %measure ]
  %failed.before = load atomic i32, ptr %result.at monotonic, align 4
  %go = icmp eq i32 %failed.before, 0
  br i1 %go, label %claim, label %done

;     begin = range->next; left = range->end - begin;
;     if (left <= 0) break;  // goto exhausted
claim:
  %begin = load atomic i64, ptr %range monotonic, align 8
  %left = sub i64 %end, %begin
  %any = icmp sgt i64 %left, 0
  br i1 %any, label %try, label %exhausted

;     take = min(max((left + 1) / 2, piece), limit, left);
;     stop = begin + take;
;     // Relaxed: the range is only a ticket. What the iterations read and write is ordered by the gate.
;     if (!compare_exchange(&range->next, begin, stop)) goto claim;
try:
  %left.up = add i64 %left, 1
  %half = lshr i64 %left.up, 1
  %at.least = call i64 @llvm.smax.i64(i64 %half, i64 %piece)
  %moderate = call i64 @llvm.smin.i64(i64 %at.least, i64 %limit)
  %take = call i64 @llvm.smin.i64(i64 %moderate, i64 %left)
  %stop = add i64 %begin, %take
  %pair = cmpxchg ptr %range, i64 %begin, i64 %stop monotonic monotonic
  %won = extractvalue { i64, i1 } %pair, 1
  br i1 %won, label %work, label %claim

;     result = body(env, begin, stop); run += take;
;     if (result != 0) goto failed;
work:
  %result = call i32 %body(ptr %env, i64 %begin, i64 %stop)
  %run.next = add i64 %run, %take
  %good = icmp eq i32 %result, 0
  br i1 %good, label %poll, label %failed

;     now = oneir_coarse_time(); raised = oneir_poll_signals_at(now);
;     if (raised != 0) goto failed;
poll:
  %now = call i64 @oneir_coarse_time()
  %raised = call i32 @oneir_poll_signals_at(i64 %now)
  %quiet = icmp eq i32 %raised, 0
  br i1 %quiet, label %measure, label %failed

;     limit = next_limit(limit, now - since); since = now;
;   }
measure:
  %spent = sub i64 %now, %since
  %limit.next = call i64 @next_limit(i64 %limit, i64 %spent)
  br label %next.piece

;   // goto failed: the first failure is the region's
;   compare_exchange(&region.result, 0, result or raised); return run;
failed:
  %failure = phi i32 [ %result, %work ], [ %raised, %poll ]
  %kept = cmpxchg ptr %result.at, i32 0, i32 %failure monotonic monotonic
  br label %done

; }
exhausted:
  %visited.next = add i64 %visited, 1
  %more = icmp ult i64 %visited.next, %n
  br i1 %more, label %next.range, label %done

; return run;
done:
  ret i64 %run
}

; void join(void)
; Closes the gate and waits for the workers inside: spinning first, then asleep, which also frees this processor for
; them.
define internal void @join() {
; gate &= 65535;  // no free places, and nobody asleep
; if (spin(&gate, 65535, 0, true, now())) goto done;
entry:
  %before = atomicrmw and ptr @gate, i32 65535 acq_rel
  %since = call i64 @now()
  %gone.spinning = call i1 @spin(ptr @gate, i32 65535, i32 0, i1 true, i64 %since)
  br i1 %gone.spinning, label %done, label %sleep

; do {
;   old = fetch_or(&gate, 1 << 31);  // whoever leaves last is to wake the caller
;   if ((old & 65535) == 0) goto done;
sleep:
  %old = atomicrmw or ptr @gate, i32 -2147483648 acq_rel
  %inside = and i32 %old, 65535
  %gone = icmp eq i32 %inside, 0
  br i1 %gone, label %done, label %wait

;   wait_on(&gate, old | 1 << 31);  // returns at once if the gate has changed
; } while (true);
wait:
  %word = or i32 %old, -2147483648
  call void @wait_on(ptr @gate, i32 %word)
  br label %sleep

; gate;  // acquire: what the workers wrote is seen
; gate = 0;  // nobody is inside and nobody can come in: the word is the caller's again
done:
  %last = load atomic i32, ptr @gate acquire, align 4
  store atomic i32 0, ptr @gate monotonic, align 4
  ret void
}

; bool spin(int32_t *word, int32_t mask, int32_t value, bool until.equal, int64_t since)
; Spins until (*word & mask) == value, or != value; false when the time for spinning, which began at `since`, is over
; first.
define internal i1 @spin(ptr %word, i32 %mask, i32 %value, i1 %until.equal, i64 %since) {
; budget = spin_ns;
entry:
  %budget = load atomic i64, ptr @spin_ns monotonic, align 8
  br label %round

; do {
round:
  br label %look

;   for (i = 0; i < 16; i++) {  // the clock is read once in 16 looks
;     if (((*word & mask) == value) == until.equal) return true;  // acquire
look:
  %i = phi i32 [ 0, %round ], [ %i.next, %wait ]
  %now.word = load atomic i32, ptr %word acquire, align 4
  %masked = and i32 %now.word, %mask
  %equal = icmp eq i32 %masked, %value
  %met = icmp eq i1 %equal, %until.equal
  br i1 %met, label %yes, label %wait

;     pause();
;   }
wait:
  call void @pause()
  %i.next = add i32 %i, 1
  %again = icmp ult i32 %i.next, 16
  br i1 %again, label %look, label %clock

;   if (now() - since >= budget) return false;
clock:
  %now = call i64 @now()
  %spent = sub i64 %now, %since
  %over = icmp sge i64 %spent, %budget
  br i1 %over, label %no, label %yield

;   sched_yield();  // the one waited for may want this very processor
; } while (true);
yield:
  %o0 = call i32 @sched_yield()
  br label %round

; return true;
yes:
  ret i1 true

; return false;
no:
  ret i1 false
}

; Workers --------------------------------------------------------------------------------------------------------------

; void start_workers(int32_t wanted)
; Called by the owner of the pool only.
define internal void @start_workers(i32 %wanted) {
; attributes = {stack size: worker_stack_bytes, detached};
; // Signals are for the program's own threads. A thread inherits the mask of its creator.
; pthread_sigmask(SIG_SETMASK, &blocked_signals, &signals);
entry:
  %attributes = alloca [128 x i8], align 16
  %thread = alloca [2 x i64], align 16
  %signals = alloca [16 x i64], align 16
  %i0 = call i32 @pthread_attr_init(ptr %attributes)
  %stack = load i64, ptr @worker_stack_bytes
  %i1 = call i32 @pthread_attr_setstacksize(ptr %attributes, i64 %stack)
  %detached = load i32, ptr @detached
  %i2 = call i32 @pthread_attr_setdetachstate(ptr %attributes, i32 %detached)
  %how = load i32, ptr @sig_setmask
  %i3 = call i32 @pthread_sigmask(i32 %how, ptr @blocked_signals, ptr %signals)
  %present = load atomic i32, ptr @started monotonic, align 4
  br label %loop

; for (count = started; count < wanted; count++) {
loop:
  %count = phi i32 [ %present, %entry ], [ %next, %counted ]
  %more = icmp slt i32 %count, %wanted
  br i1 %more, label %create, label %done

;   // A worker's number, and so its range, counts from 1: the caller is 0.
;   if (pthread_create(&thread, &attributes, worker, (void *)(count + 1)) != 0) break;
create:
  %next = add i32 %count, 1
  %number = zext i32 %next to i64
  %argument = inttoptr i64 %number to ptr
  %failed = call i32 @pthread_create(ptr %thread, ptr %attributes, ptr @worker, ptr %argument)
  %created = icmp eq i32 %failed, 0
  br i1 %created, label %counted, label %done

;   started = count + 1;
; }
counted:
  store atomic i32 %next, ptr @started monotonic, align 4
  br label %loop

; pthread_sigmask(SIG_SETMASK, &signals, NULL); pthread_attr_destroy(&attributes);
done:
  %i4 = call i32 @pthread_sigmask(i32 %how, ptr %signals, ptr null)
  %i5 = call i32 @pthread_attr_destroy(ptr %attributes)
  ret void
}

; void *worker(void *number): what a worker's thread runs; it never ends.
define internal ptr @worker(ptr %number) {
; own = (int64_t)number; since = now();
; goto new.epoch;  // the region that it was started for is being published
entry:
  %own = ptrtoint ptr %number to i64
  %t.born = call i64 @now()
  br label %new.epoch ; the region that it was started for is being published

; // The time for spinning begins when there was work, so that who is not needed sleeps, however many regions there are.
; if (spin(&epoch, -1, epoch.seen, false, since)) goto new.epoch;
idle:
  %since.idle = phi i64 [ %since, %knock ], [ %t.left, %leave ], [ %t.left, %wake.caller ]
  %changed.spinning = call i1 @spin(ptr @epoch, i32 -1, i32 %epoch, i1 false, i64 %since.idle)
  br i1 %changed.spinning, label %new.epoch, label %drowsy

; // The caller adds to `epoch` before it reads `sleepers`: either it sees this one, or the wait below returns at once.
; sleepers++;
drowsy:
  %o0 = atomicrmw add ptr @sleepers, i32 1 seq_cst
  br label %sleep

; do wait_on(&epoch, epoch.seen); while (epoch == epoch.seen);
sleep:
  call void @wait_on(ptr @epoch, i32 %epoch)
  %looked = load atomic i32, ptr @epoch seq_cst, align 4
  %changed = icmp ne i32 %looked, %epoch
  br i1 %changed, label %awake, label %sleep

; sleepers--; since = now();
awake:
  %o1 = atomicrmw sub ptr @sleepers, i32 1 seq_cst
  %t.awake = call i64 @now()
  br label %new.epoch

; epoch.seen = epoch;  // acquire: the gate that was opened before is seen
; here = processor();
; if (here != caller.processor || here < 0) goto knock;
new.epoch:
  %since = phi i64 [ %t.born, %entry ], [ %since.idle, %idle ], [ %t.awake, %awake ]
  %epoch = load atomic i32, ptr @epoch acquire, align 4
  %here = call i32 @processor()
  %there = load atomic i32, ptr @caller.processor monotonic, align 4
  %same = icmp eq i32 %here, %there
  %known = icmp sge i32 %here, 0
  %in.the.way = and i1 %same, %known
  br i1 %in.the.way, label %move, label %knock

; leave_processor(here);  // even when the region is over, or the next would find it here again
move:
  call void @leave_processor(i32 %here)
  br label %knock

; state = gate; places = state >> 16 & 32767;
; if (places == 0) goto idle;
knock:
  %state = load atomic i32, ptr @gate monotonic, align 4
  %places.high = lshr i32 %state, 16
  %places = and i32 %places.high, 32767
  %full = icmp eq i32 %places, 0
  br i1 %full, label %idle, label %enter

; // One place less, one worker more. Acquire: the region is seen.
; if (!compare_exchange(&gate, state, state - (1 << 16) + 1)) goto knock;
enter:
  %inside = sub i32 %state, 65535 ; 65536 - 1
  %pair = cmpxchg ptr @gate, i32 %state, i32 %inside acquire monotonic
  %entered = extractvalue { i32, i1 } %pair, 1
  br i1 %entered, label %work, label %knock

; set_fp_mode(region.mode);
; participate(own % region.ranges);
work:
  %mode.at = getelementptr %Region, ptr @region, i32 0, i32 3
  %mode = load i64, ptr %mode.at
  call void @set_fp_mode(i64 %mode)
  %n.at = getelementptr %Region, ptr @region, i32 0, i32 4
  %n.narrow = load i32, ptr %n.at
  %n = zext i32 %n.narrow to i64
  %home = urem i64 %own, %n
  %o2 = call i64 @participate(i64 %home)
  br label %leave

; since = now();
; left = fetch_sub(&gate, 1);  // release: what this worker wrote is seen by the caller that sees it gone
; if (left != (1 << 31 | 1)) goto idle;  // others are inside, or the caller does not sleep
leave:
  %t.left = call i64 @now()
  %left = atomicrmw sub ptr @gate, i32 1 acq_rel
  %caller.sleeps = icmp eq i32 %left, -2147483647
  br i1 %caller.sleeps, label %wake.caller, label %idle

; wake_up(&gate, 1); goto idle;
wake.caller:
  call void @wake_up(ptr @gate, i32 1)
  br label %idle
}
