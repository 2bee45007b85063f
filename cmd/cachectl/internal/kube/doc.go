// Package kube has the commands of cachectl that show the nodes that serve Kubernetes' API. These
// have no admin API: the commands ask each of them for its [report.Report] over HTTP. Read
// [NewCommand] first.
package kube
