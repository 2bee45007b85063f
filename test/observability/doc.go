// Package observability compares dashboards, alerts and docs with the metrics of nodes:
// docs/metrics.md, docs/kubernetes.md, the alerts in deploy/prometheus and the dashboards in
// deploy/grafana have no metric that is not there, and every one that is there is documented.
//
// UPDATE=1 go test ./test/observability writes docs/metrics.md from three nodes.
package observability
