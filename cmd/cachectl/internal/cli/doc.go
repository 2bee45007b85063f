// Package cli is what the commands of cachectl share: the session with its flags and
// contexts, the arguments and errors of a command line, tables, and the JSON of what
// several commands print. Read [Session] first: one command uses it, in one goroutine.
package cli
