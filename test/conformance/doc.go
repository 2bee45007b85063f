// Package conformance tests a client of the native API, in any language, against scripted nodes:
// each [Case] has a script of the nodes' messages, checks the client's requests, and lists the
// updates that the client must hand to its application. docs/protocol.md has the rules that the
// cases check.
//
// Read [Run] first. A [Client] is a function; [Command] returns one for a program that reads a
// [Task] on its standard input and writes each [Update] as a line of JSON:
//
//	task  {"case":"delta","op":"watch","endpoints":["127.0.0.1:21000",…],"key":"/c/","range_end":"/c0",…}
//	       │
//	       ▼
//	client ──create──▶ scripted node 1, 2 or 3 ──events, units, errors──▶ client
//	       │
//	       ▼
//	update {"kind":"delta","cluster":"conformance","lineage":1,"revision":60,"kvs":[…],"deleted":[…]}
package conformance
