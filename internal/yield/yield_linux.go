package yield

import "syscall"

// threads yields to threads on this core that are ready to run. Without it, Linux lets a busy thread finish its
// time slice, about 3 ms, before another thread of the process that has become ready (EEVDF;
// kernel/sched/fair.c, RUN_TO_PARITY).
func threads() {
	_, _, _ = syscall.RawSyscall(syscall.SYS_SCHED_YIELD, 0, 0, 0) // cannot fail: sched_yield(2)
}
