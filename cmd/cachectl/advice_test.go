package main

import (
	"crypto/tls"
	"net"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/cli"
	"github.com/shardwatch/shardwatch/internal/files/certtest"
)

// listen accepts connections, with TLS if c is set, and closes them.
func listen(t *testing.T, c *tls.Config) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				if c == nil {
					_, _ = conn.Read(make([]byte, 1024))
					_, _ = conn.Write([]byte("\x00\x00\x00\x04\x00\x00\x00\x00\x00")) // settings of HTTP/2
					return
				}
				secured := tls.Server(conn, c)
				if secured.Handshake() == nil {
					_, _ = secured.Read(make([]byte, 1))
				}
			}()
		}
	}()
	return l.Addr().String()
}

// TLS errors name the flag that fixes them.
func TestAdviceAboutTLS(t *testing.T) {
	ours, others := certtest.NewCA(t, "ours"), certtest.NewCA(t, "others")
	files, same := certtest.NewFiles(t, ours.Issue(t, "client"), others), certtest.NewFiles(t, others.Issue(t, "client"), ours)
	server := &tls.Config{Certificates: []tls.Certificate{ours.Issue(t, "server").Pair}, NextProtos: []string{"h2"}}
	secure := listen(t, server)
	asking := server.Clone()
	asking.ClientAuth, asking.ClientCAs = tls.RequireAndVerifyClientCert, certtest.Pool(ours)
	mutual := listen(t, asking)
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"TLS to nodes without TLS":           {[]string{"--endpoints", listen(t, nil), "--cacert", files.CA}, "The nodes do not speak TLS"},
		"a CA that is not the servers":       {[]string{"--endpoints", secure, "--cacert", files.CA}, "is not signed by a CA in --cacert"},
		"no certificate where one is wanted": {[]string{"--endpoints", mutual, "--cacert", same.CA}, "require a certificate"},
		"a certificate of another CA":        {[]string{"--endpoints", mutual, "--cacert", same.CA, "--cert", same.Cert, "--key", same.Key}, "certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out, errOut strings.Builder
			p := cli.Process{Getenv: func(string) string { return "" }, Stdout: &out, Stderr: &errOut}
			if code := execute(t.Context(), p, append([]string{"status", "--timeout", "5s"}, c.args...)); code != exitFailed || !strings.Contains(errOut.String(), c.want) {
				t.Errorf("exit code %d, no %q in:\n%s", code, c.want, errOut.String())
			}
		})
	}
}

// No command has a flag with the name of a global flag, which it would hide: with a
// flag --key, a command could not use a client certificate.
func TestNoCommandHidesAGlobalFlag(t *testing.T) {
	root := newRoot(cli.Process{Getenv: func(string) string { return "" }})
	for _, cmd := range root.Commands() {
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if root.PersistentFlags().Lookup(f.Name) != nil {
				t.Errorf("%s hides the global flag --%s", cmd.CommandPath(), f.Name)
			}
		})
	}
}
