package kube

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/cli"
	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/document"
	"github.com/shardwatch/shardwatch/internal/kube/report"
)

const (
	// maxReport bounds an answer in bytes, far above the size of a report: a node follows at most
	// 200 resources.
	maxReport = 64 << 20
	// maxNodes bounds the queried nodes.
	maxNodes = 1000
)

// node is a node of the tier.
type node struct {
	// name is from the node's report or from another node's; "": no report names the node.
	name    string
	address string // host:port of its HTTP port
	report  *report.Report
	silence *silence // why there is no report; nil: there is one
}

// title returns the node's name and address for messages.
func (n node) title() string {
	switch {
	case n.name == "":
		return n.address
	case n.address == "":
		return n.name
	}
	return n.name + " (" + n.address + ")"
}

// silence is the reason why a node sent no report.
type silence struct {
	why    string
	advice string // what the user can do; "": unknown
}

// tier has the answers of all nodes.
type tier struct {
	nodes   []node   // by name
	unasked []string // the names of the nodes that --local excludes
}

func (t tier) silent() []node {
	return slices.DeleteFunc(slices.Clone(t.nodes), func(n node) bool { return n.silence == nil })
}

// asker queries nodes for their reports.
type asker struct {
	http    *http.Client
	secure  bool
	timeout time.Duration // the timeout of the command, for messages
}

// newAsker returns an asker that uses TLS unless secured is nil, and gives each node half of the
// timeout, so that nodes that do not answer leave time for the nodes that reports name.
func newAsker(secured *tls.Config, timeout time.Duration) *asker {
	return &asker{
		http: &http.Client{
			Transport:     &http.Transport{TLSClientConfig: secured, DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			Timeout:       timeout / 2,
		},
		secure: secured != nil, timeout: timeout,
	}
}

// tier queries the nodes at the addresses, then the nodes that reports name, until all are queried. With
// local, it queries only the addresses.
func (a *asker) tier(ctx context.Context, addresses []string, local bool) tier {
	var round, answers []node
	for _, address := range addresses {
		round = append(round, node{address: address})
	}
	for {
		answers = append(answers, a.each(ctx, round)...)
		var t tier
		if t.nodes, round = resolve(answers); local {
			for _, n := range round {
				t.unasked = append(t.unasked, n.name)
			}
			slices.Sort(t.unasked)
			return t
		}
		if len(round) == 0 {
			return t
		}
	}
}

// each queries nodes concurrently, and returns their answers in the same order.
func (a *asker) each(ctx context.Context, nodes []node) []node {
	var asking sync.WaitGroup
	for i := range nodes {
		asking.Go(func() { nodes[i].report, nodes[i].silence = a.ask(ctx, nodes[i].address) })
	}
	asking.Wait()
	return nodes
}

// resolve returns the nodes that the answers name, sorted by name, and the nodes that remain to be
// queried.
func resolve(answers []node) (nodes, next []node) {
	at, members := map[string]node{}, map[string]bool{} // by address: the answer, and whether a report names it
	seen := map[string]bool{}                           // names
	for _, n := range answers {
		at[n.address] = n
		if n.report != nil && !seen[n.report.Node] {
			seen[n.report.Node] = true
			n.name = n.report.Node
			nodes = append(nodes, n)
		}
	}
	for _, n := range slices.Clone(nodes) {
		for _, m := range n.report.Members {
			if members[m.HTTP] = true; seen[m.Name] {
				continue
			}
			seen[m.Name] = true
			other := node{name: m.Name, address: m.HTTP}
			switch answer, asked := at[m.HTTP]; {
			case m.HTTP == "":
				other.silence = &silence{why: "no report has its address"}
			case asked && answer.silence != nil:
				other.silence = answer.silence
			case asked:
				other.silence = &silence{answer.report.Node + " answers at its address", adviceReach}
			case len(answers)+len(next) >= maxNodes:
				other.silence = &silence{why: fmt.Sprintf("not asked: the limit is %d nodes", maxNodes)}
			default:
				next = append(next, other)
				continue
			}
			nodes = append(nodes, other)
		}
	}
	for _, n := range answers {
		if n.silence != nil && !members[n.address] {
			nodes = append(nodes, n)
		}
	}
	slices.SortStableFunc(nodes, func(a, b node) int {
		return cmp.Compare(cmp.Or(a.name, a.address), cmp.Or(b.name, b.address))
	})
	return nodes, next
}

// What the user can do about nodes without a report.
const (
	adviceReach = "Name the HTTP port (--http-listen) of each node that can be reached with --http or " + variableHTTP + "; --local asks no others. " +
		"For pods: kubectl port-forward POD 7480, then --local --http localhost:7480, with --cacert, --cert and --key if the nodes have --http-tls-cert."
	advicePort = "--http is the HTTP port of a node (--http-listen, 7480 by default), not the client port."
	adviceKube = "Only nodes that run with --kube-listen have a report; cachectl status shows nodes before etcd."
	adviceTLS  = "The nodes speak TLS: give --cacert (or --tls), and --cert and --key if they have --http-tls-client-ca."
	adviceCert = "The nodes have --http-tls-client-ca: give --cert and --key of a certificate of that CA."
	adviceName = "The node's certificate is not valid for the host of its address: give a name that it has with --tls-server-name."
)

// ask gets the report of the node at an address.
func (a *asker) ask(ctx context.Context, address string) (*report.Report, *silence) {
	where := url.URL{Scheme: "http", Host: address, Path: report.Path}
	if a.secure {
		where.Scheme = "https"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, where.String(), nil)
	if err != nil {
		return nil, a.failure(err)
	}
	resp, err := a.http.Do(req)
	if err != nil {
		return nil, a.failure(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxReport+1))
	if err != nil {
		return nil, a.failure(err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, refusal(resp.StatusCode, body)
	}
	if len(body) > maxReport {
		return nil, &silence{fmt.Sprintf("its answer has more than %d MiB", maxReport>>20), advicePort}
	}
	var r report.Report
	if err := json.Unmarshal(body, &r); err != nil {
		return nil, &silence{"its answer is not a report: " + err.Error(), advicePort}
	}
	if r.Node == "" {
		return nil, &silence{"its answer is not a report: it does not name a node", advicePort}
	}
	return &r, nil
}

// refusal explains an answer with a status other than 200.
func refusal(status int, body []byte) *silence {
	text, _, _ := strings.Cut(strings.TrimSpace(string(body[:min(len(body), 200)])), "\n")
	s := &silence{why: fmt.Sprintf("%d %s", status, http.StatusText(status))}
	if text != "" {
		s.why += ": " + document.Text([]byte(text))
	}
	switch {
	case status == http.StatusNotFound:
		s.why, s.advice = "it does not serve Kubernetes' API", adviceKube
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		s.advice = adviceCert
	case strings.Contains(text, "HTTP request to an HTTPS server"):
		s.advice = adviceTLS
	case status == http.StatusServiceUnavailable: // too many concurrent requests, as in the text
	default:
		s.advice = advicePort
	}
	return s
}

// failure explains an error without an answer.
func (a *asker) failure(err error) *silence {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err // without the URL: the message has the address
	}
	s := &silence{why: err.Error()}
	var timeout net.Error
	switch {
	case errors.As(err, &timeout) && timeout.Timeout():
		s.why, s.advice = fmt.Sprintf("no answer in time (half of --timeout %v)", a.timeout), adviceReach
	case errors.As(err, new(x509.HostnameError)):
		s.advice = adviceName
	case cli.AdviceOnTLS(s.why) != "":
		s.advice = cli.AdviceOnTLS(s.why)
	case errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || strings.Contains(s.why, "malformed HTTP"):
		s.advice = advicePort
		if !a.secure {
			s.advice += " " + adviceTLS
		}
	default:
		s.advice = adviceReach
	}
	return s
}
