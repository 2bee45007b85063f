package kube

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/cli"
	"github.com/shardwatch/shardwatch/internal/kube/report"
)

func newStatusCommand(c *command) *cobra.Command {
	return &cobra.Command{
		Use:        "status",
		SuggestFor: []string{"nodes", "members", "top"},
		Short:      "Show the nodes of the tier",
		Long: `status prints a line for each node of the tier. Below the table it prints the reasons why nodes
are not ready or sent no report, and the failures of avoided apiservers.

  READY             whether the node's /readyz succeeds
  APISERVERS        the apiservers that the node uses, in order of preference; an avoided one
                    has failed recently, and the node prefers the others
  WATCHES           open watches that are served from memory
  OBJECTS, BYTES    the objects of all resources and encodings that the node follows; the
                    bytes include the windows

Requests since the node started:

  CACHED            answered from memory
  PASSED            passed on to an apiserver
  FAILED            refused by the node itself: 401, 403, 410, 429 or 504`,
		Example: `  cachectl kube status --http kube-1:7480
  cachectl kube status -o jsonpath='$.nodes[?@.ready == false].name'`,
		Args: cli.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			t, err := c.ask(cmd)
			if err != nil {
				return err
			}
			return c.status(t, time.Now())
		},
	}
}

// The JSON form of kube status; its field names are stable. A node that sent no report has an error, and
// is not ready.
type (
	nodeJSON struct {
		Name       string          `json:"name,omitempty"`
		HTTP       string          `json:"http,omitempty"`
		Error      string          `json:"error,omitempty"`
		Zone       string          `json:"zone,omitempty"`
		Version    string          `json:"version,omitempty"`
		Uptime     float64         `json:"uptime_seconds"`
		Ready      bool            `json:"ready"`
		NotReady   []string        `json:"not_ready,omitempty"`
		Apiservers []apiserverJSON `json:"apiservers"`
		Watches    int64           `json:"watches"`
		Objects    int64           `json:"objects"`
		Bytes      int64           `json:"bytes"`
		Requests   requestsJSON    `json:"requests"`
	}
	apiserverJSON struct {
		URL     string `json:"url"`
		Avoided bool   `json:"avoided"`
		Error   string `json:"error,omitempty"`
	}
	requestsJSON struct {
		Cached int64 `json:"cached"`
		Passed int64 `json:"passed"`
		Failed int64 `json:"failed"`
	}
)

// nodeOf returns the JSON form of a node.
func nodeOf(n node, now time.Time) nodeJSON {
	j := nodeJSON{Name: n.name, HTTP: n.address, Apiservers: []apiserverJSON{}}
	if n.silence != nil {
		j.Error = n.silence.why
		return j
	}
	r := n.report
	j.Zone, j.Version, j.Uptime = r.Zone, r.Version, max(now.Sub(r.Started), 0).Seconds()
	j.Ready, j.NotReady = len(r.NotReady) == 0, r.NotReady
	for _, a := range r.Apiservers {
		j.Apiservers = append(j.Apiservers, apiserverJSON{a.URL, a.Avoided, a.Error})
	}
	j.Requests = requestsJSON(r.Requests)
	for _, res := range r.Resources {
		j.Watches, j.Objects, j.Bytes = j.Watches+res.Watches, j.Objects+res.Objects, j.Bytes+res.Bytes
	}
	return j
}

func (c *command) status(t tier, now time.Time) error {
	nodes := []nodeJSON{}
	table := &cli.Table{}
	table.Row("NODE", "ZONE", "VERSION", "UPTIME", "READY", "APISERVERS", "WATCHES", "OBJECTS", "BYTES", "CACHED", "PASSED", "FAILED")
	var notes []string
	for _, n := range t.nodes {
		j := nodeOf(n, now)
		nodes = append(nodes, j)
		if n.silence != nil {
			name := n.name
			if name == "" {
				name = n.address
			}
			table.Row(name, "-", "-", "-", "no report", "-", "-", "-", "-", "-", "-", "-")
			continue
		}
		ready := "yes"
		if !j.Ready {
			ready = "no"
			notes = append(notes, fmt.Sprintf("%s is not ready: %s", j.Name, strings.Join(j.NotReady, "; ")))
		}
		for _, a := range j.Apiservers {
			if a.Error != "" {
				notes = append(notes, fmt.Sprintf("%s avoids %s: %s", j.Name, hostOf(a.URL), a.Error))
			}
		}
		table.Row(j.Name, cli.OrDash(j.Zone), cli.OrDash(j.Version), cli.TimeOf(cli.Seconds(j.Uptime)), ready, apiserversOf(n.report.Apiservers),
			cli.Number(j.Watches), cli.Number(j.Objects), cli.BytesOf(j.Bytes),
			cli.Number(j.Requests.Cached), cli.Number(j.Requests.Passed), cli.Number(j.Requests.Failed))
	}
	if c.Structured() {
		if err := c.Document(struct {
			Nodes []nodeJSON `json:"nodes"`
		}{nodes}); err != nil {
			return err //nolint:wrapcheck // says what it did
		}
	} else if err := table.Write(c.Process.Stdout); err != nil {
		return err //nolint:wrapcheck // says what it did
	}
	return c.finish(t, notes)
}

// apiserversOf formats apiservers for people.
func apiserversOf(all []report.Apiserver) string {
	var out []string
	for _, a := range all {
		s := hostOf(a.URL)
		if a.Avoided {
			s += " (avoided)"
		}
		out = append(out, s)
	}
	return cli.OrDash(strings.Join(out, ", "))
}

// hostOf returns the URL of an apiserver without its scheme, https.
func hostOf(url string) string { return strings.TrimPrefix(url, "https://") }
