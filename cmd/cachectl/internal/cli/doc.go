// Package cli has the shared code of cachectl's commands: the session with its flags and
// contexts, the arguments and errors of a command line, tables, and the JSON that
// several commands print. Read [Session] first: one command uses it, in one goroutine.
package cli
