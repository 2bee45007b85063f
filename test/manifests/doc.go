// Package manifests checks deploy/k8s against its readers: each overlay is
// built by kustomize and decoded, strictly, into the types of Kubernetes, of
// cert-manager and of the Prometheus operator; pods pass the admission of
// namespaces that enforce the standard "restricted"; what objects call each other
// by is there; ports are protected but where it is only tried; and cachenode takes
// the settings.
//
// It is a module of its own, so that what Kubernetes depends on is no concern of
// the product. .ci/run runs it; by hand: go test -C test/manifests ./...
package manifests
