// Package api serves lists, watches and gets of Kubernetes' API from caches, and
// passes every other request on to an apiserver.
//
// Read [Server] first, then feed. A [Server] is an http.Handler.
//
// A client must not be made to list again. So a request that the caches cannot
// answer goes to an apiserver, and one that no apiserver answers now fails with
// 429 and Retry-After, which informers answer with a new attempt from
// where they are. 401, 403, 410, 500, 503 and 504 make them list.
package api
