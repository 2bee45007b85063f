package manifests_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	rbac "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
)

const root = "../.."

// overlays returns the names of the overlays, from the disk: a new one is tested,
// too.
func overlays(t *testing.T) (names []string) {
	t.Helper()
	found, err := filepath.Glob(root + "/deploy/k8s/overlays/*/kustomization.yaml")
	if err != nil || len(found) == 0 {
		t.Fatalf("no overlays: %v", err)
	}
	for _, f := range found {
		names = append(names, filepath.Base(filepath.Dir(f)))
	}
	return names
}

// build returns what kustomize makes of an overlay.
func build(t *testing.T, overlay string) []byte {
	t.Helper()
	return buildAt(t, "deploy/k8s/overlays/"+overlay)
}

// buildAt returns what kustomize makes of a directory.
func buildAt(t *testing.T, dir string) []byte {
	t.Helper()
	kustomize := command(t, "tools/pinned", "kustomize")
	return command(t, strings.TrimSpace(string(kustomize)), "build", dir)
}

// command runs a command at the root of the repository.
func command(t *testing.T, name string, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = root
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, complaints.String())
	}
	return out.Bytes()
}

// strict returns a decoder that knows all kinds we use, and refuses a field that
// its kind has not got, or that is there twice.
func strict(t *testing.T) runtime.Decoder {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		core.AddToScheme, apps.AddToScheme, policy.AddToScheme, networking.AddToScheme, rbac.AddToScheme,
		certmanager.AddToScheme, monitoring.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
}

// decode decodes a stream of YAML documents.
func decode(d runtime.Decoder, stream []byte) (objects []runtime.Object, err error) {
	documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(stream)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		object, kind, err := d.Decode(document, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("%v: %w\n%s", kind, err, document)
		}
		objects = append(objects, object)
	}
}

// of returns the objects of one type.
func of[T runtime.Object](objects []runtime.Object) (found []T) {
	for _, o := range objects {
		if typed, ok := o.(T); ok {
			found = append(found, typed)
		}
	}
	return found
}

// each runs a test on the objects of each overlay.
func each(t *testing.T, test func(t *testing.T, objects []runtime.Object)) {
	t.Helper()
	for _, overlay := range overlays(t) {
		t.Run(overlay, func(t *testing.T) {
			objects, err := decode(strict(t), build(t, overlay))
			if err != nil {
				t.Fatal(err)
			}
			test(t, objects)
		})
	}
}
