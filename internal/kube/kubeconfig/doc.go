// Package kubeconfig reads the addresses and credentials for kube-apiservers,
// from a kubeconfig or from the service account of the pod.
//
// Read [Load] first. It supports the subset of kubeconfigs that servers use:
// certificates, tokens and token files. Any other setting is an error: a node
// must not ignore a security setting of its file.
package kubeconfig
