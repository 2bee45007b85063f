package compat_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

// Installed programs are kept for the next run, in a directory named after their version. It
// appears by a rename, so that concurrent runs only cost time.

// install returns the path of name in the user's cache. make fills it in a new directory.
func install(name string, fill func(dir string) error) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	parent := filepath.Join(cache, "shardwatch")
	path := filepath.Join(parent, name)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", err
	}
	part, err := os.MkdirTemp(parent, name+".part-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(part)
	if err := fill(part); err != nil {
		return "", err
	}
	if err := os.Rename(part, path); err != nil {
		if _, there := os.Stat(path); there != nil { // and no other run created it
			return "", err
		}
	}
	return path, nil
}

// in runs a command in a directory.
func in(dir, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

// etcdctls are the versions with scripts, and how to install each.
var etcdctls = map[string]func() (string, error){
	"3.4": sync.OnceValues(debianEtcdctl),
	"3.7": sync.OnceValues(builtEtcdctl),
}

// etcdctl returns the path of an etcdctl of a version; see testkit.Missing.
func etcdctl(t *testing.T, version string) string {
	t.Helper()
	path, err := etcdctls[version]()
	if err == nil {
		err = isVersion(path, version)
	}
	if err != nil {
		testkit.Missing(t, "there is no etcdctl %s here: %v", version, err)
	}
	return path
}

func isVersion(path, version string) error {
	out, err := exec.Command(path, "version").Output()
	if err == nil && !strings.HasPrefix(string(out), "etcdctl version: "+version+".") {
		err = fmt.Errorf("%s is another one: %q", path, out)
	}
	return err
}

// debianEtcdctl returns the installed etcdctl, or else the one in the package, unpacked and not
// installed.
func debianEtcdctl() (string, error) {
	if path, err := exec.LookPath("etcdctl"); err == nil && isVersion(path, "3.4") == nil {
		return path, nil
	}
	dir, err := install("etcdctl-debian", func(dir string) error {
		if err := in(dir, "apt-get", "download", "etcd-client"); err != nil {
			return err
		}
		debs, err := filepath.Glob(filepath.Join(dir, "*.deb"))
		if err != nil || len(debs) != 1 {
			return fmt.Errorf("apt-get left %v: %w", debs, err)
		}
		return in(dir, "dpkg-deb", "-x", debs[0], dir)
	})
	return filepath.Join(dir, "usr", "bin", "etcdctl"), err
}

// builtEtcdctl builds etcdctl from its module at go.mod's version of etcd, in a separate module, so
// that its dependencies do not affect the product.
func builtEtcdctl() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Version}}", "go.etcd.io/etcd/server/v3").Output()
	if err != nil {
		return "", fmt.Errorf("learn etcd's version: %w", err)
	}
	version := strings.TrimSpace(string(out))
	dir, err := install(fmt.Sprintf("etcdctl-%s-%s-%s", version, runtime.GOARCH, runtime.Version()), func(dir string) error {
		const path = "go.etcd.io/etcd/etcdctl/v3"
		mod := fmt.Sprintf("module compat\n\ngo 1.26\n\nrequire %s %s\n", path, version)
		if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte(mod), 0o600); err != nil {
			return err
		}
		if err := in(dir, "go", "get", path); err != nil {
			return err
		}
		return in(dir, "go", "build", "-o", "etcdctl", path)
	})
	return filepath.Join(dir, "etcdctl"), err
}

// npm returns a directory with the programs' modules of package-lock.json; see testkit.Missing.
func npm(t *testing.T) string {
	t.Helper()
	path, err := installNpm()
	if err != nil {
		testkit.Missing(t, "there are no npm modules here: %v", err)
	}
	return path
}

var installNpm = sync.OnceValues(func() (string, error) {
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			return "", err
		}
	}
	lock, err := os.ReadFile("npm/package-lock.json")
	if err != nil {
		return "", err
	}
	return install(fmt.Sprintf("npm-%x", sha256.Sum256(lock))[:20], func(dir string) error {
		for _, name := range []string{"package.json", "package-lock.json"} {
			b, err := os.ReadFile(filepath.Join("npm", name))
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
				return err
			}
		}
		return in(dir, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	})
})
