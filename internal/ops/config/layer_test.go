package config_test

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/shardwatch/shardwatch/internal/ops/config"
)

// read reads settings as the command does: arguments, then the other layers.
func read(t *testing.T, args, environ []string, file string) (config.Config, *pflag.FlagSet, config.Layered, error) {
	t.Helper()
	c := config.Defaults()
	fs := pflag.NewFlagSet("run", pflag.ContinueOnError)
	c.Flags(fs)
	fs.String(config.FileFlag, "", "")
	if file != "" {
		path := filepath.Join(t.TempDir(), "node.yaml")
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--config", path)
	}
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	l, err := config.Layer(fs, environ)
	return c, fs, l, err
}

func TestFlagWinsOverEnvironmentOverFileOverDefault(t *testing.T) {
	const file = "name: file\nzone: file\nshards: 2\nprefix: [/a/, '/b,c/']\njoin: x,y\nwindow-bytes: 8MiB\n"
	c, _, l, err := read(t,
		[]string{"--name", "flag", "--prefix", "/f/", "--prefix", "/g/"},
		[]string{"CACHENODE_NAME=env", "CACHENODE_ZONE=env", "CACHENODE_ETCD=e1:1,e2:2", "CACHENODE_DRAIN_TIMEOUT=5s", "CACHENODE_LOG_LEVEL="},
		file)
	if err != nil {
		t.Fatal(err)
	}
	want := config.Defaults()
	want.Name = "flag"
	want.Zone = "env"
	want.Etcd.Endpoints = []string{"e1:1", "e2:2"}
	want.DrainTimeout = 5e9
	want.Prefixes = []string{"/f/", "/g/"}
	want.Join = []string{"x", "y"}
	want.Shards = 2
	want.WindowBytes = 8 * config.MiB
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got  %+v\nwant %+v", c, want)
	}
	for setting, source := range map[string]string{"name": "--name", "zone": "CACHENODE_ZONE", "shards": "node.yaml:3"} {
		if got := filepath.Base(l.Source[setting]); got != source {
			t.Errorf("source of %s: %s, want %s", setting, got, source)
		}
	}
	if got, ok := l.Source["log-level"]; ok {
		t.Errorf("an empty variable set log-level: %s", got)
	}
}

func TestAListInTheFileIsTakenAsItIs(t *testing.T) {
	c, _, _, err := read(t, nil, nil, "prefix:\n- '/b,c/'\n- '\"q/'\netcd: []\n")
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"/b,c/", `"q/`}; !slices.Equal(c.Prefixes, want) {
		t.Errorf("prefixes %q, want %q", c.Prefixes, want)
	}
	if len(c.Etcd.Endpoints) != 0 {
		t.Errorf("an empty list did not replace the default: %q", c.Etcd.Endpoints)
	}
}

func TestTheFileIsNamedByTheEnvironmentToo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "n.yaml")
	if err := os.WriteFile(path, []byte("# only a zone\nzone: b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, _, _, err := read(t, nil, []string{"CACHENODE_CONFIG=" + path}, "")
	if err != nil || c.Zone != "b" {
		t.Errorf("zone %q, %v", c.Zone, err)
	}
}

func TestFilesThatSetNothing(t *testing.T) {
	for _, file := range []string{"\n", "# a comment\n", "---\n", "{}\n"} {
		c, _, l, err := read(t, nil, nil, file)
		delete(l.Source, config.FileFlag)
		if err != nil || len(l.Source) != 0 || !reflect.DeepEqual(c, config.Defaults()) {
			t.Errorf("%q: %v, set %v", file, err, l.Source)
		}
	}
}

func TestEveryMistakeInFileAndEnvironmentIsNamedAtOnceWithItsPlace(t *testing.T) {
	const file = `shard: 4
window-bytes: 8MiX
replicas: [1, 2]
zone:
xyzzy: 1
window-time: 10
shards: 4
shards: 5
listen: {port: 1}
config: other.yaml
prefix: [{a: b}]
`
	c, _, l, err := read(t, nil, []string{"CACHENODE_REPLICAS=three", "CACHENODE_LOG_LEVEL=loud", "CACHENODE_PORT=tcp://1.2.3.4"}, file)
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		`node.yaml:1: unknown key "shard"; did you mean shards?`,
		`node.yaml:2: window-bytes: "8MiX" is not a size: there is no unit "MiX"`,
		`node.yaml:3: replicas: takes one value, not a list`,
		`node.yaml:4: zone: has no value`,
		`node.yaml:5: unknown key "xyzzy"` + "\n",
		`node.yaml:6: window-time: "10" is not a duration: write one such as 10m`,
		`node.yaml:8: shards is set again; it was set in line 7`,
		`node.yaml:9: listen: takes a plain value`,
		`node.yaml:10: unknown key "config"`,
		`node.yaml:11: prefix: is a list of plain values`,
		`CACHENODE_REPLICAS: replicas: "three" is not a whole number`,
		`CACHENODE_LOG_LEVEL: log-level: "loud" is not a level: use debug, info, warn or error`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in:\n%v", want, err)
		}
	}
	if want := config.Defaults().Replicas; c.Replicas != want {
		t.Errorf("after a file with mistakes: %d replicas, want the default %d", c.Replicas, want)
	}
	if want := []string{"CACHENODE_PORT"}; !slices.Equal(l.Unknown, want) {
		t.Errorf("unknown variables %v, want %v", l.Unknown, want)
	}
}

func TestFilesThatAreNotAConfiguration(t *testing.T) {
	for file, want := range map[string]string{
		"- a\n":            `node.yaml:1: want lines of the form "name: value"`,
		"zone: a\n---\nb:": "more than one YAML document",
		"zone: 'a\n":       "yaml: ",
	} {
		if _, _, _, err := read(t, nil, nil, file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", file, err, want)
		}
	}
	if _, _, _, err := read(t, []string{"--config", "/nowhere/x.yaml"}, nil, ""); err == nil || !strings.Contains(err.Error(), "--config: open /nowhere/x.yaml") {
		t.Errorf("a missing file: %v", err)
	}
}

// Printed settings read back unchanged.
func TestPrintReadsBack(t *testing.T) {
	first, fs, l, err := read(t,
		[]string{"--name", "null", "--zone", "a: b #c", "--prefix", "/x/", "--prefix", "~", "--window-bytes", "3MB", "--log-level", "warn"},
		[]string{"CACHENODE_SHARDS=7"}, "")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := config.Print(&out, fs, l); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"shards: 7 # CACHENODE_SHARDS\n", "replicas: 3\n", "log-level: warn # --log-level\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out.String())
		}
	}
	second, _, _, err := read(t, nil, nil, out.String())
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	// An empty list is printed, and read back as one.
	if first.Join == nil && first.PeerSANs == nil && first.JSONHosts == nil && first.CipherSuites == nil {
		second.Join, second.PeerSANs, second.JSONHosts, second.CipherSuites = nil, nil, nil, nil
		second.Kube.Servers, second.Kube.Preload = nil, nil
	}
	if !reflect.DeepEqual(first, second) {
		t.Errorf("printed %+v\nread    %+v", first, second)
	}
}

// Each flag changes a field of Config.
func TestEveryFlagChangesAField(t *testing.T) {
	values := map[string]string{"string": "x", "int": "9", "size": "9MiB", "duration": "9s", "level": "debug", "stringSlice": "x", "ports": "http"}
	c := config.Defaults()
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	c.Flags(fs)
	fs.VisitAll(func(f *pflag.Flag) {
		before := c
		before.Etcd.Endpoints = slices.Clone(c.Etcd.Endpoints)
		value, ok := values[f.Value.Type()]
		if f.Value.Type() == "bool" {
			value, ok = strconv.FormatBool(f.DefValue != "true"), true
		}
		if !ok {
			t.Fatalf("--%s has the type %s, which this test does not know", f.Name, f.Value.Type())
		}
		if err := fs.Set(f.Name, value); err != nil {
			t.Fatal(err)
		}
		if reflect.DeepEqual(before, c) {
			t.Errorf("--%s changes nothing", f.Name)
		}
	})
}

func TestUnknownFlagNamesTheNearest(t *testing.T) {
	for arg, want := range map[string]string{
		"--shard=3":       "did you mean --shards?",
		"--datadir=x":     "did you mean --data-dir?",
		"--conifg=x":      "did you mean --config?",
		"--nothing-alike": "unknown flag: --nothing-alike",
	} {
		c := config.Defaults()
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		c.Flags(fs)
		err := config.ExplainFlagError(fs, fs.Parse([]string{arg}))
		if err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %v, want %q", arg, err, want)
		}
	}
}
