package lifecycle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/admin"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// A cluster is upgraded from the previous version to this one, and rolled back, while it is
// watched: nodes of both versions work together, and write nothing that the older ones do not
// understand. Once all are upgraded and the upgrade is finalized, the older software ends with an
// error that explains this, and the newer one continues with the same volume.
func TestUpgradeAndBack(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the version before this one, and rolls three nodes")
	}
	before := previous(t)
	s, c := newStatefulSet(t, before)
	last := 2 // one pod of three, both ways, shows that two versions work together
	if *whole {
		last = 0
	}
	after := this(t)
	must(t, s.roll(t.Context(), after, last))
	c.settle("the upgrade")
	if err := s.finalize(t); last > 0 && err == nil { // an older node does not support the command
		t.Error("finalized with older members")
	}
	must(t, s.roll(t.Context(), before, last))
	c.settle("the way back")
	must(t, s.roll(t.Context(), after, 0))
	c.settle("the upgrade of all")
	must(t, s.finalize(t))
	must(t, s.finalize(t)) // repeating it has no effect
	c.settle("finalizing")

	must(t, s.terminate(2))
	s.image = before
	must(t, s.create(t.Context(), 2))
	p := s.pod(2)
	select {
	case <-p.ended:
	case <-time.After(patience):
		t.Error("the older software continues after the upgrade was finalized")
		must(t, s.terminate(2))
	}
	log, err := os.ReadFile(s.volume(2) + ".log")
	must(t, err)
	if !strings.Contains(string(log), "written by a newer version of this software: upgrade this node") {
		t.Error("the older software does not say that it is too old")
	}
	s.gone(2, p)
	s.image = after
	must(t, s.create(t.Context(), 2))
	must(t, s.available(t.Context(), 2))
	c.settle("the newer software on the same volume")
}

// finalize makes the nodes' newest feature level the cluster's.
func (s *statefulSet) finalize(t *testing.T) error {
	t.Helper()
	api, err := client.New(client.Config{Endpoints: []string{s.network.self + ":7400"}})
	must(t, err)
	defer api.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	run, err := admin.New(api).ChangePlacement(ctx, admin.FinalizeUpgrade{}, admin.ChangeOptions{})
	if err != nil {
		return err
	}
	return run.Wait(nil)
}

// previous builds the newest release before this commit, or, before the first release, the state
// before the last increase of the feature level. It skips the test in a clone without that history.
func previous(t *testing.T) (image string) {
	t.Helper()
	commit, why := git(t, "describe", "--tags", "--abbrev=0", "--match", "v*", "HEAD^")
	if why != nil {
		commit, why = lowerLevel(t)
	}
	if why != nil {
		t.Skipf("there is no earlier version in this clone; a shallow one has no history: %v", why)
	}
	t.Logf("the version before is %s", commit)
	dir := t.TempDir()
	archive := exec.CommandContext(t.Context(), "git", "archive", commit)
	archive.Dir = "../.."
	unpack := exec.CommandContext(t.Context(), "tar", "-x", "-C", dir)
	var err error
	if unpack.Stdin, err = archive.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	must(t, unpack.Start())
	must(t, errors.Join(archive.Run(), unpack.Wait()))
	image = filepath.Join(dir, "cachenode")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", image, "./cmd/cachenode")
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", commit, err, out)
	}
	return image
}

// lowerLevel returns the commit before the last increase of the feature level.
func lowerLevel(t *testing.T) (commit string, err error) {
	t.Helper()
	const file = "internal/shard/codec.go"
	changes, err := git(t, "log", "--format=%H", "--", file)
	if err != nil {
		return "", err
	}
	raised := "HEAD"
	for commit := range strings.FieldsSeq(changes) {
		text, err := git(t, "show", commit+":"+file)
		if err != nil {
			return "", err
		}
		if level := levelIn(text); level > 0 && level < shard.Level {
			return git(t, "rev-parse", "--verify", raised+"^")
		}
		raised = commit
	}
	return "", fmt.Errorf("no commit has a feature level below %d", shard.Level)
}

// levelIn returns the greatest level in the source of package shard.
func levelIn(source string) (greatest int) {
	for _, m := range regexp.MustCompile(`(?im)^\s*level\w+\s*=\s*(\d+)`).FindAllStringSubmatch(source, -1) {
		level, _ := strconv.Atoi(m[1]) // it is digits
		greatest = max(greatest, level)
	}
	return greatest
}

// git runs git in this repository and returns its output.
func git(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", append([]string{"-c", "safe.directory=*"}, args...)...)
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(complaints.String()))
	}
	return strings.TrimSpace(out.String()), nil
}
