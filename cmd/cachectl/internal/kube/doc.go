// Package kube has the commands of cachectl that show the nodes that serve Kubernetes' API. These
// nodes have no admin API: the commands get the [report.Report] of each node over HTTP. Read
// [NewCommand] first.
package kube
