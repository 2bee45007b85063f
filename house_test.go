// Package shardwatch_test holds the rules for the whole repository: which packages a
// package may import, and which packages may import a library. docs/architecture.md
// describes the layout.
package shardwatch_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/shardwatch/shardwatch"

// pkg is a package as `go list` shows it; inside drops the module's path from its paths.
type pkg struct {
	ImportPath   string
	Imports      []string
	TestImports  []string
	XTestImports []string
}

// layers are the layers of packages, lowest first. A package may import packages of lower
// layers, and none of its own layer or above.
func layers() [][]string {
	return [][]string{
		{"internal/beat", "internal/wait", "internal/protofields", "internal/edge/rawconn", "internal/edge/grpcserver/callhead", "internal/edge/grpcserver/services", "internal/edge/dispatch", "internal/yield", "internal/testing/testkit", "internal/files/testseed"},
		{"internal/edge/grpcserver/socket"},
		{"internal/kv", "internal/fair", "internal/edge/farewell", "internal/edge/keybrowser", "internal/edge/receive", "internal/files/tlsconf", "internal/version", "internal/ops/telemetry", "internal/files/reload", "internal/edge/grpcserver", "internal/files/durable", "internal/files/certtest", "internal/kube/object", "internal/kube/kubeconfig", "internal/kube/report"},
		{"internal/edge/netlimit", "internal/shard", "internal/auth/etcdroles", "internal/ops/revtrace", "internal/budget", "internal/kube/selector", "internal/ops/config", "internal/testing/check", "internal/testing/sim/memetcd", "internal/etcd/etcddemand"},
		{"internal/testing/maptest", "internal/control/planner", "internal/data/keytree", "internal/control/mapfile", "internal/edge/intake"},
		{"internal/control/mapchange"},
		{"internal/wire", "internal/auth/policy"},
		{"internal/etcd/etcdconn"},
		{"internal/etcd/etcdclock"},
		{"internal/etcd", "internal/replica", "internal/membership", "internal/control/placement", "internal/kube/source"},
		{"internal/cache", "internal/auth/etcdauth", "internal/auth/authz", "internal/edge/gateway", "internal/kube/guard", "internal/kube/port", "internal/kube/transition"},
		{"internal/testing/cachetest", "internal/control/roster", "internal/history", "internal/data/verify", "internal/data/lineage", "internal/data/copies", "internal/control/mapfollow", "internal/data/peers", "internal/kube/upstream"},
		{"internal/router", "internal/edge/pump"},
		{"internal/ops/watchstats", "internal/data/peerapi", "internal/edge/etcdview"},
		{"internal/edge/etcdwatch", "internal/kube/tier", "internal/kube/past"},
		{"internal/edge/etcdapi", "internal/edge/syncbatch"},
		{"internal/edge/callers"},
		{"internal/edge/admin", "internal/edge/native"},
		{"internal/edge/server", "internal/ops/statuspage", "internal/kube/api"},
		{"internal/ops/delivery", "internal/control/drain", "internal/control/operator", "internal/kube/page"},
		{"internal/node"},
		{"internal/testing/devetcd", "internal/testing/sim"},
		{"cmd/cachenode"},
	}
}

// groups are the folders of internal that hold packages.
func groups() []string {
	return []string{"auth", "control", "data", "edge", "files", "kube", "ops", "testing"}
}

// beside are the packages outside the layers, each with all packages of the module that it
// may import. An entry that ends in "/..." is a folder with everything below it.
func beside() map[string][]string {
	return map[string][]string{
		"api/...": {"api/..."},
		// The public client and the servers share the API, the code that reads and reloads
		// certificate files, and the code that replaces a file so that it survives a crash.
		"client":                               {"api/...", "client/internal/..."},
		"client/internal/calls":                {"client/internal/connect", "client/internal/keyrange", "client/internal/nodes", "client/internal/outcome", "client/internal/retry"},
		"client/internal/connect":              {"client/internal/outcome", "client/internal/retry", "internal/files/reload", "internal/files/tlsconf"},
		"client/internal/homing":               {"client/internal/connect", "client/internal/nodes", "client/internal/retry", "client/internal/shardmap"},
		"client/internal/index":                {},
		"client/internal/keyrange":             {"api/..."},
		"client/internal/mapfollow":            {"api/...", "client/internal/connect", "client/internal/keyrange", "client/internal/nodes", "client/internal/outcome", "client/internal/retry", "client/internal/shardmap"},
		"client/internal/nodes":                {"api/...", "client/internal/connect", "client/internal/outcome", "client/internal/retry"},
		"client/internal/outcome":              {},
		"client/internal/retry":                {},
		"client/internal/shardmap":             {"api/...", "client/internal/keyrange", "client/internal/outcome"},
		"client/admin":                         {"client", "client/internal/keyrange", "api/..."},
		"client/clienttest":                    {"client", "api/..."},
		"client/internal/scripted":             {"client", "client/clienttest"},
		"client/follow":                        {"client", "internal/files/durable"},
		"client/mirror":                        {"client", "client/internal/index", "client/internal/keyrange", "client/internal/tree", "api/..."},
		"client/internal/token":                {"client/internal/keyrange"},
		"client/internal/tree":                 {"client/internal/keyrange"},
		"cmd/cachectl":                         {"client", "client/...", "api/...", "cmd/cachectl/internal/...", "internal/files/tlsconf", "internal/version", "internal/files/durable"},
		"cmd/cachectl/internal/document":       {},
		"cmd/cachectl/internal/cli":            {"client", "client/admin", "cmd/cachectl/internal/document", "internal/files/tlsconf", "internal/files/durable"},
		"cmd/cachectl/internal/keys":           {"client", "client/follow", "cmd/cachectl/internal/cli", "cmd/cachectl/internal/document"},
		"cmd/cachectl/internal/cluster":        {"client", "client/admin", "cmd/cachectl/internal/cli", "cmd/cachectl/internal/document", "internal/version"},
		"cmd/cachectl/internal/kube":           {"cmd/cachectl/internal/cli", "cmd/cachectl/internal/document", "internal/kube/report"}, // the format of the nodes' reports
		"cmd/cachectl/internal/changes":        {"client", "client/admin", "cmd/cachectl/internal/cli", "cmd/cachectl/internal/cluster", "cmd/cachectl/internal/document"},
		"examples":                             {}, // counts the lines of the programs below
		"examples/...":                         {"client", "client/follow", "client/mirror"},
		"internal/testing/etcdtest":            {"internal/kv", "internal/fair", "internal/wait", "internal/testing/devetcd", "internal/freeport"},
		"internal/freeport":                    {},
		"internal/edge/grpcserver/interoptest": {},
		"internal/testing/nodetest":            {"internal/freeport"},
		"internal/testing/proc":                {},
		"test/...":                             {"test/...", "client", "client/...", "api/...", "internal/..."},
		"bench/...":                            {"bench/...", "client", "client/...", "api/...", "internal/..."},
	}
}

// mayUseAPI reports whether packages of a layer may use the generated API: internal/wire
// and the layers above it.
func mayUseAPI(layer int) bool { return layer >= layerOf("internal/wire") }

// restriction lists the packages that may import a library.
type restriction struct {
	library string
	// only are the packages that may import it, besides those in test/ and bench/.
	only []string
	// tests allows the import in all test files.
	tests bool
	// messages are packages of the library that only have generated messages. Any package
	// may import them.
	messages []string
}

func restrictions() []restriction {
	return []restriction{
		{"go.etcd.io/etcd/client/v3", []string{"internal/etcd/...", "internal/testing/etcdtest", "internal/testing/devetcd"}, true, nil},
		// etcd's lock and election services are declared within its server.
		{"go.etcd.io/etcd/server/v3", []string{"internal/testing/etcdtest", "internal/testing/devetcd"}, true, []string{
			"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb", "go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb",
			"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb/gw", "go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb/gw",
		}},
		{"go.etcd.io/etcd/etcdutl/v3", []string{"internal/testing/etcdtest"}, true, nil}, // restores snapshots
		{"github.com/hashicorp/memberlist", []string{"internal/membership"}, false, nil},
		{"github.com/hashicorp/raft", []string{"internal/control/placement"}, false, nil},
		{"github.com/hashicorp/raft-boltdb", []string{"internal/control/placement"}, false, nil},
		// Each has its own file; no type of bbolt leaves the two packages.
		{"go.etcd.io/bbolt", []string{"internal/history", "internal/control/placement"}, false, nil},
		{"google.golang.org/grpc/codes", []string{"internal/wire", "internal/edge/grpcserver", "internal/edge/grpcserver/callhead", "internal/edge/grpcserver/services", "internal/edge/grpcserver/interoptest", "client", "client/...", "api/..."}, true, nil},
		{"google.golang.org/grpc/status", []string{"internal/wire", "internal/edge/grpcserver", "internal/edge/grpcserver/callhead", "internal/edge/grpcserver/services", "internal/edge/grpcserver/interoptest", "client", "client/...", "api/..."}, true, nil},
		{"github.com/go-jose/go-jose/v4", []string{"internal/auth/policy"}, true, nil},
		{"github.com/spf13/cobra", []string{"cmd/cachenode", "cmd/cachectl", "cmd/cachectl/internal/..."}, false, nil},
	}
}

// pure are the packages of pure functions: no clock, no goroutine, no logger and no I/O.
// They import only the listed packages.
func pure() (packages, imports []string) {
	return []string{"internal/control/planner", "internal/control/mapchange"},
		[]string{"internal/kv", "internal/shard", "internal/control/planner", "cmp", "errors", "fmt", "iter", "maps", "math", "math/bits", "slices", "strconv", "strings", "time", "github.com/cespare/xxhash/v2"}
}

// clockless are the names of package time that a pure package may use: only values.
func clockless() []string {
	return []string{"Time", "Duration", "Nanosecond", "Microsecond", "Millisecond", "Second", "Minute", "Hour"}
}

// TestLayers checks the imports of all packages.
func TestLayers(t *testing.T) {
	for _, p := range list(t) {
		for _, broken := range breaks(p) {
			t.Error(broken)
		}
	}
}

// TestPackagesHaveOneLayerAndOneRow checks that each package is in at most one layer and in one row of the
// table in docs/architecture.md.
func TestPackagesHaveOneLayerAndOneRow(t *testing.T) {
	text, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	told, placed := make(map[string]int), make(map[string]int)
	for line := range strings.Lines(string(text)) {
		if cells := strings.Split(line, "|"); len(cells) == 4 {
			for i, name := range strings.Split(cells[1], "`") {
				if i%2 == 1 {
					told[name]++
				}
			}
		}
	}
	for _, layer := range layers() {
		for _, name := range layer {
			placed[name]++
		}
	}
	for name, n := range placed {
		if n > 1 {
			t.Errorf("%s is in %d layers, want one", name, n)
		}
	}
	for _, p := range list(t) {
		name := inside(p.ImportPath)
		rest, ok := strings.CutPrefix(name, "internal/")
		if group, in, grouped := strings.Cut(rest, "/"); grouped && slices.Contains(groups(), group) {
			rest = in
		}
		if ok && !strings.Contains(rest, "/") && told[name] != 1 {
			t.Errorf("docs/architecture.md has %s in %d rows of its table, want one", name, told[name])
		}
	}
}

// TestDecisionsArePure checks that no pure package reads the clock, waits, or starts a
// goroutine.
func TestDecisionsArePure(t *testing.T) {
	packages, _ := pure()
	for _, name := range packages {
		files, err := filepath.Glob(filepath.Join(name, "*.go"))
		if err != nil || len(files) == 0 {
			t.Errorf("%s: %d files, %v", name, len(files), err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, broken := range impure(t, file, text) {
				t.Error(broken)
			}
		}
	}
}

// impure returns a message for each statement of a file that is not pure.
func impure(t *testing.T, file string, text []byte) (sentences []string) {
	t.Helper()
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, file, text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt, *ast.SelectStmt, *ast.ChanType:
			sentences = append(sentences, fmt.Sprintf("%s: a pure package has no goroutine and no channel", fset.Position(n.Pos())))
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && !slices.Contains(clockless(), n.Sel.Name) {
				sentences = append(sentences, fmt.Sprintf("%s: time.%s: a pure package gets the time as an argument", fset.Position(n.Pos()), n.Sel.Name))
			}
		}
		return true
	})
	return sentences
}

// breaks returns a message for each rule that p breaks.
func breaks(p pkg) (sentences []string) {
	name := inside(p.ImportPath)
	if known(name) == "" {
		return []string{fmt.Sprintf("%s is in no layer: add it to layers in house_test.go and to the table in docs/architecture.md", name)}
	}
	inTests := slices.Concat(p.TestImports, p.XTestImports)
	for _, imported := range p.Imports {
		if why := wrongLayer(name, inside(imported)); why != "" {
			sentences = append(sentences, why)
		}
	}
	if packages, allowed := pure(); slices.Contains(packages, name) {
		for _, imported := range p.Imports {
			if !slices.Contains(allowed, inside(imported)) {
				sentences = append(sentences, fmt.Sprintf("%s imports %s: a pure package has no I/O, clock or logger", name, imported))
			}
		}
	}
	for _, d := range restrictions() {
		if match("test/...", name) || match("bench/...", name) || slices.ContainsFunc(d.only, func(o string) bool { return match(o, name) }) {
			continue
		}
		imports := p.Imports
		if !d.tests {
			imports = slices.Concat(imports, inTests)
		}
		for _, imported := range imports {
			if !slices.Contains(d.messages, imported) && (imported == d.library || strings.HasPrefix(imported, d.library+"/")) {
				sentences = append(sentences, fmt.Sprintf("%s imports %s: only %s may, one package per library", name, imported, strings.Join(d.only, ", ")))
			}
		}
	}
	return sentences
}

// wrongLayer returns the reason why name may not import imported, a package inside or
// outside the module, or "".
func wrongLayer(name, imported string) string {
	if !ours(imported) {
		return ""
	}
	if allowed, ok := beside()[known(name)]; ok {
		if slices.ContainsFunc(allowed, func(a string) bool { return match(a, imported) }) {
			return ""
		}
		return fmt.Sprintf("%s imports %s: it may import %s only", name, imported, strings.Join(allowed, ", "))
	}
	from, to := layerOf(name), layerOf(imported)
	switch {
	case match("api/...", imported):
		if mayUseAPI(from) {
			return ""
		}
		return fmt.Sprintf("%s imports %s: only internal/wire and the layers above it may import the API", name, imported)
	case imported == "client" && (name == "cmd/cachenode" || name == "internal/testing/sim"):
		return "" // the demo and the simulation run clients
	case to < 0:
		return fmt.Sprintf("%s imports %s: that package is outside the layers, and servers may not import it", name, imported)
	case to == from:
		return fmt.Sprintf("%s imports %s: both are in one layer; imports go down, never sideways", name, imported)
	case to > from:
		return fmt.Sprintf("%s imports %s: imports go down, never up", name, imported)
	}
	return ""
}

// known returns the entry of layers or beside that covers name, or "".
func known(name string) string {
	if layerOf(name) >= 0 {
		return name
	}
	if name == "" { // the root: this test
		return "test/..."
	}
	best := ""
	for entry := range beside() {
		if match(entry, name) && len(entry) > len(best) {
			best = entry
		}
	}
	return best
}

// layerOf returns the layer of a package, from 0, or -1.
func layerOf(name string) int {
	return slices.IndexFunc(layers(), func(layer []string) bool { return slices.Contains(layer, name) })
}

func match(entry, name string) bool {
	folder, all := strings.CutSuffix(entry, "/...")
	return entry == name || (all && strings.HasPrefix(name, folder+"/"))
}

// ours reports whether a path without the module's path is a package of the module.
func ours(p string) bool {
	first, _, _ := strings.Cut(p, "/")
	return slices.Contains([]string{"api", "bench", "client", "cmd", "internal", "test"}, first)
}

// inside drops the module's path.
func inside(importPath string) string {
	return strings.TrimPrefix(strings.TrimPrefix(importPath, module), "/")
}

// list returns the packages of the modules in go.work.
func list(t *testing.T) (pkgs []pkg) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-e", "-json=ImportPath,Imports,TestImports,XTestImports", "work")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
}

// Each rule rejects an example that breaks it.
func TestImportRulesRejectViolations(t *testing.T) {
	in := func(name string, imports ...string) pkg {
		for i, p := range imports {
			if ours(p) {
				imports[i] = path.Join(module, p)
			}
		}
		return pkg{ImportPath: path.Join(module, name), Imports: imports}
	}
	inTest := func(name string, imports ...string) pkg {
		p := in(name)
		p.TestImports = imports
		return p
	}
	for name, c := range map[string]struct {
		p    pkg
		want string // "": no rule is broken
	}{
		"down":                          {in("internal/cache", "internal/kv", "context"), ""},
		"up":                            {in("internal/kv", "internal/cache"), "internal/kv imports internal/cache: imports go down, never up"},
		"sideways":                      {in("internal/etcd", "internal/replica"), "internal/etcd imports internal/replica: both are in one layer"},
		"into itself by a subfolder":    {in("internal/etcd/sub", "internal/kv"), "internal/etcd/sub is in no layer"},
		"an unknown package":            {in("internal/util"), "internal/util is in no layer"},
		"the API below the wire":        {in("internal/shard", "api/proto/shardwatch/v1"), "only internal/wire and the layers above it may import the API"},
		"the API at the wire":           {in("internal/wire", "api/proto/shardwatch/v1"), ""},
		"the client in a server":        {in("internal/edge/server", "client"), "internal/edge/server imports client: that package is outside the layers"},
		"the client in the demo":        {in("cmd/cachenode", "client"), ""},
		"the servers in the client":     {in("client", "internal/kv"), "client imports internal/kv: it may import api/..., client/internal/... only"},
		"the servers in cachectl":       {in("cmd/cachectl", "internal/shard"), "cmd/cachectl imports internal/shard: it may import client"},
		"tests see all":                 {in("test/chaos", "internal/node", "go.etcd.io/etcd/client/v3"), ""},
		"etcd outside its package":      {in("internal/cache", "go.etcd.io/etcd/client/v3"), "internal/cache imports go.etcd.io/etcd/client/v3: only internal/etcd/..."},
		"a package of etcd's":           {in("internal/node", "go.etcd.io/etcd/client/v3/concurrency"), "one package per library"},
		"etcd's server":                 {in("internal/node", "go.etcd.io/etcd/server/v3/etcdserver/api/v3lock"), "one package per library"},
		"messages of etcd's server":     {in("internal/node", "go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"), ""},
		"etcd in a test":                {inTest("internal/node", "go.etcd.io/etcd/client/v3"), ""},
		"memberlist in a test":          {inTest("internal/node", "github.com/hashicorp/memberlist"), "only internal/membership may"},
		"raft's store":                  {in("internal/node", "github.com/hashicorp/raft-boltdb/v2"), "only internal/control/placement may"},
		"status codes":                  {in("internal/edge/server", "google.golang.org/grpc/status"), "only internal/wire, internal/edge/grpcserver, internal/edge/grpcserver/callhead, internal/edge/grpcserver/services, internal/edge/grpcserver/interoptest, client, client/..., api/... may"},
		"status codes in their package": {in("internal/wire", "google.golang.org/grpc/status"), ""},
		"a decision with a socket":      {in("internal/control/mapchange", "internal/shard", "net"), "internal/control/mapchange imports net: a pure package has no I/O"},
		"a decision on values":          {in("internal/control/mapchange", "internal/shard", "internal/kv", "slices"), ""},
		"cobra":                         {in("internal/ops/config", "github.com/spf13/cobra"), "only cmd/cachenode, cmd/cachectl, cmd/cachectl/internal/... may"},
	} {
		t.Run(name, func(t *testing.T) {
			got := strings.Join(breaks(c.p), "\n")
			if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

func TestPurityRulesRejectViolations(t *testing.T) {
	for body, want := range map[string]string{
		"_ = time.Second":         "",
		"_ = at.Add(time.Minute)": "",
		"_ = time.Now()":          "time.Now: a pure package gets the time as an argument",
		"time.Sleep(1)":           "time.Sleep",
		"go func() {}()":          "no goroutine",
		"_ = make(chan int)":      "no channel",
		"select {}":               "no goroutine and no channel",
	} {
		got := strings.Join(impure(t, "x.go", []byte("package x\nimport \"time\"\nfunc f(at time.Time) { "+body+" }")), "\n")
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", body, got, want)
		}
	}
}
