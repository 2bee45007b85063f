// Package guard authenticates and authorizes requests of Kubernetes' API that caches
// answer, by decisions of the apiservers.
//
// Read [Guard] first. A client authenticates with a certificate of the cluster's CA,
// or with a bearer token, which a TokenReview verifies. A SubjectAccessReview
// authorizes each request. A decision is valid for some seconds. While no apiserver
// answers, the last allow for the same identity and request stays valid for some
// minutes; then the request fails with 429: 401 and 403 make an informer list again.
//
// All methods may be called from any goroutine. Memory is bounded in bytes.
package guard
