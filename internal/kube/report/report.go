// Package report has the report of a node that serves Kubernetes' API: GET /kube at its HTTP port
// sends a Report as JSON, the node's page shows it, and cachectl reads it.
package report

import "time"

// Path is where nodes serve the report.
const Path = "/kube"

// Report is the state of a node.
type Report struct {
	Node    string    `json:"node"`
	Version string    `json:"version"`
	Zone    string    `json:"zone,omitempty"`
	Started time.Time `json:"started"`
	// NotReady are the reasons why the node is not ready; none: it is.
	NotReady []string `json:"notReady,omitempty"`
	// Apiservers are in order of preference.
	Apiservers []Apiserver `json:"apiservers"`
	// Members are the live nodes of the tier, including this one. A node without a tier has none.
	Members   []Member   `json:"members,omitempty"`
	Requests  Requests   `json:"requests"`
	Resources []Resource `json:"resources"`
}

// Apiserver is an apiserver that the node uses.
type Apiserver struct {
	URL string `json:"url"`
	// Avoided means that it has failed recently, and the node prefers the others.
	Avoided bool `json:"avoided,omitempty"`
	// Error is this failure.
	Error string `json:"error,omitempty"`
}

// Member is a node of the tier.
type Member struct {
	Name string `json:"name"`
	// HTTP is the host and port of its report.
	HTTP    string `json:"http"`
	Zone    string `json:"zone,omitempty"`
	Version string `json:"version"`
}

// Requests counts requests since the node started.
type Requests struct {
	Cached int64 `json:"cached"` // answered from memory
	Passed int64 `json:"passed"` // passed on to an apiserver
	Failed int64 `json:"failed"` // refused by the node itself: 401, 403, 410, 429 or 504
}

// State is whether a resource is served.
type State string

// The states of a resource.
const (
	Ready   State = "ready"
	Loading State = "loading" // not served yet
	Failing State = "failing" // served, but stale; Error is the reason
	// Withdrawn is a preloaded resource that apiservers no longer serve. They answer its requests.
	Withdrawn State = "withdrawn"
)

// Resource is a resource in one encoding that the node follows.
type Resource struct {
	// Name is in the form of --kube-preload: pods.v1, or deployments.v1.apps.
	Name     string `json:"name"`
	Encoding string `json:"encoding"` // protobuf or json
	State    State  `json:"state"`
	Error    string `json:"error,omitempty"`
	// From is the URL of the apiserver, or the name of the node, from which the node follows it.
	From    string `json:"from,omitempty"`
	Objects int64  `json:"objects"`
	// Bytes is the size of its objects and window.
	Bytes int64 `json:"bytes"`
	// Floor is the oldest version in the window: a watch from Floor-1 or later resumes without a
	// difference. Progress is the newest version that the node has.
	Floor    int64 `json:"floor"`
	Progress int64 `json:"progress"`
	Watches  int64 `json:"watches"`
	// Losses counts how often it lost its window, or continued over a gap.
	Losses int64 `json:"losses"`
}
