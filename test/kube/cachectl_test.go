package kube_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/shardwatch/shardwatch/internal/files/certtest"
)

// cachectlBinary builds cachectl, once.
var cachectlBinary = sync.OnceValues(func() (string, error) { return build("cachectl") })

// overlayStatus and overlayResources are the tested parts of the output of cachectl kube status and kube
// resources.
type (
	overlayStatus struct {
		Nodes []struct {
			Name, Version, Error string
			Ready                bool
			Apiservers           []struct {
				URL     string
				Avoided bool
			}
			Watches, Objects, Bytes int64
			Uptime                  float64 `json:"uptime_seconds"`
			Requests                struct{ Cached, Passed, Failed int64 }
		}
	}
	overlayResources struct {
		Resources []struct {
			Name, Encoding string
			Followed       []struct{ Node, Apiserver string } `json:"followed_by"`
			Watches        int64
			Progress       int64
			Lag            int64 `json:"lag_versions"`
			Nodes          []struct {
				Node, State, From        string
				Objects, Progress, Floor int64
			}
		}
	}
)

// overlayCachectl returns a function that runs cachectl kube with a certificate of the clients' CA, as
// in docs/cachectl.md, and decodes its document. It returns the standard error.
func overlayCachectl(ctx context.Context, t *testing.T, ca *certtest.CA) func(document any, args ...string) (string, error) {
	t.Helper()
	bin, err := cachectlBinary()
	if err != nil {
		t.Fatal(err)
	}
	files := certtest.NewFiles(t, ca.Issue(t, "shardwatch-kube-metrics"), ca)
	return func(document any, args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, bin, append([]string{
			"kube", "--timeout", "1m", "-o", "json", "--cacert", files.CA, "--cert", files.Cert, "--key", files.Key,
		}, args...)...)
		var errOut bytes.Buffer
		cmd.Env, cmd.Stderr = []string{"CACHECTL_CONFIG=" + files.CA + ".none"}, &errOut
		out, err := cmd.Output()
		if document == nil {
			return errOut.String(), err
		}
		return errOut.String(), errors.Join(err, json.Unmarshal(out, document))
	}
}

// overlayShown compares cachectl's output about the nodes of the overlay with the apiserver and the watches
// of config maps.
func overlayShown(ctx context.Context, t *testing.T, nodes []*node, ca *certtest.CA, apiserver string, set *kubernetes.Clientset, watches int) {
	t.Helper()
	cachectl := overlayCachectl(ctx, t, ca)
	one := strings.Replace(nodes[0].http, "127.0.0.1", "localhost", 1)
	at := []string{"--http", one, "--tls-server-name", "shardwatch-kube.shardwatch-kube.svc"}
	var status overlayStatus
	if text, err := cachectl(&status, append([]string{"status"}, at...)...); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if len(status.Nodes) != len(nodes) {
		t.Fatalf("cachectl shows %d nodes: %+v", len(status.Nodes), status)
	}
	for i, n := range status.Nodes {
		if n.Name != nodes[i].name || !n.Ready || n.Version == "" || n.Uptime <= 0 || n.Objects == 0 || n.Bytes == 0 ||
			len(n.Apiservers) != 1 || n.Apiservers[0].URL != apiserver || n.Apiservers[0].Avoided {
			t.Errorf("%s: %+v", nodes[i].name, n)
		}
	}
	list, err := set.CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(ctx, t, "cachectl shows config maps as they are", func() error {
		var doc overlayResources
		if text, err := cachectl(&doc, append([]string{"resources"}, at...)...); err != nil {
			return fmt.Errorf("%w: %s", err, text)
		}
		open := int64(0)
		for _, r := range doc.Resources {
			if r.Name != "configmaps.v1" {
				continue
			}
			open += r.Watches
			if len(r.Followed) != 1 || r.Followed[0].Apiserver != apiserver {
				return fmt.Errorf("%s in %s is followed by %+v", r.Name, r.Encoding, r.Followed)
			}
			for _, n := range r.Nodes {
				from := r.Followed[0].Node
				if n.Node == from {
					from = apiserver
				}
				if n.State != "ready" || n.From != from || n.Objects != int64(len(list.Items)) || n.Floor > n.Progress+1 || n.Progress > r.Progress {
					return fmt.Errorf("%s in %s, of %d objects: %+v", r.Name, r.Encoding, len(list.Items), n)
				}
			}
		}
		if open != int64(watches) {
			return fmt.Errorf("%d watches of config maps, want %d: %+v", open, watches, doc)
		}
		return nil
	})
	// The example of docs/cachectl.md for a forwarded port; and without a certificate.
	status = overlayStatus{}
	if text, err := cachectl(&status, "status", "--local", "--http", one); err != nil || len(status.Nodes) != 1 {
		t.Errorf("%v: %s%+v", err, text, status)
	}
	if text, err := cachectl(nil, "status", "--local", "--http", one, "--cert", "", "--key", ""); err == nil || !strings.Contains(text, "403 Forbidden") || !strings.Contains(text, "give --cert and --key") {
		t.Errorf("without a certificate: %v: %s", err, text)
	}
}

// overlaySilent runs cachectl for a killed node and another one.
func overlaySilent(ctx context.Context, t *testing.T, gone, other *node, ca *certtest.CA) {
	t.Helper()
	var status overlayStatus
	text, err := overlayCachectl(ctx, t, ca)(&status, "status", "--tls-server-name", "localhost", "--http", other.http+","+gone.http)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(text, "1 of 3 nodes sent no report") {
		t.Errorf("after the death of %s: %v: %s", gone.name, err, text)
	}
	silent := 0
	for _, n := range status.Nodes {
		if slices.Contains([]string{"", gone.name}, n.Name) && strings.Contains(n.Error, "connection refused") {
			silent++
		}
	}
	if silent != 1 {
		t.Errorf("after the death of %s: %+v", gone.name, status)
	}
}
