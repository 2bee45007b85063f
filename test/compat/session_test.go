package compat_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// patience bounds a script's wait for expected output. It makes no test faster, and prevents
// failures on a busy machine.
const patience = time.Minute

// patient are flags of etcdctl, which by default waits for 2 and 5 s. It ends before the script's
// patience does, so that its message is visible. Transcripts omit them.
var patient = []string{fmt.Sprint("--dial-timeout=", patience/2), fmt.Sprint("--command-timeout=", patience/2)}

// session is one run of a script: it runs etcdctl and records its output.
type session struct {
	ctl        string
	g          *target
	env        []string
	transcript strings.Builder
	last       string             // output of the last call
	ids        map[string]string  // long numbers chosen by etcd, and their names
	running    map[string]*talker // by name
}

type sessionKey struct{}

func newSession(ctl string, g *target) *session {
	return &session{ctl: ctl, g: g, env: os.Environ(), ids: map[string]string{}, running: map[string]*talker{}}
}

func (s *session) close() {
	for _, r := range s.running {
		_ = r.cmd.Process.Kill()
		<-r.ended
	}
}

func sessionOf(ts *testscript.TestScript) *session { return ts.Value(sessionKey{}).(*session) }

// commands are the commands of scripts besides testscript's own.
func commands() map[string]func(ts *testscript.TestScript, neg bool, args []string) {
	return map[string]func(ts *testscript.TestScript, neg bool, args []string){
		// ctl args... [<file]: run etcdctl and record its output.
		"ctl": func(ts *testscript.TestScript, _ bool, args []string) {
			s := sessionOf(ts)
			var stdin string
			args = slices.DeleteFunc(slices.Clone(args), func(a string) bool {
				file, is := strings.CutPrefix(a, "<")
				if is {
					stdin = ts.ReadFile(file)
				}
				return is
			})
			out, said := s.call(ts, stdin, args)
			s.last = out
			s.note(ts, args, stdin, said)
		},
		// let NAME regexp: set a variable to the match in the last ctl's output.
		"let": func(ts *testscript.TestScript, _ bool, args []string) {
			s := sessionOf(ts)
			found := regexp.MustCompile(args[1]).FindStringSubmatch(s.last)
			if len(found) != 2 {
				ts.Fatalf("no %s in %q", args[1], s.last)
			}
			ts.Setenv(args[0], found[1])
		},
		// until regexp args...: run etcdctl until its output matches. Not recorded.
		"until": func(ts *testscript.TestScript, _ bool, args []string) {
			s := sessionOf(ts)
			want := regexp.MustCompile(args[0])
			s.wait(ts, args[0], func() (string, bool) {
				out, said := s.call(ts, "", args[1:])
				return said, want.MatchString(out)
			})
		},
		// everywhere regexp args...: until at each endpoint separately. Rights reach cache nodes a
		// moment after etcd.
		"everywhere": func(ts *testscript.TestScript, _ bool, args []string) {
			s := sessionOf(ts)
			want := regexp.MustCompile(args[0])
			for _, e := range s.g.endpoints() {
				s.wait(ts, args[0], func() (string, bool) {
					_, said := s.call(ts, "", append([]string{"--endpoints=" + e}, args[1:]...))
					return said, want.MatchString(said)
				})
			}
		},
		// says regexp args...: run etcdctl, whose output must match; with ! it must fail with such
		// output. Not recorded: for output that differs between etcd and the tier.
		"says": func(ts *testscript.TestScript, neg bool, args []string) {
			_, said := sessionOf(ts).call(ts, "", args[1:])
			if failed := strings.Contains(said, "[exit "); failed != neg || !regexp.MustCompile(args[0]).MatchString(said) {
				ts.Fatalf("etcdctl %s: no %q in\n%s", strings.Join(args[1:], " "), args[0], said)
			}
		},
		// begin NAME args...: start etcdctl in the background.
		"begin": func(ts *testscript.TestScript, _ bool, args []string) {
			s := sessionOf(ts)
			r := s.start(ts, args[1:])
			s.running[args[0]] = r
		},
		// await NAME regexp: wait until its output matches.
		"await": func(ts *testscript.TestScript, _ bool, args []string) {
			s := sessionOf(ts)
			r := s.talker(ts, args[0])
			want := regexp.MustCompile(args[1])
			s.wait(ts, args[1], func() (string, bool) {
				select {
				case <-r.ended:
					ts.Fatalf("%s ended before it printed %q:\n%s", args[0], args[1], r.said())
				default:
				}
				out := r.out.String()
				return out, want.MatchString(out)
			})
		},
		// tell NAME line [regexp]: send it a line, repeatedly until its output matches.
		"tell": func(ts *testscript.TestScript, _ bool, args []string) {
			s := sessionOf(ts)
			r := s.talker(ts, args[0])
			if len(args) == 2 {
				ts.Check(r.say(args[1]))
				return
			}
			want := regexp.MustCompile(args[2])
			s.wait(ts, args[2], func() (string, bool) {
				ts.Check(r.say(args[1]))
				out := r.out.String()
				return out, want.MatchString(out)
			})
		},
		// end NAME: wait for its end and record its output.
		"end": func(ts *testscript.TestScript, _ bool, args []string) {
			sessionOf(ts).finish(ts, args[0], nil)
		},
		// interrupt NAME: send it SIGINT, then as for end.
		"interrupt": func(ts *testscript.TestScript, _ bool, args []string) {
			sessionOf(ts).finish(ts, args[0], os.Interrupt)
		},
		// transcript file: write the recorded calls.
		"transcript": func(ts *testscript.TestScript, _ bool, args []string) {
			ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(sessionOf(ts).transcript.String()), 0o600))
		},
	}
}

// start starts etcdctl, with all endpoints unless args name some.
func (s *session) start(ts *testscript.TestScript, args []string) *talker {
	full := args
	if !strings.HasPrefix(args[0], "--endpoints=") {
		full = append([]string{"--endpoints=" + strings.Join(s.g.endpoints(), ",")}, args...)
	}
	full = append(slices.Clone(patient), full...)
	r, err := talk(exec.Command(s.ctl, full...), s.env, ts.MkAbs("."))
	ts.Check(err)
	r.args = args
	return r
}

// call runs etcdctl to its end. said is its output and its exit status.
func (s *session) call(ts *testscript.TestScript, stdin string, args []string) (out, said string) {
	r := s.start(ts, args)
	_, _ = io.WriteString(r.in, stdin) // it need not read its input
	_ = r.in.Close()
	select {
	case <-r.ended:
	case <-time.After(patience):
		_ = r.cmd.Process.Kill()
		<-r.ended
		ts.Fatalf("etcdctl %s did not end: %s", strings.Join(args, " "), r.said())
	}
	return r.out.String(), r.said()
}

func (s *session) talker(ts *testscript.TestScript, name string) *talker {
	r := s.running[name]
	if r == nil {
		ts.Fatalf("nothing runs as %s", name)
	}
	return r
}

// finish ends a background process, with or without a signal, and records its output.
func (s *session) finish(ts *testscript.TestScript, name string, sig os.Signal) {
	r := s.talker(ts, name)
	delete(s.running, name)
	if sig != nil {
		ts.Check(r.cmd.Process.Signal(sig))
	}
	select {
	case <-r.ended:
	case <-time.After(patience):
		_ = r.cmd.Process.Kill()
		<-r.ended
		ts.Fatalf("%s did not end: %s", name, r.said())
	}
	s.note(ts, r.args, "", r.said())
}

// wait polls until done.
func (s *session) wait(ts *testscript.TestScript, what string, done func() (state string, ok bool)) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	end := time.After(patience)
	for {
		state, ok := done()
		if ok {
			return
		}
		select {
		case <-tick.C:
		case <-end:
			ts.Fatalf("waited for %q, there is\n%s", what, state)
		}
	}
}

// note records a call, without the parts that vary between runs.
func (s *session) note(ts *testscript.TestScript, args []string, stdin, said string) {
	var b strings.Builder
	fmt.Fprintf(&b, "$ etcdctl %s\n", strings.Join(args, " "))
	for line := range strings.Lines(stdin) {
		fmt.Fprintf(&b, "< %s", line)
	}
	b.WriteString(said)
	if said != "" && !strings.HasSuffix(said, "\n") {
		b.WriteString("\n")
	}
	ts.Logf("%s", b.String())
	s.transcript.WriteString(s.plain(b.String()))
}

var (
	responses = regexp.MustCompile(`(?m)^\{"Header":.*"Events":\[.*\n`)
	members   = regexp.MustCompile(`("(?:cluster_id|member_id|ClusterID|MemberID)" ?: ?)\d+`)
	remaining = regexp.MustCompile(`remaining\(\d+s\)|("ttl":)\d+`)
	attached  = regexp.MustCompile(`attached keys\(\[(.*?)\]\)`)
	longIDs   = regexp.MustCompile(`\b(?:[0-9a-f]{14,16}|\d{17,19})\b`)
	clientLog = regexp.MustCompile(`(?m)^\{"level":.*\n`)
	progress  = regexp.MustCompile(`(?m)^progress notify: \d+\n`)
)

// plain replaces random values of etcd, addresses and times.
func (s *session) plain(text string) string {
	for _, e := range s.g.endpoints() {
		text = strings.ReplaceAll(text, e, "NODE")
	}
	text = strings.ReplaceAll(text, s.g.etcd.Endpoint(), "ETCD")
	text = clientLog.ReplaceAllString(text, "")
	text = responses.ReplaceAllStringFunc(text, eachEvent)
	text = members.ReplaceAllString(text, "${1}ID")
	text = remaining.ReplaceAllString(text, "${1}remaining")
	text = progress.ReplaceAllString(text, "")                            // their number depends on tell
	text = attached.ReplaceAllStringFunc(text, func(list string) string { // in any order
		keys := strings.Fields(attached.FindStringSubmatch(list)[1])
		slices.Sort(keys)
		return fmt.Sprintf("attached keys(%v)", keys)
	})
	return longIDs.ReplaceAllStringFunc(text, func(id string) string {
		if s.ids[id] == "" {
			s.ids[id] = fmt.Sprintf("ID%d", len(s.ids)+1)
		}
		return s.ids[id]
	})
}

// eachEvent prints one line per event: the number of revisions per answer while a watch catches up
// is not guaranteed, and neither is the header's revision.
func eachEvent(response string) string {
	var r struct{ Events []json.RawMessage }
	if err := json.Unmarshal([]byte(response), &r); err != nil {
		return response
	}
	var b strings.Builder
	for _, e := range r.Events {
		fmt.Fprintf(&b, "event %s\n", e)
	}
	return b.String()
}

// talker is a running process with an input.
type talker struct {
	cmd      *exec.Cmd
	args     []string
	in       io.WriteCloser
	out, err *record
	ended    chan struct{} // closed when it has ended
	how      error         // set then: its exit status
}

func talk(cmd *exec.Cmd, env []string, dir string) (*talker, error) {
	r := &talker{cmd: cmd, out: &record{}, err: &record{}, ended: make(chan struct{})}
	cmd.Env, cmd.Dir = env, dir
	cmd.Stdout, cmd.Stderr = r.out, r.err
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // it ignores Ctrl-C of the test
	var err error
	if r.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		r.how = cmd.Wait()
		close(r.ended)
	}()
	return r, nil
}

func (r *talker) say(line string) error {
	_, err := io.WriteString(r.in, line+"\n")
	return err
}

// said is its output and, after a failure, its exit status.
func (r *talker) said() string {
	said := r.out.String()
	if e := r.err.String(); e != "" {
		if said != "" && !strings.HasSuffix(said, "\n") {
			said += "\n"
		}
		said += e
	}
	var exit *exec.ExitError
	if errors.As(r.how, &exit) {
		if said != "" && !strings.HasSuffix(said, "\n") {
			said += "\n"
		}
		said += fmt.Sprintf("[%v]\n", strings.Replace(exit.Error(), "exit status", "exit", 1))
	}
	return said
}

// record is a buffer that is safe to read during writes.
type record struct {
	mu sync.Mutex
	b  bytes.Buffer // guarded by mu
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.b.Write(p)
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.b.String()
}
