// Package tally keeps account of each watch of a client, for operators: how far
// it is, how it is served, and what it has cost. Read [Watch] first.
//
// The pump that serves a watch writes its account; anybody reads it, at any
// time, and blocks no other goroutine. What is counted is what is sent; all else is
// computed on request.
package tally
