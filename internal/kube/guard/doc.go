// Package guard says who sent a request of Kubernetes' API and whether caches may
// answer it, as the apiservers decide.
//
// Read [Guard] first. A client is known by a certificate of the cluster's CA or by
// a bearer token, which a TokenReview judges; a SubjectAccessReview judges each
// request. A decision is used for some seconds. While no apiserver answers, the
// last allow for the same identity and request counts for some minutes, and
// then the request fails with 429: 401 and 403 make an informer list again.
//
// All methods may be called from any goroutine. Memory is bounded in bytes.
package guard
