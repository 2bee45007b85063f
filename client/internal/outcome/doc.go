// Package outcome names the reasons why a client leaves a node, and reads the errors of
// RPCs. All of it is values.
package outcome
