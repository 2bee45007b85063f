// Package kube compares the tier's implementation of Kubernetes' API with Kubernetes' own
// libraries, and runs their clients in front of a kube-apiserver and the tier.
//
// It is a separate module, so that Kubernetes' dependencies do not affect the product. `.ci/run
// kube` runs it; `make compat` also builds the kube-apiserver for its longer tests.
package kube
