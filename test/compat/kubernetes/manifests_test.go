package kubernetes_test

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// A kube-apiserver accepts the objects of deploy/k8s: its own kinds, with every field known and
// every value valid. Nothing is stored.
func TestManifestsAreTaken(t *testing.T) {
	s := startServer(t, kubeAPIServer(t), []string{startEtcd(t).url})
	overlays, err := filepath.Glob("../../../deploy/k8s/overlays/*/kustomization.yaml")
	if err != nil || len(overlays) == 0 {
		t.Fatalf("no overlays: %v", err)
	}
	for _, o := range overlays {
		overlay := filepath.Base(filepath.Dir(o))
		t.Run(overlay, func(t *testing.T) {
			for _, document := range strings.Split(build(t, overlay), "\n---\n") {
				taken(t, s, document)
			}
		})
	}
}

// build returns kustomize's output for an overlay.
func build(t *testing.T, overlay string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `"$(tools/pinned kustomize)" build deploy/k8s/overlays/`+overlay)
	cmd.Dir, cmd.Stderr = "../../..", os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// taken submits one object to the server. It skips kinds that the server does not have, which
// test/manifests checks.
func taken(t *testing.T, s *server, document string) {
	t.Helper()
	var o object
	var all map[string]any
	if err := yaml.Unmarshal([]byte(document), &o); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal([]byte(document), &all); err != nil {
		t.Fatal(err)
	}
	ctx := context.WithoutCancel(t.Context())
	if o.Kind == "Namespace" { // later objects need it; two overlays have the same
		if err := s.do(ctx, http.MethodPost, "/api/v1/namespaces?fieldValidation=Strict", all, nil); err != nil && reasonOf(err) != "AlreadyExists" {
			t.Errorf("%s: %v", o.Metadata.Name, err)
		}
		return
	}
	resource := strings.ToLower(o.Kind) + "s"
	if strings.HasSuffix(o.Kind, "y") {
		resource = strings.ToLower(strings.TrimSuffix(o.Kind, "y")) + "ies"
	}
	group := "/apis/" + o.APIVersion
	switch {
	case o.APIVersion == "v1":
		group = "/api/v1"
	case strings.HasPrefix(o.APIVersion, "cert-manager.io/"), strings.HasPrefix(o.APIVersion, "monitoring.coreos.com/"):
		return
	}
	if o.Metadata.Namespace != "" {
		group += "/namespaces/" + o.Metadata.Namespace
	}
	path := group + "/" + resource + "?dryRun=All&fieldValidation=Strict"
	if err := s.do(ctx, http.MethodPost, path, all, nil); err != nil {
		t.Errorf("%s %s: %v", o.Kind, o.Metadata.Name, err)
	}
}
