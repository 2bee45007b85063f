// Package kube compares the tier's implementation of Kubernetes' API with Kubernetes'
// own libraries, and runs their clients before a kube-apiserver and the tier.
//
// It is a module of its own, so that what Kubernetes depends on is no concern of
// the product. `.ci/run kube` runs it; `make compat` also builds the
// kube-apiserver that its longer tests need.
package kube
