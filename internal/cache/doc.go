// Package cache holds one shard: its state, its window of recent events and
// the watchers that read them.
//
// Read [Cache] first, then [Watcher].
//
//	            Run (the only writer)                 any goroutine
//	Source ─▶ apply ─▶ tree, window ─▶ publish view ─▶ Watcher.Next, Read
//	                                └▶ index ─▶ Wake ──────┘
//
// Run takes updates from a [Source] and applies them. After each update it
// publishes a view: the root of the copy-on-write tree, the window and the
// progress at one moment, behind one atomic pointer. Readers load the view and
// take no lock. A batch in the window is never changed and never split.
//
// A watcher is a position in the window, not a queue. The writer appends, then
// wakes the idle watchers whose range the batch touches; each of them pulls at
// its own pace. A slow watcher holds only a number. A watcher that falls behind
// the floor gets a *kv.CompactedError.
package cache
