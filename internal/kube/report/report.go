// Package report has what a node that serves Kubernetes' API tells of itself: GET /kube at its HTTP
// port sends a Report as JSON, the node's page shows it, and cachectl reads it.
package report

import "time"

// Path is where nodes serve the report.
const Path = "/kube"

// Report is what a node tells of itself.
type Report struct {
	Node    string    `json:"node"`
	Version string    `json:"version"`
	Zone    string    `json:"zone,omitempty"`
	Started time.Time `json:"started"`
	// NotReady are the reasons why the node is not ready; none: it is.
	NotReady []string `json:"notReady,omitempty"`
	// Apiservers are in the order in which they are asked.
	Apiservers []Apiserver `json:"apiservers"`
	// Members are the live nodes of the tier, this one among them. A node alone has none.
	Members   []Member   `json:"members,omitempty"`
	Requests  Requests   `json:"requests"`
	Resources []Resource `json:"resources"`
}

// Apiserver is a server that the node asks.
type Apiserver struct {
	URL string `json:"url"`
	// Avoided: it has failed not long ago, and the others are asked first.
	Avoided bool `json:"avoided,omitempty"`
	// Error is that failure.
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
	Failed int64 `json:"failed"` // answered with 429
}

// State is whether a resource is served.
type State string

// The states of a resource.
const (
	Ready   State = "ready"
	Loading State = "loading" // its first state has not come
	Failing State = "failing" // it is served as it was; Error says why it does not continue
	// Withdrawn is a preloaded resource that apiservers do not serve any more. They answer its requests.
	Withdrawn State = "withdrawn"
)

// Resource is a resource in one encoding that the node follows.
type Resource struct {
	// Name is as that of --kube-preload: pods.v1, or deployments.v1.apps.
	Name     string `json:"name"`
	Encoding string `json:"encoding"` // protobuf or json
	State    State  `json:"state"`
	Error    string `json:"error,omitempty"`
	// From is the URL of the apiserver, or the name of the node, that it is followed at.
	From    string `json:"from,omitempty"`
	Objects int64  `json:"objects"`
	// Bytes are those of its objects and window.
	Bytes int64 `json:"bytes"`
	// A watch from Floor-1 or a later version continues without a difference. Progress is
	// the newest version that the node has.
	Floor    int64 `json:"floor"`
	Progress int64 `json:"progress"`
	Watches  int64 `json:"watches"`
	// Losses counts how often it lost its window, or continued over a gap.
	Losses int64 `json:"losses"`
}
