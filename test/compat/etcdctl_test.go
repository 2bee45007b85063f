package compat_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// Every script runs with each etcdctl against each target, with an empty store. Its transcript must
// be the golden one, which is the same for an etcd and for the tier.
//
// UPDATE=1 go test ./test/compat -run TestEtcdctl/etcd rewrites the golden transcripts.
func TestEtcdctl(t *testing.T) {
	if testing.Short() {
		t.Skip("starts etcds and nodes")
	}
	scripts, err := filepath.Glob("testdata/etcdctl/*.txtar")
	if err != nil || len(scripts) == 0 {
		t.Fatal("no scripts: ", err)
	}
	for _, target := range targets() {
		t.Run(target, func(t *testing.T) {
			for _, version := range slices.Sorted(maps.Keys(etcdctls)) {
				t.Run(version, func(t *testing.T) {
					ctl := etcdctl(t, version)
					for _, script := range scripts {
						name := strings.TrimSuffix(filepath.Base(script), ".txtar")
						t.Run(name, func(t *testing.T) {
							if !everything() && !slices.Contains([]string{"kv", "watch"}, name) {
								t.Skip("make compat runs it")
							}
							runScript(t, script, version, ctl, start(t, target, name == "auth"))
						})
					}
				})
			}
		})
	}
}

func runScript(t *testing.T, script, version, ctl string, g *target) {
	testscript.Run(t, testscript.Params{
		Files:               []string{script},
		UpdateScripts:       os.Getenv("UPDATE") != "" && g.tier == nil,
		RequireUniqueNames:  true,
		RequireExplicitExec: true,
		Condition: func(cond string) (bool, error) {
			return cond == g.name || cond == version, nil
		},
		Setup: func(env *testscript.Env) error {
			s := newSession(ctl, g)
			env.Values[sessionKey{}] = s
			env.Defer(s.close)
			env.Setenv("VERSION", version)
			env.Setenv("NODE", g.endpoints()[0])
			env.Setenv("ETCD", g.etcd.Endpoint())
			return nil
		},
		Cmds: commands(),
	})
}
