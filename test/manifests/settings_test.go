package manifests_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// cachenode, as it is in the image, takes what the pods' environment says, and
// knows every setting in it.
func TestCachenodeTakesTheSettings(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "cachenode")
	command(t, "go", "build", "-tags", "nodev", "-o", bin, "./cmd/cachenode")
	each(t, func(t *testing.T, objects []runtime.Object) {
		pod := shardwatch(t, objects).Spec.Template.Spec
		if args := pod.Containers[0].Args; len(args) != 1 || args[0] != "run" {
			t.Errorf("args are %q: settings are to be in the environment", args)
		}
		files := t.TempDir()
		inConfigMaps(t, objects, &pod, files)
		var environment []string
		for name, value := range settings(t, objects, &pod) {
			if rest, ok := strings.CutPrefix(value, "/etc/shardwatch/"); ok {
				value = filepath.Join(files, rest)
				secret(t, value)
			}
			environment = append(environment, name+"="+value)
		}
		out, err := configOf(t, bin, environment)
		if err != nil || strings.Contains(out, "has no effect") {
			t.Errorf("%v\n%s", err, out)
		}
	})
}

// configOf returns what `cachenode config` prints in an environment.
func configOf(t *testing.T, bin string, environment []string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), bin, "config")
	cmd.Env = environment
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// What ships lets operators look and give orders, Prometheus look, and no certificate
// read or write keys before somebody gives it a role.
func TestTheShippedPolicyIsNarrow(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "cachenode")
	command(t, "go", "build", "-tags", "nodev", "-o", bin, "./cmd/cachenode")
	each(t, func(t *testing.T, objects []runtime.Object) {
		pod := shardwatch(t, objects).Spec.Template.Spec
		file, ok := strings.CutPrefix(settings(t, objects, &pod)["CACHENODE_POLICY"], "/etc/shardwatch/")
		if open := strings.HasSuffix(t.Name(), "/dev"); !ok {
			if !open && !servesKube(t, objects) { // there the apiservers have the rights
				t.Error("there is no policy")
			}
			return
		}
		files := t.TempDir()
		inConfigMaps(t, objects, &pod, files)
		may := func(identity string, verb ...string) bool {
			t.Helper()
			args := append([]string{"policy", "explain", filepath.Join(files, file), "--verb"}, verb...)
			if identity != "" {
				args = append(args, "--identity", identity)
			}
			out, err := exec.CommandContext(t.Context(), bin, args...).CombinedOutput()
			if verdict := string(out); err != nil && !strings.HasPrefix(verdict, "denied\n") || err == nil && !strings.HasPrefix(verdict, "allowed\n") {
				t.Fatalf("%q: %v\n%s", args, err, out)
			}
			return err == nil
		}
		clients := map[string][2]bool{"": {}, "cn:stranger": {}, "dns:shardwatch.shardwatch.svc": {}}
		for _, c := range of[*certmanager.Certificate](objects) {
			if name := c.Spec.CommonName; name != "" && !c.Spec.IsCA {
				clients["cn:"+name] = map[string][2]bool{"shardwatch-admin": {true, true}, "shardwatch-metrics": {true, false}}[name]
			}
		}
		for identity, want := range clients {
			if got := [2]bool{may(identity, "operator:read"), may(identity, "operator:write")}; got != want {
				t.Errorf("%q may operator:read, operator:write: %v, want %v", identity, got, want)
			}
			for _, verb := range []string{"read", "watch", "write"} {
				if may(identity, verb, "--key", "/registry/secrets/a") {
					t.Errorf("%q may %s a key", identity, verb)
				}
			}
		}
	})
}

// inConfigMaps writes what volumes have of ConfigMaps to where dir has
// /etc/shardwatch.
func inConfigMaps(t *testing.T, objects []runtime.Object, pod *core.PodSpec, dir string) {
	t.Helper()
	at := map[string]string{}
	for _, m := range pod.Containers[0].VolumeMounts {
		at[m.Name] = filepath.Join(dir, strings.TrimPrefix(m.MountPath, "/etc/shardwatch/"))
	}
	for _, v := range pod.Volumes {
		if v.ConfigMap == nil {
			continue
		}
		if !exists(of[*core.ConfigMap](objects), v.ConfigMap.Name) {
			t.Errorf("volume %s: there is no ConfigMap %s", v.Name, v.ConfigMap.Name)
		}
		for _, m := range of[*core.ConfigMap](objects) {
			for name, text := range m.Data {
				if m.Name != v.ConfigMap.Name {
					continue
				}
				file := filepath.Join(at[v.Name], name)
				if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// secret writes what a mounted Secret would have under the name of file.
func secret(t *testing.T, file string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	certificate := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, certificate, certificate, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(file)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{
		"ca.crt":  pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		"tls.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		"tls.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}),
		"key":     []byte(base64.StdEncoding.EncodeToString(make([]byte, 32))),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
