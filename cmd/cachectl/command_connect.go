package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/admin"
	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/cli"
)

// kits are the programs that connect supports, in the order of its help.
var kits = [...]struct {
	name  string
	write func(w io.Writer, e etcdEndpoints) error
}{
	{"etcdctl", writeEtcdctl},
	{"go", writeGo},
	{"kube-apiserver", writeKubeAPIServer},
	{"curl", writeCurl},
}

// etcdEndpoints are the nodes in the form of etcd's clients.
type etcdEndpoints struct {
	addresses     []string // host:port
	scheme        string
	ca, cert, key string // files; "": none
}

func (e etcdEndpoints) urls() string {
	return e.scheme + strings.Join(e.addresses, ","+e.scheme)
}

func kitNames() []string {
	var out []string
	for _, k := range kits {
		out = append(out, k.name)
	}
	return out
}

func newConnectCommand(s *cli.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "connect etcdctl|go|kube-apiserver|curl",
		Short: "Show how an etcd client connects to this cluster",
		Long: `connect prints the settings with which an etcd client uses this cluster: every node
serves etcd's API, so the program needs no other change. The addresses are those of the
live nodes, and the files those of --cacert, --cert and --key.`,
		Example: `  eval "$(cachectl connect etcdctl)"        then use etcdctl as usual
  cachectl connect kube-apiserver`,
		Args:      cli.Takes("one of " + strings.Join(kitNames(), ", ")),
		ValidArgs: kitNames(),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, k := range kits {
				if k.name == args[0] {
					return connect(s, cmd, k.write)
				}
			}
			return cli.Usage(cmd, fmt.Errorf("unknown program %q: use %s", args[0], strings.Join(kitNames(), ", ")))
		},
	}
}

func connect(s *cli.Session, cmd *cobra.Command, write func(io.Writer, etcdEndpoints) error) error {
	return s.Within(cmd, func(ctx context.Context, c *client.Client) error {
		members, err := admin.New(c).Members(ctx)
		if err != nil {
			return err //nolint:wrapcheck // says what it did
		}
		e := etcdEndpoints{scheme: "http://", ca: s.CACert, cert: s.Cert, key: s.Key}
		if s.Secure() {
			e.scheme = "https://"
		}
		for _, m := range members {
			if m.State == admin.MemberAlive && !m.Draining && m.ClientAddress != "" {
				e.addresses = append(e.addresses, m.ClientAddress)
			}
		}
		return write(s.Process.Stdout, e)
	})
}

// flag returns text with the file, or "" without a file.
func flag(text, file string) string {
	if file == "" {
		return ""
	}
	return text + file
}

func writeEtcdctl(w io.Writer, e etcdEndpoints) error {
	return cli.Lines(w,
		"export ETCDCTL_ENDPOINTS="+e.urls(),
		flag("export ETCDCTL_CACERT=", e.ca), flag("export ETCDCTL_CERT=", e.cert), flag("export ETCDCTL_KEY=", e.key),
	)
}

func writeGo(w io.Writer, e etcdEndpoints) error {
	secure := ""
	if e.scheme == "https://" {
		secure = "\tTLS:       tlsConfig,"
	}
	return cli.Lines(w,
		"c, err := clientv3.New(clientv3.Config{",
		`	Endpoints: []string{"`+strings.ReplaceAll(e.urls(), ",", `", "`)+`"},`,
		secure,
		"})",
	)
}

func writeKubeAPIServer(w io.Writer, e etcdEndpoints) error {
	return cli.Lines(w,
		"--etcd-servers="+e.urls(),
		flag("--etcd-cafile=", e.ca), flag("--etcd-certfile=", e.cert), flag("--etcd-keyfile=", e.key),
	)
}

func writeCurl(w io.Writer, e etcdEndpoints) error {
	command := "curl"
	for _, f := range []string{flag(" --cacert ", e.ca), flag(" --cert ", e.cert), flag(" --key ", e.key)} {
		command += f
	}
	if e.scheme == "https://" {
		command += " --http1.1"
	}
	address := ""
	if len(e.addresses) > 0 {
		address = e.addresses[0]
	}
	return cli.Lines(w, "# keys and values are in base64: this one is /demo/a", command+" "+e.scheme+address+`/v3/kv/range -d '{"key":"L2RlbW8vYQ=="}'`)
}
