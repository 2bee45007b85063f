// Package gateway serves etcd's JSON API, for curl, Apache APISIX and other clients that use etcd without gRPC,
// on the same port as gRPC.
//
// [Gateway.Credentials] detect the protocol as a connection opens: HTTP/2 stays with gRPC, and HTTP/1 goes to
// [Gateway], which translates each request into a call of a gRPC service in this process. The translation
// itself is grpc-gateway's, with etcd's generated code.
//
//	connection ─▶ host, origin ─▶ Admit ─▶ body: bounded ─▶ grpc-gateway ─▶ services ─▶ answerWriter
//
// The native API adds two paths: a watch as server-sent events, and a list.
//
// The memory of requests and answers comes from the node's budget for clients.
package gateway
