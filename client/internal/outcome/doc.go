// Package outcome has the reasons why a client leaves a node, and interprets the errors
// of RPCs. All types are values.
package outcome
