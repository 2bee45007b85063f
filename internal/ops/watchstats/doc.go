// Package watchstats keeps statistics of each watch of a client, for operators: its
// progress, its serve mode, and its cost. Read [Watch] first.
//
// The pump that serves a watch writes its statistics. Any goroutine may read them at any time, without blocking
// the pump. The pump counts only sent data; all other figures are computed on request.
package watchstats
