package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/shardwatch/shardwatch/client/clienttest"
	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/cli"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"cachectl": main})
}

// await waits until ok.
func await(ts *testscript.TestScript, what string, ok func() bool) {
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			ts.Fatalf("never happened: %s", what)
		}
	}
}

// serving returns a node that serves a watch; nil: none does.
func serving(ts *testscript.TestScript) *clienttest.Node {
	for _, n := range clusterOf(ts).Nodes() {
		if n.Watches() > 0 {
			return n
		}
	}
	return nil
}

type clusterKey struct{}

func clusterOf(ts *testscript.TestScript) *clienttest.Cluster {
	c, ok := ts.Value(clusterKey{}).(*clienttest.Cluster)
	if !ok {
		ts.Fatalf("no cluster")
	}
	return c
}

// Every script has a separate cluster: n1, n2 and n3, two shards cut at "/m", two
// replicas each.
//
// UPDATE=1 go test ./cmd/cachectl rewrites the golden parts.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/script",
		UpdateScripts: os.Getenv("UPDATE") != "",
		Setup: func(env *testscript.Env) error {
			c, err := clienttest.Start(clienttest.Config{ID: "clienttest", Cuts: []string{"/m"}, Replicas: 2})
			if err != nil {
				return err
			}
			env.Defer(func() { _ = c.Close() })
			env.Values[clusterKey{}] = c
			env.Setenv("CACHECTL_ENDPOINTS", strings.Join(c.Endpoints(), ","))
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"kill-node": func(ts *testscript.TestScript, _ bool, args []string) { clusterOf(ts).Node(args[0]).Kill() },
			// authenticate turns authentication on, with a user and a password.
			"authenticate": func(ts *testscript.TestScript, _ bool, args []string) {
				clusterOf(ts).Authenticate(map[string]string{args[0]: args[1]})
			},
			// corrupt makes a node's copy of a key wrong until that is found.
			"corrupt": func(ts *testscript.TestScript, _ bool, args []string) { clusterOf(ts).Corrupt(args[0], args[1]) },
			"compact": func(ts *testscript.TestScript, _ bool, _ []string) { c := clusterOf(ts); c.Compact(c.Revision()) },
			// forget-deletes makes nodes forget all deletes until now.
			"forget-deletes": func(ts *testscript.TestScript, _ bool, _ []string) {
				c := clusterOf(ts)
				c.ForgetDeletes(c.Revision())
			},
			// hold-filling keeps moved replicas half loaded; release-filling ends
			// that.
			"hold-filling":    func(ts *testscript.TestScript, _ bool, _ []string) { clusterOf(ts).HoldFilling(true) },
			"release-filling": func(ts *testscript.TestScript, _ bool, _ []string) { clusterOf(ts).HoldFilling(false) },
			// overrule makes a node report flags that are not in force.
			"overrule": func(ts *testscript.TestScript, _ bool, args []string) { clusterOf(ts).Overrule(args[0], args[1:]...) },
			// lose-change drops the answer to the next change.
			"lose-change": func(ts *testscript.TestScript, _ bool, _ []string) { clusterOf(ts).LoseChanges(1) },
			// levels sets the finalized feature level, then the levels that n1, n2
			// and n3 understand.
			"levels": func(ts *testscript.TestScript, _ bool, args []string) {
				var levels []int32
				for _, a := range args {
					level, err := strconv.ParseInt(a, 10, 32)
					ts.Check(err)
					levels = append(levels, int32(level))
				}
				clusterOf(ts).SetLevels(levels[0], levels[1:]...)
			},
			// restore takes etcd back to a revision.
			"restore": func(ts *testscript.TestScript, _ bool, args []string) {
				revision, err := strconv.ParseInt(args[0], 10, 64)
				ts.Check(err)
				clusterOf(ts).Restore(revision)
			},
			// await-no-watch waits until no node serves a watch: the last
			// command's watch has ended.
			"await-no-watch": func(ts *testscript.TestScript, _ bool, _ []string) {
				await(ts, "no node serves a watch", func() bool { return serving(ts) == nil })
			},
			// await-watch waits until a node serves a watch.
			"await-watch": func(ts *testscript.TestScript, _ bool, _ []string) {
				await(ts, "a node serves a watch", func() bool { return serving(ts) != nil })
			},
			// await-line waits until a file has a line.
			"await-line": func(ts *testscript.TestScript, _ bool, args []string) {
				await(ts, args[0]+" has a line", func() bool {
					b, err := os.ReadFile(ts.MkAbs(args[0]))
					return err == nil && bytes.Contains(b, []byte("\n"))
				})
			},
			// kill-serving kills a node that serves a watch.
			"kill-serving": func(ts *testscript.TestScript, _ bool, _ []string) {
				n := serving(ts)
				if n == nil {
					ts.Fatalf("no node serves a watch")
				}
				n.Kill()
			},
			"put-binary": func(ts *testscript.TestScript, _ bool, _ []string) {
				clusterOf(ts).Put("/demo/\xff\x00", "line\nbreak")
			},
			// cmpout compares standard output with a file, with the nodes'
			// addresses replaced by names of the same length.
			"cmpout": func(ts *testscript.TestScript, _ bool, args []string) {
				got := ts.ReadFile("stdout")
				for _, n := range clusterOf(ts).Nodes() {
					got = strings.ReplaceAll(got, n.Addr(), (n.Name + strings.Repeat(".", 15))[:15])
				}
				if want := ts.ReadFile(args[0]); got != want {
					ts.Fatalf("got\n%s\nwant\n%s", got, want)
				}
			},
		},
	})
}

func TestExitCodes(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"done":                         {[]string{"version", "--client"}, exitDone, ""},
		"help":                         {[]string{"--help"}, exitDone, ""},
		"unknown command":              {[]string{"wathc"}, exitUsage, "did you mean watch?"},
		"unknown flag":                 {[]string{"watch", "--prefx", "/"}, exitUsage, "--prefx"},
		"etcdctl's word":               {[]string{"ls"}, exitUsage, "did you mean list?"},
		"near subcommand":              {[]string{"voters", "recvoer"}, exitUsage, "did you mean cachectl voters recover?"},
		"near flag":                    {[]string{"watch", "--prefx", "/"}, exitUsage, "did you mean --prefix or"},
		"near common flag":             {[]string{"get", "/", "--endpoint", "a:1"}, exitUsage, "did you mean --endpoints?"},
		"flag of list":                 {[]string{"get", "/", "--values-only"}, exitUsage, "get prints the value alone"},
		"no flag is near":              {[]string{"get", "/", "--xyzzy"}, exitUsage, "unknown flag: --xyzzy\n"},
		"etcdctl's flag":               {[]string{"watch", "/", "--rev", "3"}, exitUsage, "use --from"},
		"get of a prefix":              {[]string{"get", "--prefix", "/app/"}, exitUsage, "cachectl list --prefix KEY"},
		"no key":                       {[]string{"watch"}, exitUsage, "KEY is missing"},
		"two keys":                     {[]string{"get", "a", "b"}, exitUsage, `"b"`},
		"empty key":                    {[]string{"watch", ""}, exitUsage, `--prefix ""`},
		"both ranges":                  {[]string{"list", "a", "--prefix", "--range-end", "b"}, exitUsage, "exclude each other"},
		"range end first":              {[]string{"list", "b", "--range-end", "a"}, exitUsage, "is not after"},
		"state and from":               {[]string{"watch", "a", "--state", "--from", "3"}, exitUsage, "exclude each other"},
		"no unit, conflated":           {[]string{"watch", "a", "--conflate", "1s", "--no-resync"}, exitUsage, "--no-resync"},
		"conflate too short":           {[]string{"watch", "a", "--conflate", "1ms"}, exitUsage, "10ms"},
		"too fresh":                    {[]string{"watch", "a", "--max-staleness", "1ms"}, exitUsage, "100ms"},
		"negative from":                {[]string{"watch", "a", "--from", "-3"}, exitUsage, "positive"},
		"negative limit":               {[]string{"list", "a", "--limit", "-3"}, exitUsage, "negative"},
		"rev and stale":                {[]string{"get", "a", "--rev", "3", "--serializable"}, exitUsage, "exclude each other"},
		"a foreign page":               {[]string{"list", "a", "--page", "?"}, exitUsage, "--page"},
		"wait for both":                {[]string{"wait", "a", "--deleted", "--value", ""}, exitUsage, "--deleted excludes"},
		"wait for the past":            {[]string{"wait", "a", "--revision", "-1"}, exitUsage, "positive"},
		"a wait at unreachable nodes":  {[]string{"wait", "a", "--endpoints", "127.0.0.1:1", "--timeout", "200ms"}, exitFailed, "no node answers"},
		"not a lease":                  {[]string{"put", "a", "b", "--lease", "70ce8c5e51ac0103"}, exitUsage, "with 0x"},
		"lease zero":                   {[]string{"put", "a", "b", "--lease", "0"}, exitUsage, "with 0x"},
		"if negative":                  {[]string{"put", "a", "b", "--if-revision", "-1"}, exitUsage, "does not exist"},
		"empty key to put":             {[]string{"put", "", "b"}, exitUsage, "KEY is empty"},
		"rev of a count":               {[]string{"count", "a", "--rev", "-1"}, exitUsage, "positive"},
		"bad output":                   {[]string{"members", "-o", "xml"}, exitUsage, "use table, json, yaml"},
		"empty batch":                  {[]string{"import", "-", "--batch", "0"}, exitUsage, "at least 1"},
		"nothing to import":            {[]string{"import", "/none"}, exitFailed, "no such file"},
		"bad path":                     {[]string{"members", "-o", "jsonpath=members"}, exitUsage, "for example -o jsonpath="},
		"values and keys":              {[]string{"list", "a", "--values-only", "--keys-only"}, exitUsage, "--values-only excludes"},
		"values as JSON":               {[]string{"list", "a", "--values-only", "-o", "json"}, exitUsage, "--values-only excludes"},
		"bad endpoint":                 {[]string{"members", "--endpoints", "host"}, exitUsage, "host:port"},
		"no endpoint":                  {[]string{"members", "--endpoints", ""}, exitUsage, "no endpoints"},
		"cert without key":             {[]string{"members", "--cert", "x"}, exitUsage, "go together"},
		"user alone":                   {[]string{"members", "--user", "ann"}, exitUsage, "go together"},
		"no such password":             {[]string{"members", "--user", "ann", "--password-file", "/none"}, exitUsage, "--password-file"},
		"no password":                  {[]string{"members", "--user", "ann", "--password-file", os.DevNull}, exitUsage, "is empty"},
		"no such CA":                   {[]string{"members", "--cacert", "/none"}, exitUsage, "--cacert"},
		"bad timeout":                  {[]string{"members", "--timeout", "0s"}, exitUsage, "positive"},
		"bad shell":                    {[]string{"completion", "tcsh"}, exitUsage, "fish"},
		"a shard's number":             {[]string{"split", "0"}, exitUsage, "the number of a shard"},
		"one shard":                    {[]string{"merge", "3"}, exitUsage, "SHARD is missing"},
		"no node":                      {[]string{"drain"}, exitUsage, "NODE is missing"},
		"nodes and owner":              {[]string{"move", "3", "--to", "a", "--owner", "b"}, exitUsage, "either --to"},
		"an empty owner":               {[]string{"move", "3", "--owner", ""}, exitUsage, "--owner is empty"},
		"unreachable nodes":            {[]string{"members", "--endpoints", "127.0.0.1:1", "--timeout", "200ms"}, exitFailed, "--endpoints"},
		"a watch of unreachable nodes": {[]string{"watch", "a", "--endpoints", "127.0.0.1:1", "--timeout", "200ms"}, exitFailed, "no node answers at 127.0.0.1:1"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errOut bytes.Buffer
			p := cli.Process{Getenv: func(string) string { return "" }, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errOut}
			if code := execute(context.Background(), p, c.args); code != c.code || !strings.Contains(errOut.String(), c.says) {
				t.Errorf("exit code %d, want %d with %q: %s", code, c.code, c.says, errOut.String())
			}
		})
	}
}

// notice is a buffer that signals each write.
type notice struct {
	mu      sync.Mutex
	text    bytes.Buffer
	written chan struct{}
}

func (n *notice) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	select {
	case n.written <- struct{}{}:
	default:
	}
	return n.text.Write(p)
}

func (n *notice) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.String()
}

func TestInterruptedChangeContinues(t *testing.T) {
	c, err := clienttest.Start(clienttest.Config{Replicas: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	c.HoldFilling(true)
	ctx, interrupt := context.WithCancel(t.Context())
	var out bytes.Buffer
	told := &notice{written: make(chan struct{}, 1)}
	go func() {
		<-told.written // the steps that are left: the change is accepted
		interrupt()
	}()
	p := cli.Process{Getenv: func(string) string { return "" }, Stdout: &out, Stderr: told}
	code := execute(ctx, p, []string{"drain", "n1", "--endpoints", strings.Join(c.Endpoints(), ",")})
	if text := told.String(); code != exitGoesOn || !strings.HasPrefix(text, "1 shard left, loading: 1 at n3 50 %\n") || !strings.Contains(text, "cachectl: interrupted: the change continues; ") {
		t.Errorf("exit code %d: %s", code, text)
	}
}

// Ctrl-C and SIGTERM end a command that waits for standard input, and nothing is written.
func TestAnInterruptEndsTheReadOfStandardInput(t *testing.T) {
	c, err := clienttest.Start(clienttest.Config{Nodes: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	for text, args := range map[string][]string{
		"half of a value": {"put", "/a", "-"},
		`{"export":1,"start":"","end":""}` + "\n" + `{"key":"/a","value":"1"}` + "\n": {"import", "-"},
	} {
		t.Run(args[0], func(t *testing.T) {
			in, feed := io.Pipe()
			defer func() { _ = feed.Close() }()
			ctx, interrupt := context.WithCancelCause(t.Context())
			defer interrupt(nil)
			var out, errOut bytes.Buffer
			code := make(chan int, 1)
			go func() {
				p := cli.Process{Getenv: func(string) string { return "" }, Stdin: in, Stdout: &out, Stderr: &errOut}
				code <- execute(ctx, p, append(args, "--endpoints", c.Endpoints()[0]))
				_ = in.Close()
			}()
			if _, err := io.WriteString(feed, text); err != nil { // returns when it has been read
				t.Fatal(err)
			}
			interrupt(errors.New("interrupted"))
			select {
			case got := <-code:
				if got != exitFailed || !strings.Contains(errOut.String(), "interrupted") || c.Revision() != 1 {
					t.Errorf("exit code %d at revision %d: %s", got, c.Revision(), errOut.String())
				}
			case <-time.After(time.Minute):
				t.Fatal("the command still waits for standard input")
			}
		})
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, syscall.EPIPE }

func TestAClosedOutputPipeIsNoFailure(t *testing.T) {
	var errOut bytes.Buffer
	p := cli.Process{Getenv: func(string) string { return "" }, Stdout: brokenPipe{}, Stderr: &errOut}
	if code := execute(context.Background(), p, []string{"version", "--client"}); code != exitDone || errOut.Len() > 0 {
		t.Errorf("exit code %d: %s", code, errOut.String())
	}
}
