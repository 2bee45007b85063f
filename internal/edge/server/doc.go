// Package server implements the two ports of a node: listeners, the admission of calls, the
// services of all APIs, metrics of calls and watches, and the drain.
//
// Read [Server] first. The APIs themselves are in packages native, etcdapi, admin and
// peerapi.
package server
