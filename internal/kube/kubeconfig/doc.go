// Package kubeconfig reads how a server reaches kube-apiservers: from a
// kubeconfig, or from the service account of its pod.
//
// Read [Load] first. A kubeconfig is read by the subset that servers use:
// certificates, tokens and token files. A setting beyond that is an error:
// a node must not connect with less than its file says.
package kubeconfig
