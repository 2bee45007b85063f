// Package api serves lists, watches and gets of Kubernetes' API from caches, and
// passes every other request on to an apiserver.
//
// Read [Server] first, then feed. A [Server] is an http.Handler.
//
// No failure may make a client list again. So a request that the caches cannot
// answer goes to an apiserver. While no apiserver answers, it fails with 429 and
// Retry-After: informers then retry from their last version. 401, 403, 410, 500,
// 503 and 504 make them list.
package api
