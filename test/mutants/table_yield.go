package mutants

func yieldGroup() Group {
	return Group{Package: "internal/yield", Mutants: []Mutant{
		{
			Name: "yield-while-timers-wait", Bug: "does not yield while all processors are busy", File: "sched.go",
			Old: `ready > 0 || running >= uint64(processors)`, New: `ready > 0 || running > uint64(processors)`, Tests: "TestCrowded",
		},
		{
			Name: "yield-past-the-ready", Bug: "does not yield to ready goroutines while a processor is idle", File: "sched.go",
			Old: `ready > 0 || running`, New: `ready > 1 || running`, Tests: "TestCrowded",
		},
		{
			Name: "yield-looks-at-all", Bug: "checks each of very many processors before it yields", File: "sched.go",
			Old: `|| processors > maxLook`, New: ``, Tests: "TestCrowded",
		},
		{
			Name: "yield-never", Bug: "does not yield to goroutines", File: "sched.go",
			Old: `		runtime.Gosched()
`, New: `		runtime.KeepAlive(nil)
`, Tests: "TestNowLetsAReadyGoroutineRun",
		},
	}}
}
